"""What the built-in guards have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rlvr_core.api import NoConfig, RunError, StepObserver
from rlvr_core.api.components import RunObserver

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rlvr_core.api import (
        ComponentConfig,
        GroupsScored,
        GuardContext,
        Metric,
        StepFinished,
    )
    from rlvr_core.api.guards import StepView


OFTEN, EVERY = 8, 10
"""First steps of a process in each of which the costlier checks are made; later in one of so
many."""


class BaseGuard(RunObserver, StepObserver):
    """A guard that is told everything of a run; each method does nothing unless overridden.

    Attributes:
        name: Its leaf name, as messages have it.
        numbers: The numbers of the step, for its line.
        due: Whether this step makes the checks that are not made in each.
    """

    name: ClassVar[str]
    reports: ClassVar[tuple[Metric, ...]] = ()
    Config: type[ComponentConfig] = NoConfig
    context: GuardContext

    def __init__(self, config: ComponentConfig) -> None:
        self.numbers: dict[str, float] = {}
        self.due = True
        self._said: set[str] = set()
        self._first: int | None = None

    def bind(self, context: GuardContext) -> None:
        """See ``BindsToRun``."""
        self.context = context

    @property
    def view(self) -> StepView:
        """The step in progress."""
        return self.context.view

    def is_due(self, step: int) -> bool:
        """Whether this step makes the checks that are not made in each."""
        self._first = step if self._first is None else self._first
        return step - self._first < OFTEN or step % EVERY == 0

    def begin(self, step: int) -> None:
        """Forget the numbers of the step before, and note whether this one is looked at."""
        self.numbers, self.due = {}, self.is_due(step)

    def on_groups(self, event: GroupsScored) -> None:
        """See ``Guard``."""

    def on_step(self, event: StepFinished) -> None:
        """See ``Guard``."""

    def report(self) -> Mapping[str, float]:
        """Return the numbers of the step. See ``Reporter``."""
        return self.numbers

    def say_once(self, text: str) -> None:
        """Tell the user what the guard does not look at, once in a process."""
        self._once(f"guard {self.name}: {text}")

    def warn_once(self, text: str) -> None:
        """Warn of what the guard found doubtful, once in a process."""
        self._once(f"warning: guard {self.name}: {text}; see rlvr docs guards#{self.name}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.context.say(text)

    def fault(self, step: int, what: str, *remedy: str) -> RunError:
        """Return the error that ends the run.

        Args:
            step: The step, from 0.
            what: What was measured, with its band.
            remedy: What to do, by the likely cause.
        """
        return RunError(
            f"guard {self.name}: {what}",
            where=f"step {step + 1}",
            remedy=(*filter(None, remedy), how_to_switch_off(self.name)),
        )

    def raise_first(self, step: int, fault: str, remedy: str = "") -> None:
        """Raise what a process found, in all of them; a collective.

        Args:
            step: The step, from 0.
            fault: What is wrong, with its remedy behind a line break; empty if nothing is.
            remedy: What to do if the text has none.
        """
        for text in self.context.ranks.gather(fault):
            if text:
                what, _, advice = text.partition("\n")
                raise self.fault(step, what, advice or remedy)


def how_to_switch_off(name: str) -> str:
    """Return the line that ends every message of a guard."""
    return f"see rlvr docs guards#{name}; guards: [{{use: core/{name}, off: true}}] turns it off"


def compute_dtype(context: GuardContext) -> torch.dtype:
    """Return the dtype of the trainer's forward pass."""
    dtype: torch.dtype = context.trainer.precision.compute
    return dtype
