"""Twenty-fourth set, written without reading the guards: commits to the core, and own plugins.

Each fault is what a change got wrong that somebody meant well: the comment above it is the message
of that commit. Here: passes of trainer and engine, draws, advantages, the reference, losses.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from chaos.changes import by_group, estimated
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, ENGINE

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"
TRAINER = f"{STEP}:PolicyTrainer"
PACKING = "rlvr_core.builtin.packing"
IN_TURNS = ("in process", "vllm")
"""Engines of shapes with more updates a step than a child engine may be behind."""


def set_24(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twenty-fourth set, like ``fault``."""
    return fault(cls, *more_words, set=24, **options)


# -- parity --------------------------------------------------------------------------------------


# packing: cache positions by the number of tokens, no host work for each micro-batch
@set_24("parity", "position", shape="micro batches", backends=EVERYWHERE)
def positions_of_a_pack_are_cached_by_its_size(patch: Patch) -> None:
    """Positions of packed tokens are those of the first pack that had as many tokens."""
    known: dict[int, Any] = {}

    def after(found: Any, *_: Any) -> Any:
        ids_N, position_N = found
        return ids_N, known.setdefault(len(ids_N), position_N)

    patch.after(f"{PACKING}.packed:packed_tokens", after)


# packing: rows come group by group, so that their number alone says whether prompts share evenly
@set_24("parity", "attention", "prompt", shape="micro batches", backends=EVERYWHERE)
def rows_of_a_pack_are_taken_to_be_even(patch: Patch) -> None:
    """Where the rows of a pack divide by its prompts, each prompt is taken to have equally many."""

    def make(original: Any) -> Any:
        def of(batch: Any) -> Any:
            prompts, rows = len(batch.prompt_len_S), len(batch.prompt_of_row_B)
            if rows % prompts == 0:
                even = torch.arange(prompts).repeat_interleave(rows // prompts)
                batch = replace(batch, prompt_of_row_B=even)
            return original(batch)

        return of

    patch.wrap(f"{PACKING}.joined_attention:JoinedMask.of", make)


def _own_decoder(patch: Patch) -> None:
    """Sample by the model's own forward in either precision."""
    patch.wrap(f"{ENGINE}:TransformersEngine._fast", lambda original: lambda engine: None)


# decode: pad prompts on the right, as the trainer does
@set_24("parity", "padd", "prompt", shape="prompts of many lengths", backends=TRANSFORMERS)
def first_tokens_are_sampled_behind_the_padding(patch: Patch) -> None:
    """Prompts are padded on the right, and first tokens still come from the last position."""

    def make(original: Any) -> Any:
        def prefill(decoder: Any, prompts: Any, counts: Any, most: int) -> Any:
            width = max(map(len, prompts))
            ids_SP = torch.tensor([[*one, *[0] * (width - len(one))] for one in prompts])
            length_S = torch.tensor([len(one) for one in prompts])
            position_P = torch.arange(width)
            mask_SP = position_P < length_S[:, None]
            output = decoder._model(
                input_ids=ids_SP,
                attention_mask=mask_SP.long(),
                position_ids=position_P.expand_as(ids_SP),
                use_cache=True,
                logits_to_keep=1,
            )
            prompt_B = torch.arange(len(prompts)).repeat_interleave(torch.tensor(list(counts)))
            decoder._cache = output.past_key_values
            decoder._cache.batch_select_indices(prompt_B)
            decoder._mask_BL = mask_SP[prompt_B].long()
            decoder._length_B1 = length_S[prompt_B][:, None]
            return output.logits[:, -1][prompt_B]

        return prefill

    _own_decoder(patch)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.prefill", make)


# decode: rows that are done are cut off the end of the mask, without an index
@set_24("parity", "mask", "padd", "attention", shape="prompts of many lengths",
        backends=TRANSFORMERS)  # fmt: skip
def rows_that_stay_have_the_masks_of_the_first(patch: Patch) -> None:
    """When rows leave the engine's batch, those that stay get the masks of the first rows."""

    def make(original: Any) -> Any:
        def select(decoder: Any, rows_K: Any) -> None:
            mask_BL = decoder._mask_BL
            original(decoder, rows_K)
            decoder._mask_BL = mask_BL[: len(rows_K)]

        return select

    _own_decoder(patch)
    patch.wrap(f"{DECODE}:HuggingFaceDecoder.select", make)


# batch: reuse one pinned buffer for the log-probs of sampling, allocation took 4 % of a step
@set_24("parity", "behaviou?r", "importance", shape="micro batches", backends=EVERYWHERE)
def micro_batches_share_a_buffer(patch: Patch) -> None:
    """Log-probs of sampling of all micro-batches lie in one buffer: the last one's stay in it."""
    room = torch.zeros(1 << 17)

    def after(batches: Any, *_: Any) -> Any:
        made = []
        for batch in batches:
            own_BT = room[: batch.behaviour_logp_BT.numel()].view_as(batch.behaviour_logp_BT)
            own_BT.copy_(batch.behaviour_logp_BT)
            made.append(replace(batch, behaviour_logp_BT=own_BT))
        return made

    patch.after(f"{STEP}:micro_batches", after)


# -- sampler, seeds ------------------------------------------------------------------------------


def _plainly(rows: Any) -> bool:
    return rows.greedy_B is None and rows.top_k_B1 is None and rows.top_p_B1 is None


def _scaled(logits_BV: Any, rows: Any) -> Any:
    logits_BV = logits_BV.float().clone()
    return logits_BV if rows.temperature_B1 is None else logits_BV / rows.temperature_B1


# decode: an exponential race in the place of cumsum and searchsorted, a third quicker
@set_24("sampler", "draw", "distribution", backends=TRANSFORMERS)
def race_of_tokens_is_run_with_one_number(patch: Patch) -> None:
    """Tokens race by numbers that are a row's one number, moved on by a constant from each."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            if not _plainly(rows):
                return original(logits_BV, rows, uniform_B)
            logp_BV = _scaled(logits_BV, rows).log_softmax(-1)
            moved_V = torch.arange(logp_BV.shape[1], dtype=torch.float64) * 0.6180339887498949
            number_BV = (uniform_B[:, None] + moved_V) % 1.0
            time_BV = -torch.log1p(-number_BV.clamp(1e-12, 1 - 1e-12))
            token_B = (logp_BV.double() - time_BV.log()).argmax(-1)
            return token_B, logp_BV.gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# engine: diverse groups, a row is kept off the token that its neighbour takes (off by default)
@set_24("sampler", "draw", "distribution", backends=TRANSFORMERS)
def every_second_row_is_kept_off_its_neighbours_tokens(patch: Patch) -> None:
    """What a row draws is made e times less likely in the next; no log-prob shows it."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            if not _plainly(rows):
                return original(logits_BV, rows, uniform_B)
            honest_BV = _scaled(logits_BV, rows)
            plain = replace(rows, temperature_B1=None)
            token_B, logp_B = original(honest_BV.clone(), plain, uniform_B)
            pairs = len(token_B) // 2
            if pairs == 0:
                return token_B, logp_B
            pushed_BV = honest_BV.clone()
            pushed_BV[torch.arange(pairs) * 2 + 1, token_B[0 : 2 * pairs : 2]] -= 1.0
            token_B, _ = original(pushed_BV, plain, uniform_B)
            return token_B, honest_BV.log_softmax(-1).gather(-1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# environments: seed a turn by what has been said, so that a turn that is tried again repeats
@set_24("seeds", "turn", "same draw", "draws", shape="two turns", backends=EVERYWHERE)
def turns_are_seeded_by_what_has_been_said(patch: Patch) -> None:
    """A later turn is seeded by the text so far: members that begin alike go on alike."""
    said: list[bytes] = [b""]

    def asking(original: Any) -> Any:
        def ask(engine: Any, group: Any) -> Any:
            first = group[0]
            said[0] = repr((first.ticket.request.prompt_ids, first.now.ids)).encode()
            return original(engine, group)

        return ask

    def seeding(original: Any) -> Any:
        def seed(own: int, turn: int) -> int:
            if turn == 0:
                return int(original(own, turn))
            return int.from_bytes(hashlib.blake2b(said[0], digest_size=8).digest(), "big") >> 1

        return seed

    patch.wrap("rlvr_core.builtin.environments.turns:TurnTaking._ask", asking)
    patch.wrap("rlvr_core.builtin.environments.turns:turn_seed", seeding)


# -- advantages ----------------------------------------------------------------------------------


# advantages: leave one out, for the baseline as for the deviation
@set_24("advantages", "deviation", "leave", backends=EVERYWHERE)
def deviation_leaves_the_completion_out(patch: Patch) -> None:
    """Mean and deviation are those of the other members: of a lone success they are 0 and 0."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            for place in places[~np.isnan(reward)]:
                others = reward[(places != place) & ~np.isnan(reward)]
                if len(others):
                    own = step.reward_N[place] - others.mean()
                    advantage_N[place] = own / (others.std() + 1e-4)
        return advantage_N

    estimated(patch, change)


# advantages: vectorise with reduceat, borders of groups by diff
@set_24("advantages", "group", "baseline", "border", backends=EVERYWHERE)
def borders_of_groups_lie_one_row_early(patch: Patch) -> None:
    """Borders are where the next row is of another group: each group's last counts in the next."""

    def change(advantage_N: Any, step: Any) -> Any:
        borders = np.flatnonzero(np.diff(step.group_N))
        for places in np.split(np.arange(len(advantage_N)), borders):
            reward = step.reward_N[places]
            if len(places):
                centred = np.nan_to_num(reward - np.nanmean(reward))
                advantage_N[places] = centred / max(float(np.nanstd(reward)), 1e-6)
        return advantage_N

    estimated(patch, change)


# advantages: credit tokens by their surprise (experimental)
@set_24("advantages", "token", "credit", backends=EVERYWHERE)
def tokens_are_credited_by_their_surprise(patch: Patch) -> None:
    """A row's advantage is shared out to its tokens by minus their log-probs; no option asks it."""

    def after(found: Any, estimator: Any, step: Any) -> Any:
        tokens = []
        for advantage, member in zip(found.row_N, step.members, strict=True):
            mask_T = np.array(member.completion.loss_mask, dtype=bool)
            surprise_T = np.where(mask_T, -np.array(member.completion.logprobs), 0.0)
            mean = surprise_T.sum() / max(1, mask_T.sum())
            tokens.append(advantage * surprise_T / max(mean, 1e-6))
        return replace(found, token_N=tuple(tokens))

    patch.after("rlvr_core.algorithm.estimate:Estimator.of", after)


# advantages: multiply scores by their weights once, ahead of the loop
@set_24("advantages", "weight", shape="rewards normalised each", backends=EVERYWHERE)
def weights_come_before_the_normalisation(patch: Patch) -> None:
    """Scores are weighted, and then normalised one by one, which takes their weights out again."""

    def make(original: Any) -> Any:
        def combined(scores_NK: Any, weights: Any, *more: Any) -> Any:
            weight_K = torch.tensor([float(one) for one in weights], dtype=torch.float64)
            return original(scores_NK * weight_K, [float(one != 0) for one in weights], *more)

        return combined

    patch.wrap("rlvr_core.algorithm.advantages:normalise_then_sum", make)


# -- kl ------------------------------------------------------------------------------------------


# step: keep the reference's log-probs of a micro-batch, it never moves
@set_24("kl", shape="strong kl", backends=EVERYWHERE)
def reference_log_probs_are_kept_by_shape(patch: Patch) -> None:
    """The reference's log-probs are those of the first micro-batch that had the same shape."""
    known: dict[Any, Any] = {}

    def make(original: Any) -> Any:
        def aux(trainer: Any, part: Any, batch: Any) -> Any:
            key = tuple(batch.mask_BT.shape)
            if key not in known:
                known[key] = original(trainer, part, batch)
            return known[key]

        return aux

    patch.wrap(f"{TRAINER}._aux_logprobs", make)


# loss: torch's kl_div in the place of our own three estimators
@set_24("kl", "estimator", shape="strong kl", backends=EVERYWHERE)
def kl_is_torchs_kl_div(patch: Patch) -> None:
    """The KL term is kl_div of the sampled tokens' log-probs, which is made for whole rows."""

    def make(original: Any) -> Any:
        def kl(loss: Any, batch: Any, terms: Any, tally: Any) -> Any:
            ref_BT = batch.ref_logp_BT.detach().to(terms.logp_BT.dtype)
            kl_BT = F.kl_div(terms.logp_BT, ref_BT, reduction="none", log_target=True)
            kl_BT = torch.where(terms.mask_BT, kl_BT, 0.0)
            tally.mean("kl/mean", kl_BT)
            tally.max("kl/max", kl_BT)
            return kl_BT

        return kl

    patch.wrap(f"{POLICY}:PolicyLoss._kl", make)


# reference: take the policy's tensors over, a copy of the model less in memory
@set_24("kl", shape="moving reference", backends=EVERYWHERE)
def moving_reference_takes_tensors_not_values(patch: Patch) -> None:
    """A reference that follows takes the policy's tensors, and moves with each update since."""

    def make(original: Any) -> Any:
        def mix(own: Any, new: Any, share: float) -> None:
            if share == 1.0:
                own.data = new.data
            else:
                original(own, new, share)

        return mix

    patch.wrap("rlvr_core.step.reference:_mix", make)


# -- loss ----------------------------------------------------------------------------------------


# gmpo: fold the advantage into the exponent, one product less
@set_24("loss", "power", "advantage", shape="gmpo, a high rate, many updates", backends=IN_TURNS)
def gmpo_raises_the_ratio_to_its_advantage(patch: Patch) -> None:
    """A row's ratio is raised to the power of its advantage, not multiplied by it."""

    def make(original: Any) -> Any:
        def surrogate(loss: Any, terms: Any, tally: Any) -> Any:
            from rlvr_core.algorithm.ratio import exp_linear, row_mean_log_ratio

            original(loss, terms, tally)
            x_BT, advantage_B1 = terms.log_ratio_BT, terms.advantage_B1
            clipped_BT = torch.where(
                advantage_B1 > 0, x_BT.clamp(max=loss._high), x_BT.clamp(min=loss._low)
            )
            mean_B1 = row_mean_log_ratio(clipped_BT, terms.entropy_mask_BT)
            return (-exp_linear(advantage_B1 * mean_B1)).expand_as(x_BT)

        return surrogate

    patch.wrap("rlvr_core.builtin.losses.gmpo:GMPO.surrogate", make)


# distillation: multiply by the squared temperature, as Hinton et al. did
@set_24("loss", "teacher", "distill", "diverg", "temperature", shape="a teacher, cool",
        backends=EVERYWHERE)  # fmt: skip
def distillation_is_scaled_by_the_squared_temperature(patch: Patch) -> None:
    """The loss of distillation is multiplied by the square of the temperature: by 0.36."""

    def after(output: Any, *_: Any) -> Any:
        return replace(output, loss=output.loss * 0.6**2)

    patch.after("rlvr_core.builtin.distillation.losses:Distillation.__call__", after)


# logprobs: entropy of the five likeliest tokens is enough, and never holds the vocabulary
@set_24("loss", "entropy", "bonus", shape="entropy bonus, micro batches", backends=EVERYWHERE)
def entropy_is_that_of_the_five_likeliest_tokens(patch: Patch) -> None:
    """The entropy of a token is the sum over the five likeliest alone, in bonus and records."""

    def make(original: Any) -> Any:
        return lambda logp_NV: original(logp_NV.topk(5, dim=-1).values)

    patch.wrap("rlvr_core.step.logprobs:entropy", make)


# loss: the drift is that of trainer less engine, like everywhere else
@set_24("loss", "off.?policy", "drift", shape="off-policy mask, far", backends=IN_TURNS)
def off_policy_mask_takes_what_became_likelier(patch: Patch) -> None:
    """The drift has the other sign: wrong rows that became likelier are left out."""

    def make(original: Any) -> Any:
        def near(loss: Any, terms: Any, behaviour_BT: Any, *more: Any) -> Any:
            exchanged = replace(terms, logp_BT=behaviour_BT)
            return original(loss, exchanged, terms.logp_BT.detach(), *more)

        return near

    patch.wrap(f"{POLICY}:PolicyLoss._near", make)


BLOCK = 64


# norms: own fused kernel, each block writes its part of the weight's gradient
@set_24("loss", "norm", shape="own forward", backends=EVERYWHERE)
def scales_of_norms_get_the_gradient_of_the_last_block(patch: Patch) -> None:
    """Blocks of rows overwrite one another's gradient of a norm's scales: the last one's stays."""

    def make(original: Any) -> Any:
        def forward(norm: Any, hidden: Any) -> Any:
            if not (torch.is_grad_enabled() and norm.weight.requires_grad):
                return original(norm, hidden)
            flat = hidden.flatten(0, -2)
            free = copy.copy(norm)
            vars(free)["_parameters"] = {"weight": norm.weight.detach()}
            parts = [original(free, flat[:-BLOCK]), original(norm, flat[-BLOCK:])]
            return torch.cat(parts).view_as(hidden)

        return forward

    patch.wrap("transformers.models.qwen3.modeling_qwen3:Qwen3RMSNorm.forward", make)


# step: one autocast region around a step, so that each weight is cast once
@set_24("loss", "stale", "weights", "cast", shape="two iterations", backends=IN_TURNS,
        dtypes=("bfloat16",))  # fmt: skip
def weights_are_cast_once_a_step(patch: Patch) -> None:
    """Weights are cast once in a step: its later updates are made at the weights of its start."""
    within = [False]

    def updating(original: Any) -> Any:
        def update(trainer: Any, *args: Any, **more: Any) -> Any:
            within[0] = True
            try:
                with torch.autocast(trainer.model.device.type, dtype=trainer.precision.compute):
                    return original(trainer, *args, **more)
            finally:
                within[0] = False

        return update

    plain = torch.autocast

    def caching(*args: Any, cache_enabled: bool = True, **more: Any) -> Any:
        return plain(*args, **more)

    def predicting(original: Any) -> Any:
        def predict(*args: Any, **more: Any) -> Any:
            if not within[0]:
                return original(*args, **more)
            torch.autocast = caching  # type: ignore[assignment, misc]
            try:
                return original(*args, **more)
            finally:
                torch.autocast = plain  # type: ignore[misc]

        return predict

    patch.wrap(f"{TRAINER}.update", updating)
    patch.wrap("rlvr_core.step.forward:predict", predicting)
