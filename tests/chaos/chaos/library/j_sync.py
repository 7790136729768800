"""The engine has other weights than the trainer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from chaos.registry import EVERYWHERE, Patch, fault

Change = Callable[[int, str, Any, Any], Any]
"""(number of the sync, name, old tensor, new tensor) -> the tensor that the engine has after."""


def loaded(patch: Patch, change: Change) -> None:
    """Change what an engine loads, whichever engine it is.

    The engine in process gets weights of its own, copied at each sync.
    """
    _in_process(patch, change)
    _child(patch, change)
    _vllm(patch, change)


def _in_process(patch: Patch, change: Change) -> None:
    import rlvr_core.engines.transformers as module

    start, load = module.TransformersEngine.start, module.TransformersEngine.load_weights

    def started(self: Any, context: Any) -> None:
        start(self, context)
        if self.__dict__.get("_in_child") or context.model is None:
            return
        own = copy.deepcopy(context.model).requires_grad_(False)
        self._model, self._trainer, self._syncs = own, context.model, 0

    @torch.no_grad()
    def load_weights(self: Any, version: int, source: Any) -> None:
        if getattr(self, "_trainer", None) is None or source.module is not self._trainer:
            load(self, version, source)
            return
        patch.hit()
        self._syncs += 1
        own = dict(self._model.named_parameters())
        for name, tensor in source.module.named_parameters():
            own[name].copy_(change(self._syncs, name, own[name].clone(), tensor.detach()))
        self._version = version

    module.TransformersEngine.start = started
    module.TransformersEngine.load_weights = load_weights


def _child(patch: Patch, change: Change) -> None:
    from rlvr_core.builtin.asynchronous.shared_weights import ReceivedSource

    count = [0]

    @torch.no_grad()
    def refresh(self: Any) -> None:
        patch.hit()
        count[0] += 1
        own = dict(self.module.named_parameters())
        for name, tensor in self.tensors():
            own[name].copy_(change(count[0], name, own[name].clone(), tensor))

    ReceivedSource.refresh = refresh


def _vllm(patch: Patch, change: Change) -> None:
    from rlvr_core.builtin.vllm.engine import VllmEngine
    from rlvr_core.engines.sync import ModuleSource

    start, tensors = VllmEngine.start, ModuleSource.tensors
    old: dict[str, Any] = {}
    count = [0]

    def started(self: Any, context: Any) -> None:
        old.update((n, p.detach().clone()) for n, p in context.model.named_parameters())
        start(self, context)

    def sent(self: Any) -> Iterator[tuple[str, Any]]:
        if not old:
            yield from tensors(self)
            return
        patch.hit()
        count[0] += 1
        for name, tensor in tensors(self):
            old[name] = change(count[0], name, old[name], tensor).clone()
            yield name, old[name]

    VllmEngine.start = started
    ModuleSource.tensors = sent


@fault("sync", backends=EVERYWHERE)
def sync_does_nothing(patch: Patch) -> None:
    """The engine keeps the weights that it began with."""
    loaded(patch, lambda n, name, old, new: old)


@fault("sync", backends=EVERYWHERE)
def sync_stops_after_third(patch: Patch) -> None:
    """The first three syncs arrive, the others do not."""
    loaded(patch, lambda n, name, old, new: new if n <= 3 else old)


@fault("sync", backends=EVERYWHERE)
def sync_every_other(patch: Patch) -> None:
    """Every other sync does not arrive."""
    loaded(patch, lambda n, name, old, new: new if n % 2 else old)


@fault("sync", backends=EVERYWHERE)
def sync_without_one_norm(patch: Patch) -> None:
    """One norm's weight never arrives."""
    loaded(
        patch, lambda n, name, old, new: old if name.endswith("1.input_layernorm.weight") else new
    )


@fault("sync", backends=EVERYWHERE)
def sync_without_one_layer(patch: Patch) -> None:
    """The weights of layer 1 never arrive."""
    loaded(patch, lambda n, name, old, new: old if ".layers.1." in name else new)


@fault("sync", backends=EVERYWHERE)
def sync_without_embedding(patch: Patch) -> None:
    """The embedding, which is the head too, never arrives."""
    loaded(patch, lambda n, name, old, new: old if "embed" in name else new)


@fault("sync", backends=EVERYWHERE)
def sync_slightly_scaled(patch: Patch) -> None:
    """Weights arrive 1 % too large."""
    loaded(patch, lambda n, name, old, new: new * 1.01)


@fault("sync", "precision", "dtype", backends=EVERYWHERE)
def sync_in_four_bits(patch: Patch) -> None:
    """Weights arrive rounded to four bits."""

    def coarse(n: int, name: str, old: Any, new: Any) -> Any:
        scale = new.abs().amax().clamp(min=1e-9) / 7
        return (new / scale).round() * scale

    loaded(patch, coarse)


@fault("sync", backends=EVERYWHERE)
def sync_halfway(patch: Patch) -> None:
    """Weights arrive as the mean of old and new."""
    loaded(patch, lambda n, name, old, new: (old + new) / 2)


@fault("sync", backends=("in process", "vllm"))
def sync_one_version_late(patch: Patch) -> None:
    """Each sync brings the weights of the one before."""
    held: dict[str, Any] = {}

    def late(n: int, name: str, old: Any, new: Any) -> Any:
        before = held.get(name, old)
        held[name] = new.clone()
        return before

    loaded(patch, late)


@fault("sync", backends=EVERYWHERE, shape="small lr")
def sync_does_nothing_at_small_lr(patch: Patch) -> None:
    """No sync arrives, in a run whose learning rate is so small that log-probs hardly show it."""
    loaded(patch, lambda n, name, old, new: old)


@fault("sync", backends=EVERYWHERE, shape="small lr")
def sync_without_one_layer_at_small_lr(patch: Patch) -> None:
    """Layer 1 never arrives, at the small learning rate."""
    loaded(patch, lambda n, name, old, new: old if ".layers.1." in name else new)


@fault("sync", backends=("in process", "child"))
def sync_swaps_two_tensors(patch: Patch) -> None:
    """Two projections of the same shape arrive in each other's place."""
    seen: dict[str, Any] = {}

    def swap(n: int, name: str, old: Any, new: Any) -> Any:
        seen[name] = new.clone()
        if name.endswith("layers.1.mlp.up_proj.weight"):
            return seen.get(name.replace("up_proj", "gate_proj"), new)
        return new

    loaded(patch, swap)


@fault("sync", "version")
def version_label_stays(patch: Patch) -> None:
    """The engine labels everything it samples with version 0."""
    from dataclasses import replace

    def make(original: Any) -> Any:
        def completion(prompt_ids: Any, generation: Any) -> Any:
            return original(prompt_ids, replace(generation, version=0))

        return completion

    patch.wrap("rlvr_core.rollout.collect:_completion", make)
