"""The engine has other weights than the trainer."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch

from tests.together.chaos.changes import ENGINE, loaded, second
from tests.together.chaos.registry import BOTH, TWO, Patch, fault

LOAD = f"{ENGINE}:TransformersEngine.load_weights"


@fault("sync", "parity", backends=BOTH)
def sync_does_nothing(patch: Patch) -> None:
    """The engine keeps the weights that it began with."""
    loaded(patch, lambda n, name, old, new: old)


@fault("sync", "parity", backends=BOTH, shape="small lr")
def sync_does_nothing_at_a_small_rate(patch: Patch) -> None:
    """No sync arrives, in a run whose learning rate is so small that log-probs hardly show it."""
    loaded(patch, lambda n, name, old, new: old)


@fault("sync", "parity", backends=BOTH)
def sync_without_one_layer(patch: Patch) -> None:
    """The weights of layer 1 never arrive."""
    loaded(patch, lambda n, name, old, new: old if ".layers.1." in name else new)


@fault("sync", "parity", backends=BOTH)
def weights_slightly_too_large(patch: Patch) -> None:
    """Weights arrive 1 % too large."""
    loaded(patch, lambda n, name, old, new: new * 1.01)


@fault("sync", "parity")
def sync_one_version_late(patch: Patch) -> None:
    """Each sync brings the weights of the one before."""
    held: dict[str, Any] = {}

    def late(n: int, name: str, old: Any, new: Any) -> Any:
        before = held.get(name, old)
        held[name] = new.clone()
        return before

    loaded(patch, late)


@fault("sync", "parity", backends=BOTH)
def two_tensors_swapped(patch: Patch) -> None:
    """Two projections of the same shape arrive in each other's place."""
    seen: dict[str, Any] = {}

    def swap(n: int, name: str, old: Any, new: Any) -> Any:
        seen[name] = new.clone()
        if name.endswith("layers.1.mlp.up_proj.weight"):
            return seen.get(name.replace("up_proj", "gate_proj"), new)
        return new

    loaded(patch, swap)


@fault("sync", "parity", shape="lora")
def engine_adapter_without_its_scale(patch: Patch) -> None:
    """The engine adds the adapter's product without its factor alpha / rank."""

    def make(original: Any) -> Any:
        @contextlib.contextmanager
        def inference(engine: Any) -> Iterator[None]:
            layers = [m for m in engine._model.modules() if hasattr(m, "lora_A")]
            scales = [dict(layer.scaling) for layer in layers]
            for layer in layers:
                layer.scaling.update(dict.fromkeys(layer.scaling, 1.0))
            try:
                with original(engine):
                    yield
            finally:
                for layer, scale in zip(layers, scales, strict=True):
                    layer.scaling.update(scale)

        return inference

    patch.wrap(f"{ENGINE}:TransformersEngine._inference", make)


@fault("kl", "sync", "parity", "updates", shape="lora")
def adapter_merged_at_a_sync_and_never_taken_out(patch: Patch) -> None:
    """Each sync merges the adapter into the trainer's frozen weights, and leaves it there."""

    @torch.no_grad()
    def merge(model: Any) -> None:
        for layer in model.modules():
            if hasattr(layer, "lora_A") and hasattr(layer, "base_layer"):
                weight = layer.base_layer.weight
                for name in layer.lora_A:
                    delta = layer.lora_B[name].weight @ layer.lora_A[name].weight
                    weight.data.add_((layer.scaling[name] * delta).to(weight.dtype))

    def make(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            merge(source.module)
            original(engine, version, source)

        return load

    patch.wrap(LOAD, make)


@fault("sync", "parity", backends=TWO)
def engine_of_the_second_process_is_never_synced(patch: Patch) -> None:
    """New weights reach the engine of the first process alone."""
    first: list[Any] = []

    def make(original: Any) -> Any:
        def load(engine: Any, version: int, source: Any) -> None:
            if second() and not first:
                first.append(copy.deepcopy(engine._model))
            original(engine, version, source)
            if second():
                engine._model = first[0]

        return load

    patch.wrap(LOAD, make)
