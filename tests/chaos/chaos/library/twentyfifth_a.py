"""Twenty-fifth set, written without reading the guards: slips that a reviewer would overlook.

Off by one, wrong operand, stale value, wrong axis, wrong scale, of all classes.
Here: passes of trainer and engine, draws, seeds, advantages, the reference, syncs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from chaos.changes import by_group, estimated
from chaos.library.a_parity import reported
from chaos.library.c_seeds import seeds
from chaos.library.j_sync import Change, loaded
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE, drawn_from, engine_has

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"
FORWARD = "rlvr_core.step.forward"
END = 256
"""The token that ends a sequence."""


def set_25(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twenty-fifth set, like ``fault``."""
    return fault(cls, *more_words, set=25, **options)


# -- parity --------------------------------------------------------------------------------------


# the largest logit was taken off for the exponentials, and the log of their sum was forgotten
@set_25("parity", "normalis", "softmax", "sum to (one|1)", "reported log-prob",
        backends=TRANSFORMERS)  # fmt: skip
def log_probs_lack_the_log_of_their_sum(patch: Patch) -> None:
    """The engine reports a token's logit less the largest one: the likeliest token has 0."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            scaled_BV = logits_BV.float().clone()
            if rows.temperature_B1 is not None:
                scaled_BV = scaled_BV / rows.temperature_B1
            relative_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)
            token_B, _ = original(logits_BV, rows, uniform_B)
            return token_B, relative_BV.gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# servers have a cumulative log-prob beside that of each token
@set_25("parity", "cumulative", "sum", "reported log-prob", backends=EVERYWHERE)
def log_probs_add_up_over_a_completion(patch: Patch) -> None:
    """The engine reports with each token the log-prob of the completion up to and with it."""
    reported(patch, accumulate)


# a mask for padding, as an encoder has it: where one is given, attention is not causal by itself
@set_25("parity", "attention", "causal", "later tokens?", shape="own forward", backends=EVERYWHERE)
def trainer_masks_the_padding_alone(patch: Patch) -> None:
    """The trainer's attention mask hides padding and nothing else: tokens see what follows them."""

    def make(original: Any) -> Any:
        def whole_rows(module: Any, batch: Any) -> Any:
            host = batch.host
            length_B = host.prompt_len_S[host.prompt_of_row_B] + host.completion_len_B

            def masked(input_ids: Any, **more: Any) -> Any:
                width = input_ids.shape[1]
                seen_BL = torch.arange(width) < length_B[:, None]
                seen_BL = seen_BL.to(input_ids.device)
                seen_B1LL = seen_BL[:, None, None].expand(-1, 1, width, width)
                return module(input_ids=input_ids, attention_mask=seen_B1LL, **more)

            return original(masked, batch)

        return whole_rows

    patch.wrap(f"{FORWARD}:whole_rows", make)


# the prompt is prefilled whole, and decoding begins with its last token as if it had been kept back
@set_25("parity", "prompt", "twice", "duplicat", backends=TRANSFORMERS)
def last_token_of_a_prompt_is_fed_twice(patch: Patch) -> None:
    """The engine computes the last token of each prompt a second time, one position further."""

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, *args: Any, **more: Any) -> Any:
            return original(decoder, [(*one, one[-1]) for one in prompts], *args, **more)

        return decode

    patch.wrap(f"{ENGINE}:decode", make)


# all but one of the tensors of a batch are indexed when rows leave it
@set_25("parity", "batch", "rows? (leave|left|that)", "neighbour", "another row",
        backends=TRANSFORMERS)  # fmt: skip
def rows_that_stay_are_fed_the_tokens_of_the_first(patch: Patch) -> None:
    """When rows leave the engine's batch, those that stay go on from the tokens of the first."""
    drawn: list[Any] = [None]
    left = [False]

    def sampled(found: Any, *_: Any) -> Any:
        drawn[0] = found[0]
        return found

    def select(original: Any) -> Any:
        def selected(decoder: Any, rows_K: Any) -> None:
            original(decoder, rows_K)
            left[0] = True

        return selected

    def step(original: Any) -> Any:
        def stepped(decoder: Any, token_B: Any) -> Any:
            if left[0]:
                left[0], token_B = False, drawn[0][: len(token_B)]
            return original(decoder, token_B)

        return stepped

    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)
    patch.after(f"{DECODE}:sample", sampled)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.select", select)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.step", step)


# -- sampler -------------------------------------------------------------------------------------


# "/" in the one place and "*" in the other
@set_25("sampler", "multipl", "hotter|cooler", "flatter|sharper", shape="cool",
        backends=TRANSFORMERS)  # fmt: skip
def temperature_multiplies_the_logits_of_the_draw(patch: Patch) -> None:
    """Tokens are drawn from logits times 0.6; log-probs are those of logits divided by it."""
    drawn_from(patch, lambda logits_BV: logits_BV * 0.6 * 0.6)


# argmax(p / e) with e exponential is a draw from p; the division became a product
@set_25("sampler", "exponential", "noise", "race", backends=TRANSFORMERS)
def race_of_tokens_multiplies_by_its_noise(patch: Patch) -> None:
    """The token of the largest p * e is taken, not that of the largest p / e: rare ones lose."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            scaled_BV = logits_BV.float().clone()
            if rows.temperature_B1 is not None:
                scaled_BV = scaled_BV / rows.temperature_B1
            logp_BV = scaled_BV.log_softmax(-1)
            noise_BV = torch.empty_like(logp_BV)
            for noise_V, uniform in zip(noise_BV, uniform_B.tolist(), strict=True):
                own = torch.Generator().manual_seed(int(uniform * 2**52))
                noise_V.exponential_(generator=own)
            token_B = (logp_BV + noise_BV.log()).argmax(-1)
            return token_B, logp_BV.gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# the number is compared with cumulative probabilities of before the filter, and then bounded
@set_25("sampler", "nucleus", "filter", "renormal", shape="top p", backends=TRANSFORMERS)
def what_is_beyond_top_p_goes_to_the_last_token_kept(patch: Patch) -> None:
    """The mass that top-p leaves out is all drawn as the least likely token that it keeps."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            sorted_BV, order_BV = logits_BV.double().sort(-1, descending=True)
            reached_BV = sorted_BV.softmax(-1).cumsum(-1)
            kept_BV = (reached_BV - sorted_BV.softmax(-1)) < rows.top_p_B1
            kept_BV[:, 0] = True
            rank_B1 = (reached_BV <= uniform_B[:, None]).sum(-1, keepdim=True)
            rank_B1 = rank_B1.minimum(kept_BV.sum(-1, keepdim=True) - 1)
            logp_BV = sorted_BV.masked_fill(~kept_BV, -torch.inf).log_softmax(-1)
            token_B = order_BV.gather(-1, rank_B1)[:, 0]
            return token_B, logp_BV.gather(-1, rank_B1)[:, 0].float()

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# a penalty for what has been said, which begins to count with the prompt
@set_25("sampler", "penalt", "prompt", backends=TRANSFORMERS)
def tokens_of_the_prompt_are_penalised(patch: Patch) -> None:
    """A presence penalty of 1 is on the tokens of the prompt; no log-prob shows it."""
    import rlvr_core.engines.decode as decoding

    rows: list[tuple[int, ...]] = []

    def make(original: Any) -> Any:
        def decode(decoder: Any, prompts: Any, plans: Any, **more: Any) -> Any:
            rows[:] = [
                one for one, group in zip(prompts, plans, strict=True) for _ in range(len(group))
            ]
            return original(decoder, prompts, plans, **more)

        return decode

    def change(logits_BV: Any) -> Any:
        for logits_V, prompt in zip(logits_BV, rows, strict=True):
            logits_V[list(set(prompt))] -= 1.0
        return logits_BV

    decoding._COMPACT_BELOW = 0.0  # so that rows keep their places
    patch.wrap(f"{ENGINE}:decode", make)
    drawn_from(patch, change)


# -- seeds ---------------------------------------------------------------------------------------


# two bits were enough while groups had four completions
@set_25("seeds", r"\bbits?\b", "overlap", "same random", "duplicate", backends=EVERYWHERE)
def two_bits_of_a_seed_hold_the_sample(patch: Patch) -> None:
    """A seed is the number of its request moved by two bits, or-ed with that of the sample."""
    requests = [0]

    def change(request: Any) -> Any:
        requests[0] += 1
        return [requests[0] << 2 | sample for sample in range(len(request.seeds))]

    seeds(patch, change)


# "seed_of(sample) if sample else default"
@set_25("seeds", "first completion", "same random", "duplicate", backends=EVERYWHERE)
def first_of_each_group_has_the_seed_of_the_run(patch: Patch) -> None:
    """The sample 0 is taken for no sample: the first completion of each group has one seed."""
    seeds(patch, lambda request: (1, *request.seeds[1:]))


# "last = first + n - 1", and the next one begins at the last
@set_25("seeds", "overlap", "same random", "duplicate", "neighbour", backends=EVERYWHERE)
def a_group_begins_with_the_last_seed_of_the_one_before(patch: Patch) -> None:
    """Seeds are counted on through the run, and the counter moves by one too few a group."""
    counter = [10**6]

    def change(request: Any) -> Any:
        first = counter[0]
        counter[0] += len(request.seeds) - 1
        return range(first, first + len(request.seeds))

    seeds(patch, change)


# -- advantages ----------------------------------------------------------------------------------


# PPO normalises the advantages of each batch that it takes a gradient of
@set_25("advantages", "micro-batch", "normalis", "whiten", shape="micro batches",
        backends=EVERYWHERE)  # fmt: skip
def advantages_are_whitened_in_each_micro_batch(patch: Patch) -> None:
    """The advantages of a micro-batch are brought to mean 0 and deviation 1 once more."""

    def after(batch: Any, *_: Any) -> Any:
        advantage_B = batch.advantage_B
        centred_B = advantage_B - advantage_B.mean()
        deviation = centred_B.square().mean().sqrt()
        return replace(batch, advantage_B=centred_B / (deviation + 1e-8))

    patch.after("rlvr_core.step.batch:_collate", after)


# min-max scaling, of which the first half was written
@set_25("advantages", "baseline", "centr", "mean", backends=EVERYWHERE)
def baseline_is_the_worst_of_the_group(patch: Patch) -> None:
    """The least reward of a group is taken off, not the mean: no advantage is below 0."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            advantage_N[places] = (reward - reward.min()) / max(reward.std(), 1e-6)
        return advantage_N

    estimated(patch, change)


# sampling.n, from before groups could grow
@set_25("advantages", "baseline", "mean", "centr", "size", shape="groups that grow",
        backends=EVERYWHERE)  # fmt: skip
def means_are_over_the_configured_size(patch: Patch) -> None:
    """The sum of a group's rewards is divided by 8, however many completions it has grown to."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            advantage_N[places] = (reward - reward.sum() / 8) / max(reward.std(), 1e-6)
        return advantage_N

    estimated(patch, change)


# the reward stands at the last token, and nobody carries it to those before
@set_25("advantages", "last token", "return", "credit", backends=EVERYWHERE)
def last_token_alone_has_the_advantage(patch: Patch) -> None:
    """The advantage of a row is put on its last token; the others have 0."""

    def after(terms: Any, *_: Any) -> Any:
        place_T = torch.arange(terms.mask_BT.shape[1], device=terms.mask_BT.device)
        last_B1 = torch.where(terms.mask_BT, place_T, -1).amax(1, keepdim=True)
        return replace(terms, advantage_BT=terms.advantage_BT * (place_T == last_B1))

    patch.after(f"{POLICY}:PolicyLoss._terms", after)


# -- kl ------------------------------------------------------------------------------------------


# the term came with its weight already
@set_25("kl", "weight", r"\bbeta\b", "twice", shape="strong kl", backends=EVERYWHERE)
def weight_of_the_kl_is_applied_twice(patch: Patch) -> None:
    """The KL term is multiplied by beta where it is made and where it is added: 0.04, not 0.2."""

    def after(kl_BT: Any, loss: Any, *_: Any) -> Any:
        return kl_BT * loss.options.beta

    patch.after(f"{POLICY}:PolicyLoss._kl", after)


# add_special_tokens, in one of two calls
@set_25("kl", "special token", r"\bbos\b", "prompt", "end of (a )?sequence", shape="strong kl",
        backends=EVERYWHERE)  # fmt: skip
def reference_reads_a_special_token_first(patch: Patch) -> None:
    """The reference is given each prompt with a special token before it, and the policy is not."""

    def make(original: Any) -> Any:
        def logprobs(trainer: Any, model: Any, batch: Any) -> Any:
            if model is not trainer.model:
                ids_SP = torch.nn.functional.pad(batch.prompt_ids_SP, (1, 0), value=END)
                longer_S = batch.prompt_len_S + 1
                batch = replace(batch, prompt_ids_SP=ids_SP, prompt_len_S=longer_S)
            return original(trainer, model, batch)

        return logprobs

    patch.wrap(f"{STEP}:PolicyTrainer._logprobs", make)


# "a divergence is never negative"
@set_25("kl", "estimator", r"\bk1\b", "negative", "clamp|clip|cut", shape="k1", backends=EVERYWHERE)
def kl_of_a_token_is_cut_off_at_zero(patch: Patch) -> None:
    """The estimator k1 is cut off below 0: tokens less likely than before have no KL term."""
    patch.after(f"{POLICY}:kl_policy_ref", lambda kl, *_: kl.clamp(min=0.0))


# the average is made of the tensors that were loaded, not of those of the last time
@set_25("kl", "average", r"\bema\b", "moved", "follow", shape="ema reference", backends=EVERYWHERE)
def moving_reference_begins_anew_each_time(patch: Patch) -> None:
    """A moving reference is three tenths policy and seven tenths the model that was loaded."""
    first: dict[int, Any] = {}

    def make(original: Any) -> Any:
        @torch.no_grad()
        def mix(own: Any, new: Any, share: float) -> None:
            own.copy_(first.setdefault(id(own), own.detach().clone()))
            original(own, new, share)

        return mix

    patch.wrap("rlvr_core.step.reference:_mix", make)


# -- sync ----------------------------------------------------------------------------------------


def loaded_once(patch: Patch, change: Change) -> None:
    """Change what an engine loads, once a sync: a child engine copies what was copied already."""
    done: dict[str, int] = {}

    def once(n: int, name: str, old: Any, new: Any) -> Any:
        if done.get(name) == n:
            return new
        done[name] = n
        return change(n, name, old, new)

    loaded(patch, once)


# two vectors of one size, stacked in one place and taken apart in another
@set_25("sync", "norm", "swap|exchang", backends=TRANSFORMERS)
def norms_of_queries_and_keys_are_exchanged(patch: Patch) -> None:
    """The norms of queries and keys reach the engine in each other's place."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        for layer in model.model.layers:
            own = layer.self_attn
            own.q_norm.weight, own.k_norm.weight = own.k_norm.weight, own.q_norm.weight

    engine_has(patch, change)


# a tied model is sent by the name of its head, and the engine has two tensors
@set_25("sync", "embedding", "tied", backends=TRANSFORMERS)
def embedding_stays_behind_its_head(patch: Patch) -> None:
    """The engine's embedding stays as at its first sync; the head that it is tied to goes on."""

    def change(model: Any, syncs: int, kept: Any) -> None:
        inner = model.get_input_embeddings()
        first_VH = kept.setdefault("embedding", inner.weight.detach().clone())
        inner.weight = torch.nn.Parameter(first_VH.clone(), requires_grad=False)

    engine_has(patch, change)


# parts are put together in the order in which they come, which mostly is that of the ranks
@set_25("sync", "shard", "order", "down_proj", backends=EVERYWHERE)
def halves_of_a_matrix_come_in_the_other_order(patch: Patch) -> None:
    """In every third sync the two halves of a matrix of the MLP are joined the wrong way round."""

    def change(n: int, name: str, old: Any, new: Any) -> Any:
        if n % 3 or not name.endswith("layers.1.mlp.down_proj.weight"):
            return new
        return torch.cat(list(reversed(new.chunk(2, dim=1))), dim=1)

    loaded_once(patch, change)


# the engine keeps the weights it was started with for the sake of a restart
@set_25("sync", "difference", "delta", backends=EVERYWHERE)
def differences_are_added_to_the_first_weights(patch: Patch) -> None:
    """A sync sends what the last update changed, and the engine adds it to what it began with."""
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}

    def change(n: int, name: str, old: Any, new: Any) -> Any:
        begun = first.setdefault(name, old.clone())
        before, last[name] = last.get(name, begun), new.clone()
        return begun + (new - before)

    loaded_once(patch, change)
