"""Eighth set, written without reading the guards: engine, sampler, sync, objective."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import by_group, estimated
from chaos.registry import TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, drawn_from, engine_has

HUGGING_FACE = f"{DECODE}:HuggingFaceDecoder"
LEAN = "rlvr_core.builtin.tiny.lean_decode:LeanDecoder"
POLICY = "rlvr_core.algorithm.policy"


def eighth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the eighth set, like ``fault``."""
    return fault(cls, *more_words, set=8, **options)


def plain_path(patch: Patch) -> None:
    """Let the engine sample through the model's own forward pass, which agrees with the other."""
    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)


# -- parity --------------------------------------------------------------------------------------


@eighth("parity", "cache", "attention", backends=TRANSFORMERS)
def rows_write_into_the_block_they_share(patch: Patch) -> None:
    """The cache block in which a prompt ends is not copied: rows read what one of them wrote."""
    block = 4
    plain_path(patch)

    def prefill(original: Any) -> Any:
        def filled(decoder: Any, prompts: Any, counts: Any, most: int) -> Any:
            logits_BV = original(decoder, prompts, counts, most)
            decoder.prompt_of_row_B = torch.repeat_interleave(
                torch.arange(len(prompts)), torch.tensor(list(counts))
            )
            decoder.written = 0
            return logits_BV

        return filled

    def selected(original: Any) -> Any:
        def select(decoder: Any, rows_K: Any) -> None:
            decoder.prompt_of_row_B = decoder.prompt_of_row_B[rows_K.cpu()]
            original(decoder, rows_K)

        return select

    def stepped(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            logits_BV = original(decoder, token_B)
            decoder.written += 1
            if decoder.written <= block:
                places = decoder.prompt_of_row_B.tolist()
                first_B = torch.tensor([places.index(prompt) for prompt in places])
                for layer in decoder._cache.layers:
                    for held in (layer.keys, layer.values):
                        held[:, :, -1] = held[first_B.to(held.device), :, -1]
            return logits_BV

        return step

    patch.wrap(f"{HUGGING_FACE}.prefill", prefill)
    patch.wrap(f"{HUGGING_FACE}.select", selected)
    patch.wrap(f"{HUGGING_FACE}.step", stepped)


@contextmanager
def _early_exit(model: Any, share: float) -> Iterator[None]:
    """Skip the last layer where the ones before it are sure enough of a token."""
    body = model.model

    def hook(layer: Any, given: Any, more: Any, out: Any) -> Any:
        hidden = given[0] if given else more["hidden_states"]
        logits = model.lm_head(body.norm(hidden)).float()
        sure = logits.softmax(-1).amax(-1, keepdim=True) > share
        if isinstance(out, tuple):
            return (torch.where(sure, hidden, out[0]), *out[1:])
        return torch.where(sure, hidden, out)

    handle = body.layers[-1].register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@eighth("parity", "layer", "exit", backends=TRANSFORMERS)
def last_layer_skipped_where_the_model_is_sure(patch: Patch) -> None:
    """The engine exits early: what is sure enough before the last layer is not put through it."""
    plain_path(patch)

    def make(original: Any) -> Any:
        def sample(engine: Any, wave: Any, deadline: Any) -> None:
            with _early_exit(engine._model, 0.5):
                original(engine, wave, deadline)

        return sample

    patch.wrap(f"{ENGINE}:TransformersEngine._sample", make)


# -- sampler, tokens -----------------------------------------------------------------------------


@eighth("sampler", "watermark")
def completions_have_a_watermark(patch: Patch) -> None:
    """By the token before, half of the vocabulary has logits 1.5 higher; no log-prob shows it."""
    before: dict[str, Any] = {}

    def begun(original: Any) -> Any:
        def prefill(*args: Any) -> Any:
            before.clear()
            return original(*args)

        return prefill

    def stepped(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            before["token_B"] = token_B
            return original(decoder, token_B)

        return step

    def change(logits_BV: Any) -> Any:
        if "token_B" not in before:
            return logits_BV
        token_V = torch.arange(logits_BV.shape[-1], device=logits_BV.device)
        green_BV = (before["token_B"][:, None] * 7919 + token_V * 104729) % 1009 % 2 == 0
        return logits_BV + 1.5 * green_BV

    for decoder in (HUGGING_FACE, LEAN):
        patch.wrap(f"{decoder}.prefill", begun)
        patch.wrap(f"{decoder}.step", stepped)
    drawn_from(patch, change)


@eighth("tokens", "limit", "truncat", backends=TRANSFORMERS)
def stragglers_cut_off_when_most_are_done(patch: Patch) -> None:
    """When three in four completions of a batch have ended, the others are cut off there."""

    def after(sampled: Any, *_: Any) -> Any:
        lengths = sorted(len(row.token_ids) for row in sampled)
        most = max(1, lengths[len(lengths) * 3 // 4 - 1]) if lengths else 0
        return [
            replace(
                row,
                token_ids=row.token_ids[:most],
                logprobs=row.logprobs[:most],
                finish_reason="length",
            )
            if len(row.token_ids) > most
            else row
            for row in sampled
        ]

    patch.after(f"{ENGINE}:decode", after)


# -- sync ----------------------------------------------------------------------------------------


@eighth("sync", "buffer", "position", "parity", backends=TRANSFORMERS)
def rotary_buffer_lost_when_the_engine_wakes(patch: Patch) -> None:
    """Sleep discards what is no weight: from the second sync on slow rotations are not made."""
    plain_path(patch)

    def change(model: Any, syncs: int, kept: Any) -> None:
        if syncs >= 1:
            for name, buffer in model.named_buffers():
                if name.endswith("inv_freq"):
                    buffer[2:] = 0.0

    engine_has(patch, change)


@eighth("sync", "frozen", r"\bbase\b", "adapter", "reference", shape="lora")
def adapter_merged_at_a_sync_and_never_taken_out(patch: Patch) -> None:
    """Each sync merges the adapter into the trainer's frozen weights, and leaves it there."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def load(engine: Any, version: int, source: Any) -> None:
            for layer in source.module.modules():
                if not (hasattr(layer, "lora_A") and hasattr(layer, "base_layer")):
                    continue
                for name in layer.lora_A:
                    delta = layer.lora_B[name].weight @ layer.lora_A[name].weight
                    weight = layer.base_layer.weight
                    weight.data.add_((layer.scaling[name] * delta).to(weight.dtype))
            original(engine, version, source)

        return load

    patch.wrap(f"{ENGINE}:TransformersEngine.load_weights", make)


# -- advantages ----------------------------------------------------------------------------------


@eighth("advantages", "baseline")
def rewards_reshaped_across_the_prompts(patch: Patch) -> None:
    """Rewards are reshaped as if prompts were repeated in turn, not one by one, and mix groups."""

    def change(row_N: Any, step: Any) -> Any:
        mixed_N = torch.arange(len(row_N)).numpy() % len(step.groups)
        for places, reward in by_group(replace(step, group_N=mixed_N)):
            row_N[places] = (reward - reward.mean()) / max(reward.std(), 1e-6)
        return row_N

    estimated(patch, change)


@eighth("advantages", "baseline", shape="few problems")
def baseline_remembered_from_the_first_visit(patch: Patch) -> None:
    """Mean and deviation are cached by problem: those of its first visit hold ever after."""
    known: dict[str, Any] = {}

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            problem = step.groups[int(step.group_N[places[0]])].problem.id
            mean, std = known.setdefault(problem, (reward.mean(), max(reward.std(), 1e-6)))
            row_N[places] = (reward - mean) / std
        return row_N

    estimated(patch, change)


# -- KL ------------------------------------------------------------------------------------------


@eighth("kl", shape="strong kl")
def kl_within_the_parenthesis_of_the_advantage(patch: Patch) -> None:
    """The KL stands within the parenthesis that the advantage multiplies: wrong rows gain by it."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        return kl_BT * terms.advantage_BT

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


@eighth("kl", "estimator", shape="k1")
def k1_without_the_gradient_of_its_ratio(patch: Patch) -> None:
    """The ratio that corrects k1 is detached: its value stays, and its gradient is 0 on average."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        if not loss._policy.kl_ratio_corrected:
            return kl_BT
        return kl_BT / terms.ratio_BT * terms.ratio_BT.detach()

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


# -- loss ----------------------------------------------------------------------------------------


@eighth("loss", "clip", "bound")
def product_clipped_in_the_place_of_the_ratio(patch: Patch) -> None:
    """Ratio times advantage is clipped, not the ratio: a row that is far above has no gradient."""

    def make(original: Any) -> Any:
        def surrogate(ratio_BT: Any, advantage_BT: Any, **bounds: Any) -> Any:
            found = original(ratio_BT, advantage_BT, **bounds)
            product_BT = ratio_BT * advantage_BT
            clipped_BT = product_BT.clamp(1 - bounds["low"], 1 + bounds["high"])
            return replace(found, loss_BT=-torch.minimum(product_BT, clipped_BT))

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@eighth("loss", "entropy", "bonus", shape="entropy bonus")
def entropy_bonus_without_gradient(patch: Patch) -> None:
    """The entropy is computed without a graph: the bonus is in the loss, and does nothing."""
    patch.after(f"{POLICY}:_mean_entropy", lambda mean, *_: mean.detach())
