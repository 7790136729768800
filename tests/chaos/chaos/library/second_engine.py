"""Second set, written later and without reading the guards: parity, sampler, seeds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import TRANSFORMERS, Patch, later

DECODE = "rlvr_core.engines.decode"
ENGINE = "rlvr_core.engines.transformers"
COLLECT = "rlvr_core.rollout.collect"
JOINED = "rlvr_core.builtin.packing.joined_attention"


# -- parity --------------------------------------------------------------------------------------


@later("parity", "temperature", shape="cool")
def temperature_applied_twice(patch: Patch) -> None:
    """The trainer divides its logits by the temperature twice, in every pass."""

    def make(original: Any) -> Any:
        return lambda model, batch, temperature, *more: original(
            model, batch, temperature**2, *more
        )

    patch.wrap("rlvr_core.step.forward:predict", make)


@later("parity", "dtype", "precision", backends=TRANSFORMERS, dtypes=("float32",))
def engine_logits_in_half_precision(patch: Patch) -> None:
    """The engine of a run in float32 rounds its logits to bfloat16 before it samples."""

    def make(original: Any) -> Any:
        return lambda logits_BV, *more: original(logits_BV.bfloat16().float(), *more)

    patch.wrap(f"{DECODE}:sample", make)


@later("parity", "position", dtypes=("float32",))
def training_positions_begin_again(patch: Patch) -> None:
    """In packed rows, positions of completions begin at 0 again, not behind the prompt."""

    def make(original: Any) -> Any:
        def packed(batch: Any) -> Any:
            ids_N, position_N = original(batch)
            own_N = batch.fed_places().nonzero(as_tuple=True)[1]
            n_prompts = len(position_N) - len(own_N)
            return ids_N, torch.cat([position_N[:n_prompts], own_N])

        return packed

    patch.wrap("rlvr_core.builtin.packing.packed:packed_tokens", make)


@later("parity", "pack", "attention")
def packed_rows_see_one_another(patch: Patch) -> None:
    """The attention of packed rows has lost its blocks: a row sees the rows before it."""

    def one(x: Any) -> Any:
        moved = x.transpose(0, 1)
        return moved.reshape(1, moved.shape[0], -1, *moved.shape[3:]).contiguous()

    def several(x: Any, rows: int) -> Any:
        moved = x[0].reshape(x.shape[1], rows, -1, *x.shape[3:])
        return moved.transpose(0, 1).contiguous()

    def make(original: Any) -> Any:
        def attend(*args: Any, **more: Any) -> Any:
            tensors, options = args[:-2], args[-2:]
            if not options[1]:
                return original(*args, **more)
            rows = tensors[0].shape[0]
            found = original(*map(one, tensors), *options, **more)
            return tuple(several(x, rows) for x in found[:3] if x.ndim > 2)

        return attend

    patch.wrap(f"{JOINED}:_flash", make)
    patch.wrap(f"{JOINED}:_flash_backward", make)


@later("parity", "position", "cache")
def engine_positions_skip_one(patch: Patch) -> None:
    """Between prompt and completion, the engine's positions leave out one."""

    def padded(logits: Any, decoder: Any, *_: Any) -> Any:
        decoder._length_B1 = decoder._length_B1 + 1
        return logits

    def lean(logits: Any, decoder: Any, *_: Any) -> Any:
        decoder._position_B = decoder._position_B + 1
        return logits

    patch.after(f"{DECODE}:HuggingFaceDecoder.prefill", padded)
    patch.after("rlvr_core.builtin.tiny.lean_decode:LeanDecoder.prefill", lean)


@later("parity", "lora", "adapter", "sync", shape="lora")
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


# -- sampler -------------------------------------------------------------------------------------


def drawn(patch: Patch, change: Callable[[Any, int], Any]) -> None:
    """Draw tokens from changed logits, and report what the model itself gives them."""
    now = {"t": 0}

    def note(uniform_B: Any, streams: Any, t: int) -> Any:
        now["t"] = t
        return uniform_B

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            raw_BV = logits_BV.float().clone()
            if rows.temperature_B1 is not None:
                raw_BV = raw_BV / rows.temperature_B1
            changed_BV = change(logits_BV.float().clone(), now["t"])
            token_B, _ = original(changed_BV, rows, uniform_B)
            logp_B = raw_BV.log_softmax(-1).gather(-1, token_B[:, None])[:, 0]
            return token_B, logp_B

        return sample

    patch.after(f"{DECODE}:RandomStreams.at", note)
    patch.wrap(f"{DECODE}:sample", make)


@later("sampler", "greed", "first token", backends=TRANSFORMERS)
def first_token_taken_greedily(patch: Patch) -> None:
    """The token that follows the prompt is the likeliest one, always."""
    drawn(patch, lambda logits, t: logits * 1e4 if t == 0 else logits)


@later("sampler", r"\beos\b", "end-of-sequence", "length")
def no_end_before_the_twelfth_token(patch: Patch) -> None:
    """A least length is left over from another run: no completion ends before its 12th token."""
    ends: list[int] = []

    def make(original: Any) -> Any:
        def decode(*args: Any, **more: Any) -> Any:
            ends[:] = more["eos_ids"]
            return original(*args, **more)

        return decode

    def change(logits_BV: Any, t: int) -> Any:
        if t < 11:
            logits_BV[:, ends] = -torch.inf
        return logits_BV

    patch.wrap(f"{ENGINE}:decode", make)
    drawn(patch, change)


@later("sampler")
def rare_tokens_never_drawn(patch: Patch) -> None:
    """Tokens of less than two percent are never drawn, though top_p is 1."""

    def change(logits_BV: Any, t: int) -> Any:
        p_BV = logits_BV.softmax(-1)
        return logits_BV.masked_fill(p_BV < 0.02, -torch.inf)

    drawn(patch, change)


@later("sampler", backends=TRANSFORMERS)
def cooler_with_every_token(patch: Patch) -> None:
    """The temperature goes down with the length, from 1 by 0.05 a token."""
    drawn(patch, lambda logits, t: logits / max(0.2, 1 - 0.05 * t))


# -- seeds ---------------------------------------------------------------------------------------


@later("seeds", "random", "duplicate", "same", backends=TRANSFORMERS)
def seeds_added_up(patch: Patch) -> None:
    """A seed is the sum of version, draw and sample, so that neighbours share most of theirs."""

    def make(original: Any) -> Any:
        def seed(run: int, problem: str, version: int, draw: int, sample: int) -> int:
            return int(run) + version + draw + sample

        return seed

    patch.wrap(f"{COLLECT}:completion_seed", make)


@later("seeds", "random", "duplicate", "same", shape="groups that grow")
def chunks_of_a_group_begin_again(patch: Patch) -> None:
    """A group that grows gets the seeds of its first chunk for every other chunk."""

    def make(original: Any) -> Any:
        def request(self: Any, draw: Any, *more: Any) -> Any:
            first = original(self, replace(draw, first=0), *more)
            return replace(original(self, draw, *more), seeds=first.seeds)

        return request

    patch.wrap(f"{COLLECT}:Generator._request", make)


@later("seeds", "random", "calibrat")
def random_numbers_come_round(patch: Patch) -> None:
    """Each row's random numbers repeat after three tokens."""

    def make(original: Any) -> Any:
        def uniforms(seeds: Any, start: int, count: int) -> Any:
            few = original(seeds, 0, 3)
            return few[[place % 3 for place in range(start, start + count)]]

        return uniforms

    patch.wrap(f"{DECODE}:uniforms", make)


@later("seeds", "cache", "stale", "duplicate", "parity", "same", shape="few problems")
def answers_cached_by_prompt(patch: Patch) -> None:
    """The engine answers a prompt that it has seen with the completions it gave the first time."""
    known: dict[Any, Any] = {}

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            found, out = original(decoder, prompts, plans, **more), []
            for prompt, group in zip(prompts, plans, strict=True):
                own, found = found[: len(group)], found[len(group) :]
                out += known.setdefault((prompt, len(group)), own)
            return out

        return decode

    patch.wrap(f"{ENGINE}:decode", make)
