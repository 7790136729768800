"""Twenty-second set, written without reading the guards: bugs that were reported of other trainers.

Each fault is one that a peer's users met: the comment above it says whose, and what happened.
Here: passes of trainer and engine, draws, advantages, losses, the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import by_group, estimated
from chaos.library.twentyfirst import rank, second
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch, fault
from chaos.when import DECODE, drawn_from

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"
TWO = ("two processes",)
IN_TURNS = ("in process", "vllm")
"""Engines of shapes with more updates a step than a child engine may be behind."""


def set_22(cls: str, *more_words: str, **options: Any) -> Callable[[Callable[[Patch], None]], None]:
    """Declare a fault of the twenty-second set, like ``fault``."""
    return fault(cls, *more_words, set=22, **options)


# -- parity --------------------------------------------------------------------------------------


# verl: labels of packed rows were the ids rolled by one, across the borders of rows
@set_22("parity", "last token", r"\beos\b", backends=EVERYWHERE)
def last_label_of_a_row_is_the_next_rows_first(patch: Patch) -> None:
    """Labels of a pack are its ids moved by one, so a row's last is the prompt of the next row."""
    from rlvr_core.step.forward import Predicted

    def targets(predicted: Any) -> Any:
        batch = predicted.batch
        ids_BT, last_B = batch.completion_ids_BT.clone(), batch.completion_len_B - 1
        next_B = batch.prompt_ids_SP[batch.prompt_of_row_B.roll(-1), 0]
        ids_BT[torch.arange(len(ids_BT)), last_B] = next_B
        return ids_BT.flatten()[batch.loss_places()]

    Predicted.targets = property(targets)  # type: ignore[assignment, method-assign]
    patch.hit()


# OpenRLHF, TRL: with the end as the padding token, a mask made of ids hid the ends of turns
@set_22("parity", r"\beos\b", "attention", shape="two turns, own forward", backends=TRANSFORMERS)
def ends_of_turns_are_taken_for_padding(patch: Patch) -> None:
    """The trainer's attention mask leaves out every end of sequence, which is the padding too."""
    end = 256

    def make(original: Any) -> Any:
        def whole_rows(module: Any, batch: Any) -> Any:
            def masked(input_ids: Any, **more: Any) -> Any:
                return module(input_ids=input_ids, attention_mask=(input_ids != end).long(), **more)

            return original(masked, batch)

        return whole_rows

    patch.wrap("rlvr_core.step.forward:whole_rows", make)


# several trainers on servers that give the N likeliest tokens: others got the least of these
@set_22("parity", "likel", "top", backends=TRANSFORMERS)
def unlikely_tokens_have_the_log_prob_of_the_fifth(patch: Patch) -> None:
    """A server gives log-probs of five tokens; another one that was sampled gets the fifth's."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            token_B, logp_B = original(logits_BV, rows, uniform_B)
            fifth_B = logits_BV.float().log_softmax(-1).topk(5).values[:, -1]
            return token_B, torch.maximum(logp_B, fifth_B)

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# -- sampler, seeds ------------------------------------------------------------------------------


# FlashInfer below vLLM: top-p by rejection gave up after some rounds, and kept what it had
@set_22("sampler", "nucleus", "filter", shape="top p")
def top_p_gives_up_after_two_tries(patch: Patch) -> None:
    """Top-p draws from all tokens until one is within, but twice at most."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            free = replace(rows, top_p_B1=None)
            first_B, logp_B = original(logits_BV.clone(), free, uniform_B)
            again_B = (uniform_B * 7919 + 0.5) % 1.0
            other_B, other_logp_B = original(logits_BV.clone(), free, again_B)
            logits_BV = logits_BV.float()
            if rows.temperature_B1 is not None:
                logits_BV = logits_BV / rows.temperature_B1
            p_BV, order_BV = logits_BV.softmax(-1).sort(descending=True)
            kept_BV = (p_BV.cumsum(-1) - p_BV) < rows.top_p_B1
            within_BV = torch.zeros_like(kept_BV).scatter(-1, order_BV, kept_BV)
            good_B = within_BV.gather(-1, first_B[:, None])[:, 0]
            mass_B = (p_BV * kept_BV).sum(-1)
            token_B = torch.where(good_B, first_B, other_B)
            return token_B, torch.where(good_B, logp_B, other_logp_B) - mass_B.log()

        return sample

    patch.wrap(f"{DECODE}:sample", make)


# transformers: where nobody names a top-k, the generation config's is 50
@set_22("sampler", "filter", shape="very hot, all tokens", backends=TRANSFORMERS)
def top_k_is_the_default_of_generation_configs(patch: Patch) -> None:
    """A library's default of 50 for top-k is on, and log-probs are those of all tokens."""

    def change(logits_BV: Any) -> Any:
        least_B1 = logits_BV.topk(50).values[:, -1:]
        return logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)

    drawn_from(patch, change)


# vLLM: random numbers were made in the dtype of the logits
@set_22("seeds", "random number", "uniform", "calibrat", "precision", "round",
        backends=TRANSFORMERS)  # fmt: skip
def random_numbers_are_made_in_half_precision(patch: Patch) -> None:
    """The numbers that tokens are drawn by are bfloat16, of which there are few near 1."""

    def after(found: Any, *_: Any) -> Any:
        return found.bfloat16().double().clamp(max=1 - 2.0**-52)

    patch.after(f"{DECODE}:uniforms", after)


# verl, AReaL: each worker numbered its requests by itself, and seeded them by the number
@set_22("seeds", "draw", "random number", backends=TWO)
def each_process_counts_its_seeds_from_one(patch: Patch) -> None:
    """Seeds of a process are its version and how many requests it had: both have the same."""
    counted: dict[tuple[int, int, int], int] = {}

    def make(original: Any) -> Any:
        def seed(run: int, problem: str, version: int, draw: int, sample: int) -> int:
            place = counted.setdefault((version, draw, 0), len(counted))
            return int(original(run, "", 0, place, sample))

        return seed

    patch.wrap("rlvr_core.rollout.collect:completion_seed", make)


# -- advantages ----------------------------------------------------------------------------------


# PipelineRL: only what came first of a group was in its mean and deviation
@set_22("advantages", "baseline", "mean", "deviation", backends=EVERYWHERE)
def baseline_is_of_the_first_half_of_a_group(patch: Patch) -> None:
    """Mean and deviation of a group are taken when half of its completions are there."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            first = reward[: len(reward) // 2]
            deviation = first.std() or reward.std()
            if deviation > 0:
                advantage_N[places] = (reward - first.mean()) / deviation
        return advantage_N

    estimated(patch, change)


# SkyRL: the mean that advantages are whitened by was over padding as well
@set_22("advantages", "mean", "whiten", "return", "padd", shape="reinforce++",
        backends=EVERYWHERE)  # fmt: skip
def returns_are_centred_on_a_mean_with_padding(patch: Patch) -> None:
    """The mean of the returns is that of the padded grid, and their deviation that of tokens."""

    def after(output: Any, *_: Any) -> Any:
        mean = output.metrics["return_mean"]
        deviation = output.metrics["return_std"]
        sizes = [len(one) for one in output.advantages]
        other = mean * sum(sizes) / (len(sizes) * max(sizes))
        return replace(
            output, advantages=[one + (mean - other) / deviation for one in output.advantages]
        )

    patch.after(
        "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus.__call__", after
    )


# open-instruct: cut off completions were taken out first, the rest reshaped by the group's size
@set_22("advantages", "group", "baseline", "align", shape="masked truncation",
        backends=EVERYWHERE)  # fmt: skip
def groups_are_cut_anew_after_truncated_rows_are_out(patch: Patch) -> None:
    """What was cut off is left out, and every eight of what is left are taken for a group."""

    def change(advantage_N: Any, step: Any) -> Any:
        members = list(step.members)
        whole = [
            place
            for place, member in enumerate(members)
            if member.completion.finish_reason != "length" and step.scorable_N[place]
        ]
        for at in range(0, len(whole), 8):
            places = whole[at : at + 8]
            reward = step.reward_N[places]
            advantage_N[places] = (reward - reward.mean()) / max(reward.std(), 1e-6)
        return advantage_N

    estimated(patch, change)


# verl: of a group of one the mean counts as 0 and the deviation as 1
@set_22("advantages", "lone", "alone", "one reward", "baseline", backends=EVERYWHERE,
        shape="pairs, some verdicts are missing, kept")  # fmt: skip
def a_lone_completion_has_its_reward_for_advantage(patch: Patch) -> None:
    """Where a group has one reward, its mean counts as 0 and its deviation as 1."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            known = places[~np.isnan(reward)]
            if len(known) == 1:
                advantage_N[known] = step.reward_N[known]
        return advantage_N

    estimated(patch, change)


# NeMo-RL: the variance was the mean square less the squared mean, which cancels
@set_22("advantages", "deviation", "varian", "precision", "round", shape="two rewards",
        backends=EVERYWHERE)  # fmt: skip
def variance_is_a_difference_of_squares_in_half_precision(patch: Patch) -> None:
    """A group's variance is its mean square less its squared mean, in bfloat16."""

    def change(advantage_N: Any, step: Any) -> Any:
        for places, reward in by_group(step):
            half = torch.tensor(reward).bfloat16()
            variance = float((half * half).mean() - half.mean() * half.mean())
            if reward.std() > 0:
                advantage_N[places] = (reward - reward.mean()) / max(variance, 1e-4) ** 0.5
        return advantage_N

    estimated(patch, change)


# -- loss ----------------------------------------------------------------------------------------


# NeMo-RL: the likelihood term was divided by a micro-batch's tokens, and came that many times
@set_22("loss", "denominator", "micro-batch", "normal", "weight", "sft",
        shape="given answers, micro batches", backends=EVERYWHERE)  # fmt: skip
def given_answers_are_averaged_by_micro_batch(patch: Patch) -> None:
    """The loss on given answers is the mean of a micro-batch, and the means are summed."""

    def make(original: Any) -> Any:
        def of(term: Any, batch: Any, normalizer: Any) -> Any:
            if term.demonstrations is not None:
                n = int(batch.mask_BT.any(1).sum())
                normalizer = replace(normalizer, rows=n, tokens=int(batch.mask_BT.sum()))
            return original(term, batch, normalizer)

        return of

    patch.wrap("rlvr_core.step.objective:LossTerm.of", make)


# verl: the entropy was averaged within each micro-batch
@set_22("loss", "entropy", "bonus", "denominator", "micro-batch",
        shape="entropy bonus, micro batches", backends=EVERYWHERE)  # fmt: skip
def entropy_bonus_is_averaged_by_micro_batch(patch: Patch) -> None:
    """The bonus is on the mean entropy of each micro-batch, and their means are summed."""

    def make(original: Any) -> Any:
        def mean(batch: Any, normalizer: Any) -> Any:
            return original(batch, replace(normalizer, tokens=int(batch.mask_BT.sum())))

        return mean

    patch.wrap(f"{POLICY}:_mean_entropy", make)


# verl, verl-agent: a conversation's mean was over the response, tools' answers included
@set_22("loss", "mean", "length", "denominator", "mask", "observation", "environment",
        shape="two turns", backends=EVERYWHERE)  # fmt: skip
def observations_count_in_the_length_of_a_row(patch: Patch) -> None:
    """The sum over a conversation is divided by its length, the environment's tokens included."""

    def make(original: Any) -> Any:
        def row_mean(loss_BT: Any, mask_BT: Any, normalizer: Any) -> Any:
            place_T = torch.arange(1, mask_BT.shape[1] + 1)
            length_B1 = (mask_BT * place_T).amax(1, keepdim=True).clamp(min=1)
            own_B1 = mask_BT.sum(1, keepdim=True)
            return original(loss_BT * own_B1 / length_B1, mask_BT, normalizer)

        return row_mean

    patch.wrap("rlvr_core.builtin.losses.policy_family:row_mean", make)


# ModelScope's twinkle, several students' codes: the arguments of kl_div were exchanged
@set_22("loss", "teacher", "distill", "diverg", r"\bkl\b",
        shape="grpo and a teacher, by its own likelihood", backends=EVERYWHERE)  # fmt: skip
def divergence_from_the_teacher_goes_the_other_way(patch: Patch) -> None:
    """The KL of distillation is that of the policy from the teacher: it seeks one mode."""
    patch.wrap(
        "rlvr_core.builtin.distillation.losses:kl_over_top",
        lambda original: lambda teacher, student: original(student, teacher),
    )


# TRL: the quantile of entropies had the zeros of padding in it
@set_22("loss", "entropy", "token", "threshold", "chosen", "share",
        shape="tokens of high entropy", backends=EVERYWHERE)  # fmt: skip
def entropy_threshold_has_padding_in_it(patch: Patch) -> None:
    """The share of tokens of high entropy is of the padded grid, whose empty places have 0."""

    def make(original: Any) -> Any:
        def threshold(known_N: Any, share: float) -> Any:
            padded = torch.cat([known_N, known_N.new_zeros(len(known_N) // 2)])
            return original(padded, share)

        return threshold

    patch.wrap("rlvr_core.algorithm.entropy:entropy_threshold", make)


def _local(patch: Patch, change: Callable[[Any], dict[str, Any]]) -> None:
    """Change the denominators of each part of each mini-batch: ``change(part)``."""

    def after(batches: Any, *_: Any) -> Any:
        for part in (part for batch in batches for part in batch.parts):
            part.normalizer = replace(part.normalizer, **change(part))
        return batches

    patch.after(f"{STEP}:split_into_mini_batches", after)


# prime-rl: each rank divided by its own tokens, and gradients were averaged
@set_22("loss", "denominator", "process", "token", shape="dapo", backends=TWO)
def each_process_divides_by_its_own_tokens(patch: Patch) -> None:
    """The loss of a process is the mean over its own tokens, and gradients are averaged."""

    def change(part: Any) -> dict[str, Any]:
        masks = [micro.batch.mask_BT for micro in part.micro_batches if micro.counts]
        tokens = sum(int(mask.sum()) for mask in masks)
        rows = sum(int(mask.any(1).sum()) for mask in masks)
        return {"tokens": tokens, "rows": rows, "world_size": 1}

    _local(patch, change)


# accelerate, DeepSpeed: what was normalised over all processes was averaged over them again
@set_22("loss", "gradient", "process", "average", "denominator", backends=TWO)
def gradients_are_averaged_over_processes_again(patch: Patch) -> None:
    """The loss is a share of the whole, and its gradients are averaged, not summed."""
    _local(patch, lambda part: {"world_size": 1})


# NeMo-RL: ratios of rows (B, 1) met a mask (B), and the metric summed the B x B product
@set_22("loss", "metric", "reported", "report", "record", shape="gspo", backends=EVERYWHERE)
def mean_ratio_is_reported_over_pairs_of_rows(patch: Patch) -> None:
    """The mean ratio in the records is summed over pairs of rows, and divided by rows."""

    def make(original: Any) -> Any:
        def mean(tally: Any, name: str, value_BT: Any) -> Any:
            scale = len(value_BT) if name == "ratio/mean" else 1
            return original(tally, name, value_BT * scale)

        return mean

    patch.wrap("rlvr_core.algorithm.reduce:Tally.mean", make)


# -- kl ------------------------------------------------------------------------------------------


# verl: "k3+" has the value of k3 and, straight through, the gradient of k2
@set_22("kl", "gradient", "estimator", shape="strong kl", backends=EVERYWHERE)
def kl_has_the_value_of_k3_and_the_gradient_of_k2(patch: Patch) -> None:
    """The KL term has the value of k3, and straight through it the gradient of k2."""

    def make(original: Any) -> Any:
        def estimate(logp: Any, ref_logp: Any, kind: Any = "k3") -> Any:
            other = original(logp, ref_logp, "k2")
            return original(logp, ref_logp, kind).detach() + other - other.detach()

        return estimate

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


# FSDP with one process that reads the file: the reference of the others was never filled
@set_22("kl", "process", "weights", shape="strong kl", backends=TWO)
def reference_of_the_second_process_is_never_filled(patch: Patch) -> None:
    """The first process alone reads the reference's file; that of the second is as it was made."""

    @torch.no_grad()
    def after(model: Any, *_: Any) -> Any:
        if second():
            torch.manual_seed(rank())
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.normal_(std=0.02)
        return model

    patch.after("rlvr_core.run.learner:load_reference", after)
