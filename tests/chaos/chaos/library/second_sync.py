"""Second set, written later and without reading the guards: the engine's weights."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import Patch, later

ENGINE = "rlvr_core.engines.transformers:TransformersEngine"
Tensors = dict[str, Any]


def own_weights(patch: Patch, change: Callable[[Tensors, Tensors, int], None]) -> None:
    """Give the engine weights of its own, which ``change(own, new, version)`` brings up to date."""

    def begin(original: Any) -> Any:
        def start(engine: Any, context: Any) -> None:
            original(engine, context)
            engine._model = engine._own = copy.deepcopy(context.model)

        return start

    def load(original: Any) -> Any:
        def load_weights(engine: Any, version: int, source: Any) -> None:
            original(engine, version, source)
            with torch.no_grad():
                own, new = (dict(m.named_parameters()) for m in (engine._own, source.module))
                change(own, new, version)
            engine._model = engine._own

        return load_weights

    patch.wrap(f"{ENGINE}.start", begin)
    patch.wrap(f"{ENGINE}.load_weights", load)


@later("sync", "average")
def engine_averages_what_it_gets(patch: Patch) -> None:
    """The engine takes the mean of its weights and the new ones."""

    def change(own: Tensors, new: Tensors, version: int) -> None:
        for name, tensor in own.items():
            tensor.lerp_(new[name], 0.5)

    own_weights(patch, change)


@later("sync")
def small_changes_never_sent(patch: Patch) -> None:
    """A sync of differences leaves out every entry that has moved by less than 0.003."""

    def change(own: Tensors, new: Tensors, version: int) -> None:
        for name, tensor in own.items():
            far = (new[name] - tensor).abs() >= 3e-3
            tensor.copy_(torch.where(far, new[name], tensor))

    own_weights(patch, change)


@later("sync", "transpos")
def one_square_matrix_transposed(patch: Patch) -> None:
    """One square matrix arrives transposed."""

    def change(own: Tensors, new: Tensors, version: int) -> None:
        for name, tensor in own.items():
            turned = name.endswith("1.self_attn.o_proj.weight")
            tensor.copy_(new[name].T if turned else new[name])

    own_weights(patch, change)


@later("sync", "layer")
def last_layer_put_into_both(patch: Patch) -> None:
    """The names of layers are taken apart wrongly: both layers get the weights of the last."""

    def change(own: Tensors, new: Tensors, version: int) -> None:
        for name, tensor in own.items():
            tensor.copy_(new[name.replace("layers.0.", "layers.1.")])

    own_weights(patch, change)


@later("sync", "empty", "zero")
def new_weights_lose_one_row(patch: Patch) -> None:
    """The last row of every matrix is lost on the way, and stays as it was."""

    def change(own: Tensors, new: Tensors, version: int) -> None:
        for name, tensor in own.items():
            tensor[:-1].copy_(new[name][:-1])

    own_weights(patch, change)


@later("sync", "lora", "adapter", shape="lora")
def adapter_left_out(patch: Patch) -> None:
    """The engine samples from the weights below the adapter, without it."""

    def make(original: Any) -> Any:
        @contextlib.contextmanager
        def inference(engine: Any) -> Iterator[None]:
            layers = [m for m in engine._model.modules() if hasattr(m, "lora_A")]
            scales = [dict(layer.scaling) for layer in layers]
            for layer in layers:
                layer.scaling.update(dict.fromkeys(layer.scaling, 0.0))
            try:
                with original(engine):
                    yield
            finally:
                for layer, scale in zip(layers, scales, strict=True):
                    layer.scaling.update(scale)

        return inference

    patch.wrap(f"{ENGINE}._inference", make)


@later("sync", "cache", "parity", shape="few problems")
def prompt_cache_outlives_the_sync(patch: Patch) -> None:
    """Keys and values of prompts are those of the weights before the last sync."""

    def load(original: Any) -> Any:
        def load_weights(engine: Any, version: int, source: Any) -> None:
            original(engine, version, source)
            engine._before = getattr(engine, "_now", None) or copy.deepcopy(source.module)
            engine._now = copy.deepcopy(source.module)

        return load_weights

    def after(decoder: Any, engine: Any) -> Any:
        old = getattr(engine, "_before", None)
        if old is None:
            return decoder
        prefill = decoder.prefill

        def stale(*args: Any) -> Any:
            if hasattr(decoder, "_lean"):
                new, decoder._lean = decoder._lean, replace(decoder._lean, model=old)
                decoder.renew()
                logits = prefill(*args)
                decoder._lean = new
                decoder.renew()
                return logits
            new, decoder._model = decoder._model, old
            logits = prefill(*args)
            decoder._model = new
            return logits

        decoder.prefill = stale
        return decoder

    patch.wrap(f"{ENGINE}.load_weights", load)
    patch.after(f"{ENGINE}._decoder", after)
