"""The numbers of a step on a GPU; tries the largest micro-batch before the first rollout.

Seconds are of events among the GPU's own work. Nothing of it is there in a run on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric, RlvrError, StepObserver
from rlvr_core.api.services import RunObserver, elapsed, load_host, moment
from rlvr_core.builtin.gpu.rehearsal import GIB, check, tokens_of

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.api import (
        Engine,
        Group,
        GroupsScored,
        LossComputed,
        RunStarted,
        StepFinished,
        WeightSource,
    )
    from rlvr_core.api.services import Prepared

_GPU = torch.device("cuda")


class GpuGuard(RunObserver, StepObserver):
    """Measures the steps of one process, and passes on all that it sees to another observer.

    Args:
        trainer: The policy's trainer.
        name: The GPU's name; without public figures of it there is no MFU.
    """

    reports = (
        Metric("gpu/train_seconds", "Seconds of the GPU in the training step of process 0.", "s"),
        Metric("gpu/train_tokens_per_second", "Tokens that it trained on, by these.", "tokens/s"),
        Metric("gpu/mfu", "Six FLOPs a parameter and such token, of its peak.", "share"),
        Metric("gpu/peak_memory", "Most memory of tensors while it trained.", "GiB"),
    )

    def __init__(self, trainer: Any, name: str) -> None:
        self._trainer, self._inner = trainer, trainer.observer
        self._parameters = sum(one.numel() for one in trainer.model.parameters())
        card = load_host().service("core/card")(name)
        half = trainer.precision.compute != torch.float32
        self._peak = None if card is None else card.peak if half else card.wide
        self._begun: Any = None
        self._tokens = 0
        self._rehearsal: Any = None

    def rehearse_with(self, prepared: Prepared, engine: Engine, events: RunObserver) -> None:
        """Try the largest micro-batch when the run begins, while the engine sleeps."""
        self._rehearsal = (prepared, engine, events)

    def run_started(self, event: RunStarted) -> None:
        """The weights are loaded; the first rollout comes next.

        Raises:
            MachineError: If the largest micro-batch does not fit.
        """
        if self._rehearsal is None:
            return
        prepared, engine, events = self._rehearsal
        config = prepared.config
        events.phase("trying the largest micro-batch")
        prompt = min(prepared.longest_prompt, config.data.max_prompt_tokens)
        if takes_turns := config.train.max_staleness == 0:
            engine.sleep()
        try:
            said = check(self._trainer, config, prompt)
        except RlvrError:
            raise
        except Exception as error:  # a component that knows the run's own problems alone
            if self._trainer.ranks.world > 1 and isinstance(error, RuntimeError):
                raise  # another process has gone, and says why
            what = f"{type(error).__name__}: {error}"
            said = f"warning: the largest micro-batch could not be tried: {what}"
        events.message(said)
        if takes_turns:
            engine.wake()

    # -- of a guard ------------------------------------------------------------------------------

    def on_groups(self, event: GroupsScored) -> None:
        """Nothing to see."""

    def on_step(self, event: StepFinished) -> None:
        """Nothing to see."""

    # -- of an observer of steps -----------------------------------------------------------------

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """See ``StepObserver``."""
        torch.cuda.reset_peak_memory_stats()
        self._tokens, self._begun = 0, moment(_GPU)
        self._inner.step_begins(groups, step, version)

    def loss_computed(self, event: LossComputed) -> None:
        """See ``StepObserver``."""
        self._tokens += tokens_of(event.micro_batch)
        self._inner.loss_computed(event)

    def update_begins(self) -> None:
        """See ``StepObserver``."""
        self._inner.update_begins()

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """See ``StepObserver``."""
        self._inner.update_ended(grad_norm, applied=applied)

    def weights_loaded(self, version: int, source: WeightSource) -> None:
        """See ``StepObserver``."""
        self._inner.weights_loaded(version, source)

    def checkpoint_written(self, folder: Path) -> None:
        """See ``StepObserver``."""
        self._inner.checkpoint_written(folder)

    def step_ends(self) -> Mapping[str, float]:
        """Return the numbers of the step; what has no meaning is left out."""
        seconds = elapsed(self._begun, moment(_GPU))
        found = {
            "gpu/train_seconds": seconds,
            "gpu/peak_memory": torch.cuda.max_memory_allocated() / GIB,
        }
        if self._tokens and seconds > 0:
            rate = self._tokens / seconds
            found["gpu/train_tokens_per_second"] = rate
            if self._peak is not None:
                found["gpu/mfu"] = 6 * self._parameters * rate / self._peak
        return {**self._inner.step_ends(), **found}


def of_run(prepared: Prepared, trainer: Any, engine: Engine, events: RunObserver) -> GpuGuard:
    """The service ``core/gpu``: measure the trainer's steps, and say how it computes them.

    For ``guards.memory`` the largest is rehearsed.

    Args:
        prepared: The run.
        trainer: The policy's trainer; its observer is told all that it was told before.
        engine: What generates; it sleeps meanwhile.
        events: Is told how it went.
    """
    way = load_host().service("core/attention-way")
    chosen = way(trainer.model, prepared.config.model.forward_paths, trainer.precision.compute)
    prepared.data_reports.append(chosen)  # run.json is written later
    for line in chosen.lines:
        events.message(line)
    guard = GpuGuard(trainer, torch.cuda.get_device_properties(trainer.model.device).name)
    if prepared.config.guards.memory:
        guard.rehearse_with(prepared, engine, events)
    return guard
