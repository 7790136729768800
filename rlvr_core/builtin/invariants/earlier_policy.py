"""Checks under the policy of a step ago, for an engine that samples beside training.

Its completions are of the version that the step before began with. Under the weights of now their
log-probs and draws say little, so a copy of the earlier ones is kept from one step to the next. It
takes the place of the model's for a pass without gradient, in which ``parity``, ``seeds`` and
``calibration`` look at such completions as they do at those of an engine that takes turns.

What they find is neither on a step's line nor in checkpoints: the first step of a resumed run has
no earlier weights, and its numbers are to be those of a run that was never stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.fingerprints import local
from rlvr_core.builtin.invariants.moments import fresh_groups

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import GroupsScored, RunStarted
    from rlvr_core.builtin.invariants.check import Trainer
    from rlvr_core.builtin.invariants.moments import TokenScores

FIRST, EVERY = 16, 16
"""Steps of a process that are looked at: the first ones, and then every so many."""

LARGE = 1 << 30
"""Bytes of trained weights from which on every ``EVERY``-th step is looked at, first ones too."""

SHARE = 0.25
"""Share of the machine's free memory that the copies of all processes may take."""


class EarlierPolicy(Invariant):
    """Lets invariants look at completions of the version that the step before began with.

    Args:
        trainer: The policy's trainer.
        scores: Scores of groups that these invariants share.
        checks: The invariants; what they measure stays here.
    """

    id, phase = "earlier", "before training"

    def __init__(self, trainer: Trainer, scores: TokenScores, checks: Sequence[Invariant]) -> None:
        self._trainer, self._scores, self._checks = trainer, scores, checks
        self._version: int | None = None
        self._kept: list[Tensor] = []
        self._steps = 0
        self._fits: bool | None = None

    def run_started(self, event: RunStarted) -> None:
        """See ``Invariant.run_started``."""
        for one in self._checks:
            one.run_started(event)

    def on_groups(self, event: GroupsScored) -> None:
        """Look at the completions whose weights are kept, and keep those that the step begins with.

        Raises:
            RunError: Of one of the invariants.
        """
        if self._version is not None:
            past = replace(event, version=self._version)
            if groups := fresh_groups(past):
                with self._in_place():
                    for one in self._checks:
                        one.on_groups(replace(past, groups=groups))
                self._scores.forget()
        self._keep(event.version)

    def share(self, view: StepView) -> object:
        """See ``Invariant.share``."""
        return [one.share(view) for one in self._checks]

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """See ``Invariant.judge``."""
        for one, mine in zip(self._checks, zip(*shares, strict=True), strict=True):
            one.judge(view, mine)

    def _keep(self, version: int) -> None:
        """Copy the weights of now, if the completions that they sample are looked at."""
        self._steps += 1
        self._version, kept, self._kept = None, self._kept, []
        now = self._tensors()
        if not self._due(now):
            return
        if [one.shape for one in kept] != [one.shape for one in now]:
            kept = [torch.empty_like(one, device="cpu") for one in now]
        for copy, one in zip(kept, now, strict=True):
            copy.copy_(one)
        self._version, self._kept = version, kept

    def _due(self, weights: Sequence[Tensor]) -> bool:
        size = sum(one.nbytes for one in weights)
        if self._fits is None:
            # one answer for all processes: each takes part in a pass
            ranks = self._trainer.ranks
            self._fits = all(ranks.gather(_fits(size * ranks.world)))
        often = self._steps <= FIRST and size < LARGE
        return self._fits and (often or self._steps % EVERY == 0)

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Let the trainer's model have the weights that are kept, and its own afterwards."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for kept, own in zip(self._kept, self._tensors(), strict=True):
            now = own.to("cpu", copy=True)  # one at a time: there may be no room for two copies
            own.copy_(kept)
            kept.copy_(now)

    def _tensors(self) -> list[Tensor]:
        """Return what this process holds of the trained weights."""
        trained = (one for one in self._trainer.model.parameters() if one.requires_grad)
        return [local(one.detach()) for one in trained]


def _fits(size: int) -> bool:
    import psutil

    return bool(size <= SHARE * psutil.virtual_memory().available)
