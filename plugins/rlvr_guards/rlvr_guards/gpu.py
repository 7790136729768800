"""The numbers of a step on a GPU; tries the largest micro-batch before the first rollout.

Seconds are of events among the GPU's own work. Nothing of it is there in a run on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import BaseGuard, ComponentConfig, Metric, RlvrError
from rlvr_core.step.timing import elapsed, moment

if TYPE_CHECKING:
    from rlvr_core.api import Group, GuardContext, LossComputed, RunStarted

_GPU = torch.device("cuda")


class GpuGuard(BaseGuard):
    """Measures the steps of one process on a GPU; elsewhere it does nothing."""

    name = "guards/gpu"
    reports = (
        Metric("gpu/train_seconds", "Seconds of the GPU in the training step of process 0.", "s"),
        Metric("gpu/train_tokens_per_second", "Tokens that it trained on, by these.", "tokens/s"),
        Metric("gpu/mfu", "Six FLOPs a parameter and such token, of its peak.", "share"),
        Metric("gpu/peak_memory", "Most memory of tensors while it trained.", "GiB"),
    )

    class Config(ComponentConfig):
        """Options of ``guards/gpu``."""

        memory: bool = True
        """Try the largest micro-batch that the run may have before the first rollout."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._memory = config.memory
        self._on_gpu = False
        self._begun: Any = None
        self._tokens = 0

    def bind(self, context: GuardContext) -> None:
        """Say how the trainer computes on its GPU; without one there is nothing to measure."""
        from rlvr_core.packing.way import way_of_run
        from rlvr_core.parallel.cards import peak_of

        super().bind(context)
        trainer = context.trainer
        self._on_gpu = trainer.model.device.type == "cuda"
        if not self._on_gpu:
            return
        forward_paths = context.config.model.forward_paths
        chosen = way_of_run(trainer.model, forward_paths, trainer.precision.compute)
        context.record(chosen)  # run.json is written later
        for line in chosen.lines:
            context.say(line)
        name = torch.cuda.get_device_properties(trainer.model.device).name
        self._peak = peak_of(name, half=trainer.precision.compute != torch.float32)
        self._parameters = sum(tensor.numel() for tensor in trainer.model.parameters())

    def run_started(self, event: RunStarted) -> None:
        """Try the largest micro-batch while the engine sleeps: the weights are loaded.

        Raises:
            MachineError: If it does not fit.
        """
        if not (self._on_gpu and self._memory):
            return
        from rlvr_guards.rehearsal import check

        context, trainer = self.context, self.context.trainer
        config = context.config
        context.phase("trying the largest micro-batch")
        prompt = min(context.longest_prompt, config.data.max_prompt_tokens)
        if takes_turns := config.train.max_staleness == 0:
            context.engine.sleep()
        try:
            line = check(trainer, config, prompt)
        except RlvrError:
            raise
        except Exception as error:  # a component that knows the run's own problems alone
            if trainer.ranks.world > 1 and isinstance(error, RuntimeError):
                raise  # another process has gone, and says why
            what = f"{type(error).__name__}: {error}"
            line = f"warning: the largest micro-batch could not be tried: {what}"
        context.say(line)
        if takes_turns:
            context.engine.wake()

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """See ``StepObserver``."""
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self._tokens, self._begun = 0, moment(_GPU)

    def loss_computed(self, event: LossComputed) -> None:
        """See ``StepObserver``."""
        if self._on_gpu:
            from rlvr_guards.rehearsal import tokens_of

            self._tokens += tokens_of(event.micro_batch)

    def step_ends(self) -> Mapping[str, float]:
        """Return the numbers of the step; what has no meaning is left out."""
        if not self._on_gpu:
            return {}
        from rlvr_guards.rehearsal import GIB

        seconds = elapsed(self._begun, moment(_GPU))
        numbers = {
            "gpu/train_seconds": seconds,
            "gpu/peak_memory": torch.cuda.max_memory_allocated() / GIB,
        }
        if self._tokens and seconds > 0:
            rate = self._tokens / seconds
            numbers["gpu/train_tokens_per_second"] = rate
            if self._peak is not None:
                numbers["gpu/mfu"] = 6 * self._parameters * rate / self._peak
        return numbers
