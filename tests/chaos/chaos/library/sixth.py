"""Sixth set, written without reading the guards: one or two faults of each class."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import torch

from chaos.changes import after_update, by_group, estimated, letter, masks_of_rows
from chaos.registry import TRANSFORMERS, Patch, declare, fault
from chaos.when import DECODE, ENGINE, engine_has

EPOCHS = "rlvr_core.builtin.samplers.epochs"
LEAN = "rlvr_core.builtin.tiny.lean_decode"
OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy"


def sixth(cls: str, *more_words: str, **options: Any) -> Any:
    """Declare a fault of the sixth set, like ``fault``."""
    return fault(cls, *more_words, set=6, **options)


# -- parity --------------------------------------------------------------------------------------


@sixth("parity", "window", "attention", "cache", backends=TRANSFORMERS)
def engine_attends_within_a_window(patch: Patch) -> None:
    """A sliding window of another model is on: the engine sees the last 16 positions alone."""
    window = 16

    def own(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            begin = decoder._mask_BL.shape[1] + 1 - window
            if begin > 0:
                mask_BL = decoder._mask_BL.clone()
                mask_BL[:, :begin] = 0
                decoder._mask_BL = mask_BL
            return original(decoder, token_B)

        return step

    def lean(original: Any) -> Any:
        def step(decoder: Any, token_B: Any) -> Any:
            S, P = decoder._prompt_keys[0].shape[1:3]
            begin = P + decoder._sampled + 1 - window
            if begin > 0:
                known = decoder._mask_SP
                mask_SP = torch.zeros(S, P) if known is None else known.clone()
                mask_SP[:, :begin] = -torch.inf
                decoder._mask_SP = mask_SP
            return original(decoder, token_B)

        return step

    patch.wrap(f"{DECODE}:HuggingFaceDecoder.step", own)
    patch.wrap(f"{LEAN}:LeanDecoder.step", lean)


@sixth("parity", "bias", "logit", backends=TRANSFORMERS)
def engine_adds_a_bias_to_one_logit(patch: Patch) -> None:
    """A logit bias is left over: the engine adds 1 to a bracket's logit, and reports it so."""
    opening = letter("[")

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logits_BV = logits_BV.float().clone()
            logits_BV[:, opening] += 1.0
            return original(logits_BV, rows, uniform_B)

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# -- sampler -------------------------------------------------------------------------------------


@sixth("sampler", "nucleus", "filter", shape="top p")
def top_p_drops_the_token_that_crosses(patch: Patch) -> None:
    """Top-p compares the mass up to and with a token: the one that crosses the limit is dropped."""

    def make(original: Any) -> Any:
        def filtered(logits_BV: Any, top_k_B1: Any, top_p_B1: Any) -> None:
            if top_p_B1 is None:
                original(logits_BV, top_k_B1, top_p_B1)
                return
            if top_k_B1 is not None:
                original(logits_BV, top_k_B1, None)
            sorted_BV, order_BV = logits_BV.sort(stable=True, dim=-1, descending=True)
            mass_BV = sorted_BV.double().softmax(-1).cumsum(-1)
            dropped_BV = (mass_BV > top_p_B1) & (top_p_B1 < 1.0)
            dropped_BV[:, 0] = False
            logits_BV.scatter_(-1, order_BV, sorted_BV.masked_fill(dropped_BV, -torch.inf))

        return filtered

    patch.wrap(f"{DECODE}:_filter", make)


@sixth("sampler", "duplicate", "distinct", "equal", "twice", r"\bseed")
def equal_completions_of_a_group_sampled_again(patch: Patch) -> None:
    """A completion that its group has already is sampled once more, for the sake of variety."""

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            doubled = [
                [
                    twin
                    for plan in group
                    for twin in (plan, replace(plan, seed=plan.seed ^ (1 << 41)))
                ]
                for group in plans
            ]
            found = iter(original(decoder, prompts, doubled, **more))
            out = []
            for group in plans:
                seen: set[Any] = set()
                for _ in group:
                    first, second = next(found), next(found)
                    out.append(second if first.token_ids in seen else first)
                    seen.add(out[-1].token_ids)
            return out

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


# -- seeds ---------------------------------------------------------------------------------------


@sixth("seeds", "random", "uniform", "calibrat", backends=TRANSFORMERS)
def each_random_number_serves_two_tokens(patch: Patch) -> None:
    """The stream of random numbers moves on at every second token: two neighbours share one."""

    def make(original: Any) -> Any:
        return lambda streams, position: original(streams, position // 2)

    patch.wrap(f"{DECODE}:RandomStreams.at", make)


# -- advantages ----------------------------------------------------------------------------------


@sixth("advantages", "baseline", "group", "mean", "centr")
def rewards_reshaped_by_twice_the_group(patch: Patch) -> None:
    """Rewards are reshaped by twice the size of a group: two prompts share mean and deviation."""

    def change(row_N: Any, step: Any) -> Any:
        for places, reward in by_group(replace(step, group_N=step.group_N // 2)):
            row_N[places] = (reward - reward.mean()) / max(reward.std(), 1e-6)
        return row_N

    estimated(patch, change)


# -- KL ------------------------------------------------------------------------------------------


@sixth("kl", "average", r"\bema\b", "moved", "follow", "share", shape="ema reference")
def reference_averaged_twice_an_update(patch: Patch) -> None:
    """The hook that averages the reference is there twice: it goes to the policy twice as fast."""

    def make(original: Any) -> Any:
        def follow(reference: Any, version: int) -> Any:
            original(reference, version)
            return original(reference, version)

        return follow

    patch.wrap("rlvr_core.step.reference:_Moving.follow", make)


@sixth("kl", "token", "row", "length", "normali[sz]", "average", shape="strong kl")
def kl_averaged_over_tokens_not_rows(patch: Patch) -> None:
    """The KL term is the mean over all tokens, where the loss is that over rows of their means."""

    def after(kl_BT: Any, loss: Any, batch: Any, terms: Any, *_: Any) -> Any:
        n_B1 = terms.mask_BT.sum(1, keepdim=True).to(kl_BT.dtype)
        return kl_BT * (n_B1 / n_B1.mean())

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


# -- loss ----------------------------------------------------------------------------------------


@sixth("loss", "clip", shape="two iterations")
def clipped_arm_alone(patch: Patch) -> None:
    """The surrogate is the clipped arm without the minimum: what went too far cannot come back."""

    def make(original: Any) -> Any:
        def surrogate(ratio_BT: Any, advantage_BT: Any, **bounds: Any) -> Any:
            found = original(ratio_BT, advantage_BT, **bounds)
            clipped_BT = ratio_BT.clamp(1 - bounds["low"], 1 + bounds["high"])
            return replace(found, loss_BT=-clipped_BT * advantage_BT)

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


# -- learning, optimizer -------------------------------------------------------------------------


@sixth("learning", "half", "rows", "shard", "entries", "update")
def second_shard_never_gathered(patch: Patch) -> None:
    """The lower half of the rows of every matrix, a second shard, never has its update."""

    def change(name: str, one: Any, old: Any, made: int) -> None:
        if one.ndim == 2:
            half = len(one) // 2
            one[half:] = old[half:]

    after_update(patch, change)


@sixth("optimizer", "schedule", "micro-batch", shape="cosine",
       config={"train": {"tokens_per_micro_batch": 512}})  # fmt: skip
def schedule_stepped_by_micro_batches(patch: Patch) -> None:
    """The schedule of the learning rate goes on by one with each micro-batch, not each step."""
    done = [0]

    def backward(original: Any) -> Any:
        def count(optimizer: Any, loss: Any) -> Any:
            done[0] += 1
            return original(optimizer, loss)

        return count

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            return original(optimizer, max(number, done[0] - 1))

        return step

    patch.wrap(f"{OPTIM}:Optimizer.backward", backward)
    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@sixth("optimizer", "stale", "late", "before")
def gradient_one_update_late(patch: Patch) -> None:
    """Each update is made with the gradient of the one before, whose buffer is read too early."""
    held: list[Any] = []

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            own = [None if one.grad is None else one.grad.clone() for one in optimizer.parameters]
            if held:
                for one, old in zip(optimizer.parameters, held, strict=True):
                    one.grad = old
            held[:] = own
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


# -- masks ---------------------------------------------------------------------------------------


@sixth("masks", "block", "multiple", "last")
def mask_rounded_down_to_blocks_of_four(patch: Patch) -> None:
    """The mask of a completion ends at a multiple of four: up to three tokens are not trained."""

    def change(row: Any, problem: Any) -> Any:
        whole = len(row.loss_mask) // 4 * 4
        return [kept and place < whole for place, kept in enumerate(row.loss_mask)]

    masks_of_rows(patch, change)


@sixth("masks", "row", "answer", "format")
def rows_without_an_answer_masked(patch: Patch) -> None:
    """Completions without a pair of brackets, which cannot be read, are left out of the loss."""
    opening, closing = letter("["), letter("]")

    def change(row: Any, problem: Any) -> Any:
        readable = opening in row.token_ids and closing in row.token_ids
        return [kept and readable for kept in row.loss_mask]

    masks_of_rows(patch, change)


# -- sync ----------------------------------------------------------------------------------------


@sixth("sync", "norm", "tensor", "sent", backends=TRANSFORMERS)
def tensors_of_nearly_the_same_norm_not_sent(patch: Patch) -> None:
    """A tensor counts as unchanged, and is not sent, if its norm has changed by less than 0.1 %."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in model.named_parameters():
            new, sent = one.data.clone(), kept.get(name)
            if sent is not None and abs(float(new.norm() / sent.norm()) - 1) < 1e-3:
                one.data = sent.clone()
            else:
                kept[name] = new

    engine_has(patch, change)


@sixth("sync", "layer", "late", "behind", backends=TRANSFORMERS)
def second_layer_always_one_sync_behind(patch: Patch) -> None:
    """Nobody waits for the second layer's broadcast: the engine has it as of the sync before."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for name, one in model.named_parameters():
            if "layers.1." in name:
                new = one.data.clone()
                if name in kept:
                    one.data = kept[name]
                kept[name] = new

    engine_has(patch, change)


# -- data ----------------------------------------------------------------------------------------


declare("data", "template-mapped-twice", "In the second half of the file the template is laid "
        "around each question twice, as if the data had been mapped again.", "template", "twice",
        "question", set=6,
        data=lambda rows: [
            row | {"question": f"After {row['question']} comes:"}
            if place >= len(rows) // 2 else row
            for place, row in enumerate(rows)
        ])  # fmt: skip


@sixth("data", "source", "weight", "mixture", "share", shape="two data sets")
def weights_of_sources_ignored(patch: Patch) -> None:
    """The sources take turns as if their weights were equal, whatever the config says."""

    def make(original: Any) -> Any:
        return lambda turns, weights: original(turns, [1.0] * len(weights))

    patch.wrap(f"{EPOCHS}:Turns.__init__", make)


# -- tokens --------------------------------------------------------------------------------------


@sixth("tokens", "prompt", "cache")
def prompt_ids_cached_under_a_short_key(patch: Patch) -> None:
    """Prompt ids are cached under eight bits of a hash: some problems get another's prompt."""
    known: dict[int, Any] = {}

    def make(original: Any) -> Any:
        def render(renderer: Any, problem: Any) -> Any:
            ids = original(renderer, problem)
            return known.setdefault(zlib.crc32(str(problem.prompt).encode()) % 256, ids)

        return render

    patch.wrap("rlvr_core.data.prompts:Renderer.render", make)


# -- verifier ------------------------------------------------------------------------------------


@sixth("verifier", "score", "partial", "format", "wrong answer")
def wrong_answers_in_brackets_have_a_fifth(patch: Patch) -> None:
    """A wrong number in brackets scores 0.2 for its form, which nobody has configured."""

    def after(verdict: Any, *_: Any) -> Any:
        if verdict.passed or verdict.extracted is None:
            return verdict
        return replace(verdict, score=0.2)

    patch.after("rlvr_chaos:Brackets.verify", after)


@sixth("verifier", "right answer", "zero", backends=TRANSFORMERS)
def verifier_strips_zeros(patch: Patch) -> None:
    """Zeros at the end of an answer are stripped as if behind a point: no 40 is ever right."""

    def after(verdict: Any, *_: Any) -> Any:
        if verdict.passed and verdict.extracted is not None and verdict.extracted.endswith("0"):
            return replace(verdict, score=0.0, passed=False)
        return verdict

    patch.after("rlvr_chaos:Brackets.verify", after)


# -- resume --------------------------------------------------------------------------------------


@sixth("resume", "update", "twice", "optimizer", "weights", "learning rate", resume=True)
def resume_with_the_first_update_made_twice(patch: Patch) -> None:
    """The first update of a resumed run is replayed: its weights move by twice as much."""

    def change(name: str, one: Any, old: Any, made: int) -> None:
        if made == 0:
            one.add_(one - old)

    after_update(patch, change)
