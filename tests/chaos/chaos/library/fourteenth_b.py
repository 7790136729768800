"""Fourteenth set, written without reading the guards: objective, updates, resuming, figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import after_update, by_group, estimated
from chaos.library.fourteenth_a import fourteenth
from chaos.registry import Patch

OPTIM = "rlvr_core.step.optim:Optimizer"
POLICY = "rlvr_core.algorithm.policy"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
BUFFER = "rlvr_core.builtin.asynchronous.buffer:GroupBuffer"
REPORTED = ("metric", "reported", "report", "record")
CHILD = ("child",)

# -- advantages ----------------------------------------------------------------------------------


@fourteenth("advantages", "missing", "unscor", "order", shape="some verdicts are missing")
def missing_rewards_shift_the_advantages_behind_them(patch: Patch) -> None:
    """Missing rewards are left out before, and not put back after: advantages move to the front."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            known = row_N[places][~np.isnan(rewards)]
            row_N[places] = np.pad(known, (0, len(places) - len(known)))
        return row_N

    estimated(patch, change)


@fourteenth("advantages", "mean", "maxrl", "likelihood", shape="towards the likelihood of success")
def likelihood_advantages_divided_by_the_mean_of_the_step(patch: Patch) -> None:
    """MaxRL divides by the mean reward of the step, not by that of the problem."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            row_N[places] = (rewards - rewards.mean()) / max(step.reward_N.mean(), 1e-6)
        return row_N

    estimated(patch, change)


# -- loss ----------------------------------------------------------------------------------------


@fourteenth("loss", "gate", "sapo", "tau", shape="sapo, unlike gates, two iterations")
def gates_of_right_and_wrong_exchanged(patch: Patch) -> None:
    """SAPO's gate closes for right answers as it should for wrong ones, and the other way round."""

    def after(made: Any, loss: Any, *_: Any) -> None:
        loss._pos, loss._neg = loss._neg, loss._pos

    patch.after("rlvr_core.builtin.losses.policy_family:SAPO.__init__", after)


@fourteenth("loss", "importance", "weight", "mismatch", shape="two iterations ahead")
def importance_weights_never_below_one(patch: Patch) -> None:
    """The lower bound of importance weights, 0, is taken of their logarithm: none is below 1."""
    patch.after("rlvr_core.algorithm.ratio:_log_weight", lambda log, *_: log.clamp(min=0.0))


@fourteenth("loss", "denominator", "normali[sz]", "token", shape="dapo")
def denominators_of_the_step_before(patch: Patch) -> None:
    """A loss is divided by the number of rows and tokens that the step before had."""
    kept: dict[int, Any] = {}

    def after(batches: Any, *_: Any) -> Any:
        parts = [part for batch in batches for part in batch.parts]
        for place, part in enumerate(parts):
            now = part.normalizer
            part.normalizer, kept[place] = kept.get(place, now), now
        return batches

    patch.after("rlvr_core.step.step:split_into_mini_batches", after)


@fourteenth("loss", "temper", "given answer", "sft", "imitat", shape="cool, and given answers")
def imitated_answers_at_the_temperature_of_sampling(patch: Patch) -> None:
    """Log-probs of answers to imitate are at the run's temperature, in the place of 1."""

    def after(parts: Any, objective: Any, groups: Any, step: int, temperature: float) -> Any:
        return [replace(part, temperature=temperature) for part in parts]

    patch.after("rlvr_core.step.objective:Objective.parts", after)


# -- updates -------------------------------------------------------------------------------------


@fourteenth("optimizer", "schedule", r"\blr\b", shape="cosine")
def schedule_reported_and_never_applied(patch: Patch) -> None:
    """A compiled update keeps the rate that it was built with: the schedule is in reports alone."""

    def after(made: Any, optimizer: Any, model: Any, train: Any, *_: Any) -> None:
        def at_the_peak(inner: Any, *_: Any) -> None:
            for group in inner.param_groups:
                group["lr"] = train.lr

        optimizer.inner.register_step_pre_hook(at_the_peak)

    patch.after(f"{OPTIM}.__init__", after)


@fourteenth("optimizer", "muon", "scale", "orthogonal", shape="muon")
def muon_scaled_as_in_its_first_version(patch: Patch) -> None:
    """Muon moves matrices by the root of rows by columns, not by as much as AdamW would."""

    def after(found: Any, *_: Any) -> Any:
        rows, columns = found.shape
        return found * math.sqrt(max(1.0, rows / columns)) / (0.2 * math.sqrt(max(rows, columns)))

    patch.after("rlvr_core.builtin.optimizers.muon:newton_schulz", after)


@fourteenth("optimizer", "precision", "round", "half", "bfloat16", "weights?")
def weights_rounded_by_chance_after_each_update(patch: Patch) -> None:
    """Weights are kept in bfloat16 by stochastic rounding, an option of another optimizer."""

    def change(name: str, one: Any, old: Any, made: int) -> None:
        bits = one.view(torch.int32)
        noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32)
        bits.add_(noise).bitwise_and_(-(1 << 16))

    after_update(patch, change)


@fourteenth("optimizer", "frozen", "base", "adapter", "lora", "reference", "moved", shape="lora")
def weights_below_the_adapter_are_trained_too(patch: Patch) -> None:
    """The query projections below an adapter are not frozen, and so move with it."""

    def after(made: Any, model: Any, *_: Any) -> None:
        for name, one in model.named_parameters():
            if "q_proj.base_layer" in name:
                one.requires_grad_(True)

    patch.after("rlvr_core.builtin.lora.lora:attach", after)


@fourteenth("optimizer", "dropout", "recomput", "checkpoint", "loss",
            shape="lora, dropout, recomputed activations")  # fmt: skip
def recomputation_draws_another_dropout(patch: Patch) -> None:
    """The random state is not kept for the second pass: gradients are those of another dropout."""

    def make(original: Any) -> Any:
        return lambda *args, **more: original(*args, **more | {"preserve_rng_state": False})

    patch.wrap("transformers.modeling_utils:checkpoint", make)


# -- KL and reference ----------------------------------------------------------------------------


@fourteenth("kl", "norm", "moved", "weights", shape="moving reference")
def moving_reference_keeps_its_norms(patch: Patch) -> None:
    """A moving reference is given the policy's matrices, and keeps the norms of the start."""

    def after(pairs: Any, *_: Any) -> Any:
        return ((own, new) for own, new in pairs if own.ndim > 1)

    patch.after("rlvr_core.step.reference:SeparateModel._pairs", after)


@fourteenth("kl", "advantage", "return", "negative", shape="reinforce++ with a strong kl")
def negative_kl_of_tokens_left_out_of_returns(patch: Patch) -> None:
    """Where a token is less likely than under the reference, its KL counts as 0 in the reward."""

    def make(original: Any) -> Any:
        def estimate(estimator: Any, step: Any) -> Any:
            clipped = tuple(np.maximum(one, 0.0) for one in step.kl_N)
            return original(estimator, replace(step, kl_N=clipped))

        return estimate

    place = "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus.__call__"
    patch.wrap(place, make)


@fourteenth("kl", "old", shape="two iterations")
def later_updates_are_held_to_the_old_policy(patch: Patch) -> None:
    """In all updates of a step but the first the KL is that to the policy of the step's start."""

    def make(original: Any) -> Any:
        def losses(trainer: Any, part: Any, micro: Any, masks: Any, aux: Any, old_BT: Any) -> Any:
            held = aux if old_BT is None else replace(aux, ref_logp_BT=old_BT)
            return original(trainer, part, micro, masks, held, old_BT)

        return losses

    patch.wrap(f"{TRAINER}._losses", make)


# -- resuming ------------------------------------------------------------------------------------


@fourteenth("resume", "draw", "sampler", "difficult", "pass rate", resume=True,
            shape="difficulty, few problems")  # fmt: skip
def resume_with_the_queues_of_the_start(patch: Patch) -> None:
    """Pass rates of problems come back, and the queues they are drawn from begin anew."""

    def after(made: Any, sampler: Any, position: Any) -> None:
        records, sampler._records = sampler._records, {}
        sampler._sort()
        sampler._records = records

    patch.after("rlvr_core.builtin.samplers.difficulty:Difficulty.seek", after)


# -- figures -------------------------------------------------------------------------------------


def _figures(patch: Patch, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
    """Change the figures of a step's updates."""
    place = "rlvr_core.step.mini_batches:Totals.over"
    patch.after(place, lambda found, *_: found | change(found))


@fourteenth("kl", only=(*REPORTED, r"\bkl\b"), shape="strong kl")
def kl_reported_with_its_weight(patch: Patch) -> None:
    """The mean KL in the records is what it adds to the loss: it is multiplied by beta."""
    _figures(patch, lambda found: {"kl/mean": 0.2 * found["kl/mean"]})


@fourteenth("verifier", only=(*REPORTED, "reward/mean"))
def mean_reward_reported_smoothed(patch: Patch) -> None:
    """The mean reward in the records is the smoothed one of a chart, seven tenths of it old."""
    kept: dict[str, float] = {}

    def after(found: Any, *_: Any) -> Any:
        now = found["reward/mean"]
        kept["mean"] = 0.7 * kept.get("mean", now) + 0.3 * now
        return found | {"reward/mean": kept["mean"]}

    patch.after("rlvr_core.run.session:rollout_metrics", after)


@fourteenth("data", only=(*REPORTED, "prompt", "trace", "rollout"))
def records_have_the_prompt_of_the_group_before(patch: Patch) -> None:
    """The records show each group's completions behind the prompt of the group before."""
    kept: dict[str, str] = {}

    def make(original: Any) -> Any:
        def rollout(
            recorder: Any, step: int, version: int, group: Any, text: str, *more: Any
        ) -> None:
            shown, kept["text"] = kept.get("text", text), text
            original(recorder, step, version, group, shown, *more)

        return rollout

    patch.wrap("rlvr_core.record.recorder:Recorder.rollout", make)


# -- ages ----------------------------------------------------------------------------------------


@fourteenth("sync", "stale", "version", r"\bage", r"\bold", "ahead", backends=CHILD)
def generation_runs_further_ahead_than_allowed(patch: Patch) -> None:
    """Groups may be four updates old, a default of another run, where the config says one."""

    def make(original: Any) -> Any:
        def init(buffer: Any, refill: Any, *, max_staleness: int, **more: Any) -> None:
            original(buffer, refill, max_staleness=4, **more)

        return init

    patch.wrap(f"{BUFFER}.__init__", make)


@fourteenth("sync", "stale", "version", r"\bage", r"\bold", backends=CHILD)
def groups_get_the_version_of_their_handing_over(patch: Patch) -> None:
    """A group is labelled with the version at which the trainer takes it, so that none is old."""

    def after(rollouts: Any, buffer: Any, step: int) -> Any:
        now = buffer._version
        relabelled = [replace(one, group=replace(one.group, version=now)) for one in rollouts.kept]
        return replace(rollouts, kept=relabelled)

    patch.after(f"{BUFFER}.take", after)
