"""What is written is not what was."""

from __future__ import annotations

from typing import Any

import torch

from chaos.registry import Patch, fault

SAVE = "rlvr_core.step.checkpoint"


@fault("resume", "weights", "saved", "hash", "fingerprint", shape="many checkpoints")
def checkpoint_has_old_weights(patch: Patch) -> None:
    """Checkpoints hold the weights the run began with."""
    kept: dict[str, Any] = {}

    def old(tensors: Any, model: Any, *_: Any) -> Any:
        for name, tensor in tensors.weights.items():
            kept.setdefault(name, tensor.clone())
        tensors.weights.update(kept)
        return tensors

    def make(original: Any) -> Any:
        def update(self: Any, *args: Any) -> Any:
            if not kept:
                kept.update((n, p.detach().clone()) for n, p in self.model.named_parameters())
            return original(self, *args)

        return update

    patch.wrap("rlvr_core.step.step:PolicyTrainer.update", make)
    patch.after(f"{SAVE}:collect", old)


@fault("resume", "weights", "saved", "hash", "fingerprint", shape="many checkpoints")
def checkpoint_has_a_broken_tensor(patch: Patch) -> None:
    """One tensor of each checkpoint is zeros."""

    def broken(tensors: Any, *_: Any) -> Any:
        name = next(n for n in tensors.weights if "down_proj" in n)
        tensors.weights[name] = torch.zeros_like(tensors.weights[name])
        return tensors

    patch.after(f"{SAVE}:collect", broken)


@fault("resume", "ledger", "account", "conserv", "drawn", "completion")
def completions_lost_before_the_ledger(patch: Patch) -> None:
    """The last group of each step vanishes between generation and training."""

    def lose(rollouts: Any, *_: Any) -> Any:
        rollouts.kept = rollouts.kept[:-1]
        return rollouts

    patch.after("rlvr_core.rollout.source:collect", lose)


@fault("resume", "ledger", "account", "conserv", "drawn", "completion", "twice")
def group_trained_in_two_steps(patch: Patch) -> None:
    """The first group of each step is taken again in the next one in the place of its last."""
    before: list[Any] = []

    def again(rollouts: Any, *_: Any) -> Any:
        first = rollouts.kept[0]
        if before:
            rollouts.kept = [*rollouts.kept[:-1], before[0]]
        before[:] = [first]
        return rollouts

    patch.after("rlvr_core.rollout.source:collect", again)
