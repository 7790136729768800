"""Third set, written without reading the guards: resuming."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from chaos.registry import Patch, third


def _loaded(patch: Patch, change: Callable[..., None]) -> None:
    """Change what a checkpoint gives: ``change(state, folder, model, optimizer, reference)``."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, model: Any, optimizer: Any, reference: Any = None) -> Any:
            state = original(folder, model=model, optimizer=optimizer, reference=reference)
            with torch.no_grad():
                change(state, folder, model, optimizer, reference)
            return state

        return load

    patch.wrap("rlvr_core.step.checkpoint:load", make)


@third("resume", "moment", "optimizer", resume=True)
def resume_with_rounded_moments(patch: Patch) -> None:
    """The optimizer's moments come back rounded to half precision."""

    def change(state: Any, folder: Any, model: Any, optimizer: Any, reference: Any) -> None:
        for moments in optimizer.inner.state.values():
            for key, value in moments.items():
                if isinstance(value, torch.Tensor) and value.ndim:
                    moments[key] = value.bfloat16().to(value.dtype)

    _loaded(patch, change)


@third("resume", "step", resume=True)
def resume_one_step_ahead(patch: Patch) -> None:
    """The run goes on one step later than where it stopped."""
    _loaded(patch, lambda state, *_: state.update(step=state["step"] + 1))


@third("resume", "adapter", shape="lora", resume=True)
def resume_with_one_adapter_at_the_start(patch: Patch) -> None:
    """One adapter is as it was before the first step; all others are as they were saved."""

    def change(state: Any, folder: Any, model: Any, *_: Any) -> None:
        next(one for name, one in model.named_parameters() if "lora_B" in name).zero_()

    _loaded(patch, change)


@third("resume", "replay", "group", "read", shape="groups read thrice", resume=True)
def resume_with_the_replay_lost(patch: Patch) -> None:
    """Groups that were to be trained on again are forgotten."""
    patch.wrap(
        "rlvr_core.builtin.replay.buffer:ReplayBuffer.load_state_dict",
        lambda original: lambda buffer, state, problems: original(buffer, [], problems),
    )


@third("resume", "weight", "schedule", "reward", shape="shaping reward that fades", resume=True)
def resume_with_the_schedule_of_rewards_at_the_start(patch: Patch) -> None:
    """The weight of the second reward begins to fade again from the start."""
    patch.wrap(
        "rlvr_core.verify.reward:Term.weight_at",
        lambda original: lambda term, step: original(term, max(0, step - 4)),
    )


@third("resume", "reference", "kl", shape="ema reference", resume=True)
def resume_with_the_moving_reference_at_the_policy(patch: Patch) -> None:
    """The moving reference is the policy of where the run stopped."""

    def change(state: Any, folder: Any, model: Any, optimizer: Any, reference: Any) -> None:
        for own, new in zip(reference.model.parameters(), model.parameters(), strict=True):
            own.copy_(new)

    _loaded(patch, change)


@third("resume", "layer", "weights", resume=True)
def resume_with_one_layer_of_the_checkpoint_before(patch: Patch) -> None:
    """One layer comes from the checkpoint before the newest one."""

    def change(state: Any, folder: Any, model: Any, *_: Any) -> None:
        from safetensors.torch import load_file

        older = sorted(folder.parent.glob("step*"))[-2]
        master = older / "trainer" / "master.safetensors"
        saved = load_file(master if master.is_file() else older / "model.safetensors")
        for name, one in model.named_parameters():
            if "layers.1." in name:
                one.copy_(saved[name])

    _loaded(patch, change)
