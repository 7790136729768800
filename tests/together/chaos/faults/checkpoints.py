"""A checkpoint is not what was, or a run that is resumed has lost something of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from tests.together.chaos.changes import ENGINE, OPTIM
from tests.together.chaos.registry import Patch, fault

CHECKPOINT = "rlvr_core.step.checkpoint"
SAMPLER = "rlvr_core.rollout.samplers.base:SamplerBase.load_state_dict"


def _moments(patch: Patch, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the optimizer's state on its way back."""

    def make(original: Any) -> Any:
        return lambda self, tensors: original(self, change(tensors))

    patch.wrap(f"{OPTIM}:Optimizer.load_state_tensors", make)


def _put_back(patch: Patch, which: Callable[[str], bool]) -> None:
    """Let some tensors of a resumed run be those it was started with."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def load(folder: Any, *, model: Any, **options: Any) -> Any:
            before = {n: p.detach().clone() for n, p in model.named_parameters() if which(n)}
            state = original(folder, model=model, **options)
            for name, parameter in model.named_parameters():
                if name in before:
                    parameter.copy_(before[name])
            return state

        return load

    patch.wrap(f"{CHECKPOINT}:load", make)


@fault("resume", resume=True)
def resumed_without_moments(patch: Patch) -> None:
    """The optimizer's moments are lost."""
    _moments(patch, lambda tensors: {})


@fault("resume", resume=True)
def resumed_without_one_tensor(patch: Patch) -> None:
    """One matrix of a resumed run stays as it was at the start."""
    _put_back(patch, lambda name: name.endswith("0.mlp.up_proj.weight"))


@fault("resume", resume=True)
def resumed_with_the_sampler_at_its_start(patch: Patch) -> None:
    """The sampler begins again with its first problem."""
    patch.wrap(SAMPLER, lambda original: lambda self, state: None)


@fault("resume", "kl", resume=True)
def resumed_with_the_policy_as_reference(patch: Patch) -> None:
    """The reference is the policy of the checkpoint, not the model the run began with."""

    @torch.no_grad()
    def moved(_: Any, session: Any, *more: Any) -> None:
        trainer = session.trainer
        pairs = zip(trainer.reference.model.parameters(), trainer.model.parameters(), strict=True)
        for held, new in pairs:
            held.copy_(new)

    patch.after("rlvr_core.run.resumption.resumption:restore", moved)


@fault("resume", "kl", shape="moving reference", resume=True)
def resumed_with_a_moving_reference_at_its_start(patch: Patch) -> None:
    """A reference that had moved is the model the run began with."""

    def make(original: Any) -> Any:
        def put_back(saved: Any, ours: Any, what: str, folder: Any) -> None:
            if what != "reference":
                original(saved, ours, what, folder)

        return put_back

    patch.wrap(f"{CHECKPOINT}:_put_back", make)


@fault("resume", "completions", "seeds", resume=True)
def resumed_with_version_zero(patch: Patch) -> None:
    """The policy version begins again at 0: seeds are those of the first steps."""

    def changed(state: Any, *_: Any) -> Any:
        state.update(version=0)
        return state

    patch.after(f"{CHECKPOINT}:load", changed)


@fault("updates", "resume", "optimizer", shape="cosine", resume=True)
def resumed_with_the_schedule_at_its_start(patch: Patch) -> None:
    """The schedule of the learning rate begins again."""

    def make(original: Any) -> Any:
        return lambda train, schedule, step: original(train, schedule, max(0, step - 4))

    patch.wrap(f"{OPTIM}:learning_rate", make)


@fault("parity", "sync", resume=True)
def resumed_with_the_engine_at_its_start(patch: Patch) -> None:
    """After the resumption the engine has the weights the run began with, till the first sync."""
    first: list[Any] = []

    def started(_: Any, engine: Any, context: Any) -> None:
        first.append(copy.deepcopy(context.model))

    def loaded(_: Any, engine: Any, *more: Any) -> None:
        if first:
            engine._model = first.pop()

    patch.after(f"{ENGINE}:TransformersEngine.start", started)
    patch.after(f"{ENGINE}:TransformersEngine.load_weights", loaded)


@fault("resume", shape="many checkpoints")
def checkpoint_has_old_weights(patch: Patch) -> None:
    """Checkpoints hold the weights the run began with."""
    kept: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def update(self: Any, *args: Any) -> Any:
            if not kept:
                kept.update((n, p.detach().clone()) for n, p in self.model.named_parameters())
            return original(self, *args)

        return update

    def old(tensors: Any, *_: Any) -> Any:
        tensors.weights.update(kept)
        return tensors

    patch.wrap("rlvr_core.step.step:PolicyTrainer.update", make)
    patch.after(f"{CHECKPOINT}:collect", old)


@fault("resume", shape="many checkpoints")
def checkpoint_has_a_broken_tensor(patch: Patch) -> None:
    """One tensor of each checkpoint is zeros."""

    def broken(tensors: Any, *_: Any) -> Any:
        name = next(n for n in tensors.weights if "down_proj" in n)
        tensors.weights[name] = torch.zeros_like(tensors.weights[name])
        return tensors

    patch.after(f"{CHECKPOINT}:collect", broken)
