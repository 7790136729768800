"""A healthy run of four steps is resumed, and something of it is lost."""

from __future__ import annotations

from typing import Any

import torch

from chaos.registry import Patch, fault

CHECKPOINT = "rlvr_core.step.checkpoint"
RESTORE = "rlvr_core.run.checkpointing"


def state(patch: Patch, change: Any) -> None:
    """Change what the checkpoint says of the run."""

    def changed(found: Any, *_: Any) -> Any:
        change(found)
        return found

    patch.after(f"{CHECKPOINT}:load", changed)


def moments(patch: Patch, change: Any) -> None:
    """Change the optimizer's state on its way back."""

    def make(original: Any) -> Any:
        return lambda self, tensors: original(self, change(tensors))

    patch.wrap("rlvr_core.step.optim:Optimizer.load_state_tensors", make)


@fault("resume", "optimizer", "moment", resume=True)
def resume_without_moments(patch: Patch) -> None:
    """The optimizer's moments are lost."""
    moments(patch, lambda tensors: {})


@fault("resume", "optimizer", "moment", resume=True)
def resume_with_half_of_the_moments(patch: Patch) -> None:
    """The optimizer's moments of every other tensor are lost."""

    def half(tensors: Any) -> Any:
        names = sorted({name.rpartition("|")[0] for name in tensors})[::2]
        return {name: t for name, t in tensors.items() if name.rpartition("|")[0] in names}

    moments(patch, half)


@fault("resume", "optimizer", "moment", resume=True)
def resume_with_zero_moments(patch: Patch) -> None:
    """The optimizer's moments come back as zeros."""
    moments(patch, lambda t: {n: torch.zeros_like(v) if v.ndim else v for n, v in t.items()})


@fault("resume", "optimizer", "moment", resume=True)
def resume_with_moments_of_other_tensors(patch: Patch) -> None:
    """Tensors of the same shape get each other's moments."""

    def swapped(tensors: Any) -> Any:
        out = dict(tensors)
        for name in tensors:
            other = name.replace(".layers.0.", ".layers.1.")
            if ".layers.0." in name:
                out[name], out[other] = tensors[other], tensors[name]
        return out

    moments(patch, swapped)


@fault("resume", "sampler", "problem", "draw", resume=True)
def resume_with_sampler_at_start(patch: Patch) -> None:
    """The sampler begins again with its first problem."""

    def make(original: Any) -> Any:
        return lambda self, state: None

    patch.wrap("rlvr_core.builtin.samplers.base:SamplerBase.load_state_dict", make)


@fault("resume", "sampler", "problem", "draw", resume=True)
def resume_with_sampler_a_step_back(patch: Patch) -> None:
    """The sampler repeats the problems of the last step."""

    def make(original: Any) -> Any:
        def load(self: Any, state: Any) -> None:
            original(self, state)
            for pool in self._pools:
                pool.position = max(0, pool.position - 8)

        return load

    patch.wrap("rlvr_core.builtin.samplers.base:SamplerBase.load_state_dict", make)


@fault("resume", "reference", r"\bkl\b", resume=True)
def resume_with_reference_moved(patch: Patch) -> None:
    """The reference is the policy of the checkpoint, not the model the run began with."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def restore(session: Any, folder: Any) -> None:
            original(session, folder)
            trainer = session.trainer
            for own, new in zip(
                trainer.reference.model.parameters(), trainer.model.parameters(), strict=True
            ):
                own.copy_(new)

        return restore

    patch.wrap("rlvr_core.builtin.resumption.resumption:restore", make)


@fault("resume", "reference", r"\bkl\b", shape="moving reference", resume=True)
def resume_with_moving_reference_at_start(patch: Patch) -> None:
    """A reference that had moved is the model the run began with."""

    def make(original: Any) -> Any:
        def put_back(saved: Any, ours: Any, what: str, folder: Any) -> None:
            if what != "reference":
                original(saved, ours, what, folder)

        return put_back

    patch.wrap("rlvr_core.step.checkpoint:_put_back", make)


@fault("resume", "weights", resume=True)
def resume_with_weights_of_the_start(patch: Patch) -> None:
    """The weights are those the run began with; all else is of the checkpoint."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def load(folder: Any, *, model: Any, **more: Any) -> Any:
            before = [p.detach().clone() for p in model.parameters()]
            found = original(folder, model=model, **more)
            for p, old in zip(model.parameters(), before, strict=True):
                p.copy_(old)
            return found

        return load

    patch.wrap(f"{CHECKPOINT}:load", make)


@fault("resume", "weights", "master", "round", "precision", resume=True, dtypes=("bfloat16",))
def resume_with_rounded_weights(patch: Patch) -> None:
    """The weights come from the rounded export, not from the float32 master."""
    from safetensors.torch import load_file

    patch.wrap(
        "rlvr_core.parallel.model_adapter:WholeModel.load",
        lambda original: lambda self, folder, model: load_file(folder / "model.safetensors"),
    )


@fault("resume", "version", resume=True)
def resume_with_version_zero(patch: Patch) -> None:
    """The policy version begins again at 0: seeds are those of the first steps."""
    state(patch, lambda found: found.update(version=0))


@fault("resume", "seed", resume=True)
def resume_with_another_seed(patch: Patch) -> None:
    """Completions are sampled with the seeds of another run."""

    def make(original: Any) -> Any:
        return lambda run_seed, *more: original(run_seed + 1, *more)

    patch.wrap("rlvr_core.rollout.collect:completion_seed", make)


@fault("resume", "learning rate", "schedule", "warm", shape="cosine", resume=True)
def resume_with_schedule_at_start(patch: Patch) -> None:
    """The schedule of the learning rate begins again."""

    def make(original: Any) -> Any:
        return lambda train, schedule, step: original(train, schedule, max(0, step - 4))

    patch.wrap("rlvr_core.step.optim:learning_rate", make)


@fault("resume", "weights", "engine", "sync", resume=True)
def resume_with_engine_at_start(patch: Patch) -> None:
    """After the resumption the engine has the weights the run began with, till the first sync."""
    import copy

    import rlvr_core.engines.transformers as module

    engine = module.TransformersEngine
    start, load = engine.start, engine.load_weights

    def started(self: Any, context: Any) -> None:
        start(self, context)
        self._first = copy.deepcopy(context.model)
        self._loads = 0

    def load_weights(self: Any, version: int, source: Any) -> None:
        load(self, version, source)
        self._loads += 1
        if self._loads == 1:
            self._model = self._first

    engine.start, engine.load_weights = started, load_weights
    patch.hit()


@fault("resume", "reference", r"\bkl\b", "model", resume=True)
def resume_with_reference_of_another_model(patch: Patch) -> None:
    """The reference is loaded from a model that has changed on the disk."""

    @torch.no_grad()
    def changed(model: Any, *_: Any) -> Any:
        torch.manual_seed(3)
        for p in model.parameters():
            p.add_(0.05 * p.std() * torch.randn_like(p))
        return model

    patch.after("rlvr_core.run.learner:load_reference", changed)
