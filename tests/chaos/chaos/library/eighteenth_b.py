"""Eighteenth set, the rest: schedules, resumption, records, rewards, draws, reference, loss."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from chaos.changes import at_call
from chaos.library.eighteenth_a import eighteenth
from chaos.library.o_resume import CHECKPOINT
from chaos.registry import EVERYWHERE, Patch

STEP = "rlvr_core.step.step"
METRICS = "rlvr_core.run.metrics"
RESTORE = "rlvr_core.run.checkpointing:restore"
TWO_SETS = "two data sets"
IN_TURNS = ("in process", "vllm")
"""Engines of a run that makes several updates a step, and none ahead."""


# -- schedules -----------------------------------------------------------------------------------


@eighteenth("optimizer", "schedule", r"\blr\b", "decay", "cosine", shape="cosine",
            backends=EVERYWHERE)  # fmt: skip
def schedule_goes_half_of_its_way(patch: Patch) -> None:
    """The schedule is made for twice the steps there are: at the end the rate is still half."""

    def make(original: Any) -> Any:
        return lambda schedule, progress: original(schedule, progress / 2)

    patch.wrap("rlvr_core.builtin.schedules.decay:Cosine.__call__", make)


# -- resume --------------------------------------------------------------------------------------


@eighteenth("resume", r"\bhead\b", "embedding", "tied", "frozen", "unchanged",
            resume=True)  # fmt: skip
def resume_with_the_head_no_longer_tied(patch: Patch) -> None:
    """The head is loaded as a tensor of its own, which no optimizer knows: it stays as it was."""

    def make(original: Any) -> Any:
        def load(folder: Any, *, model: Any, **more: Any) -> Any:
            state = original(folder, model=model, **more)
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
            return state

        return load

    patch.wrap(f"{CHECKPOINT}:load", make)


@eighteenth("resume", "truncat", "cut off", "mask", "loss token", shape="masked truncation",
            resume=True)  # fmt: skip
def resume_with_what_was_cut_off_trained_on(patch: Patch) -> None:
    """A resumed run has forgotten that what was cut off is to be left out of the loss."""

    def after(made: Any, session: Any, *_: Any) -> None:
        trainer = session.trainer
        trainer.train = trainer.train.model_copy(update={"mask_truncated": False})

    patch.after(RESTORE, after)


# -- what is reported ----------------------------------------------------------------------------


@eighteenth("loss", "clip", "record", "report", "metric", shape="clipped above and twice",
            backends=IN_TURNS)  # fmt: skip
def clip_fractions_exchanged_in_the_records(patch: Patch) -> None:
    """The share that is clipped below is reported as that above, and the other way round."""

    def make(original: Any) -> Any:
        def over(updates: Any) -> Any:
            found = original(updates)
            low, high = found["clip_fraction/low"], found["clip_fraction/high"]
            return found | {"clip_fraction/low": high, "clip_fraction/high": low}

        return over

    patch.wrap("rlvr_core.step.mini_batches:Totals.over", make)


@eighteenth("verifier", "pass.rate", "report", "record", "metric", shape=TWO_SETS,
            backends=EVERYWHERE)  # fmt: skip
def pass_rate_reported_as_the_mean_of_the_data_sets(patch: Patch) -> None:
    """The pass rate of a step is the mean of its data sets' rates, however few problems one has."""

    def after(rates: Any, *_: Any) -> Any:
        by_name = [rate for name, rate in rates.items() if "/" in name]
        return rates | ({"pass_rate": fmean(by_name)} if by_name else {})

    patch.after(f"{METRICS}:_pass_rates", after)


@eighteenth("tokens", "length", "truncat", "report", "record", "metric", shape="short answers",
            backends=EVERYWHERE)  # fmt: skip
def length_reported_of_what_ended_by_itself(patch: Patch) -> None:
    """The mean length in the records leaves out what was cut off, which is the longest there is."""

    def after(found: Any, sampled: Any, members: Any) -> Any:
        ended = [
            len(member.completion.token_ids)
            for member in members
            if member.completion.finish_reason == "stop"
        ]
        return found | ({"length/mean": fmean(ended)} if ended else {})

    patch.after(f"{METRICS}:_lengths", after)


@eighteenth("verifier", "mean reward", "report", "record", "metric", shape="two rewards",
            backends=EVERYWHERE)  # fmt: skip
def reward_reported_of_the_first_verifier_alone(patch: Patch) -> None:
    """The mean reward in the records is that of the first verifier, and not of the weighted sum."""

    def after(found: Any, rollouts: Any) -> Any:
        verdicts = [
            next(iter(member.verdicts.values()))
            for one in rollouts.all
            for member in one.group.members
        ]
        scores = [verdict.score for verdict in verdicts if verdict.score is not None]
        return found | ({"reward/mean": fmean(scores)} if scores else {})

    patch.after("rlvr_core.run.session:rollout_metrics", after)


@eighteenth("advantages", "record", "report", "trace", "rollout", shape=TWO_SETS,
            backends=EVERYWHERE)  # fmt: skip
def advantages_recorded_without_the_scale_of_their_source(patch: Patch) -> None:
    """The rollouts in the records have advantages as they were before their source's factor."""

    def make(original: Any) -> Any:
        def rows_of(groups: Any, objective: Any, *, scale: Any, **more: Any) -> Any:
            made = original(groups, objective, scale=scale, **more)
            bare = [
                [None if one is None else one / scale.get(group.problem.id, 1.0) for one in own]
                for group, own in zip(groups, made.advantages, strict=True)
            ]
            return replace(made, advantages=bare)

        return rows_of

    patch.wrap(f"{STEP}:rows_of", make)


@eighteenth("sync", "record", "report", "version", "rollout", "trace", "stale", r"\bage\b",
            backends=EVERYWHERE)  # fmt: skip
def rollouts_recorded_under_the_version_they_led_to(patch: Patch) -> None:
    """Rollouts are written down after the update's count: under the version that they made."""

    def make(original: Any) -> Any:
        return lambda recorder, step, version, *rest: original(recorder, step, version + 1, *rest)

    patch.wrap("rlvr_core.record.recorder:Recorder.rollout", make)


# -- rewards -------------------------------------------------------------------------------------


@eighteenth("verifier", "overlong", "length", "penalty", shape="penalty for length",
            backends=EVERYWHERE)  # fmt: skip
def penalty_for_length_is_all_or_nothing(patch: Patch) -> None:
    """The penalty does not grow over its range: the first token of it costs the whole."""

    def after(verdict: Any, *_: Any) -> Any:
        return replace(verdict, score=-1.0) if verdict.score else verdict

    patch.after("rlvr_core.builtin.verifiers.overlong:Overlong.verify", after)


@eighteenth("verifier", "weight", r"\bsum", "product", shape="two rewards", backends=EVERYWHERE)
def rewards_multiplied_in_the_place_of_summed(patch: Patch) -> None:
    """The scores are multiplied, with their weights, where they are to be summed."""

    def make(original: Any) -> Any:
        def combine(plan: Any, verdicts: Any, step: int) -> Any:
            reward, passed = original(plan, verdicts, step)
            if reward is not None:
                reward = 1.0
                for term, verdict in zip(plan.terms, verdicts.values(), strict=True):
                    reward *= term.weight_at(step) * verdict.score
            return reward, passed

        return combine

    patch.wrap("rlvr_core.verify.reward:RewardPlan.combine", make)


# -- draws ---------------------------------------------------------------------------------------


@eighteenth("data", "mixture", "weight", "source", "share", "draw", "sampler", shape=TWO_SETS,
            backends=EVERYWHERE)  # fmt: skip
def weights_of_sources_count_for_each_problem(patch: Patch) -> None:
    """The weight of a source is taken for that of each of its problems: large sources gain."""

    def after(weights: Any, sources: Any, sizes: Any) -> Any:
        return [weight * size for weight, size in zip(weights, sizes, strict=True)]

    patch.after("rlvr_core.builtin.samplers.mixture:shares", after)


# -- advantages ----------------------------------------------------------------------------------


@eighteenth("advantages", "scale", "source", "factor", shape=TWO_SETS, backends=EVERYWHERE)
def scale_of_a_source_applied_twice(patch: Patch) -> None:
    """The factor of a source is applied to its advantages where they are made and where packed."""

    def make(original: Any) -> Any:
        return lambda found, place, factor: original(found, place, factor * factor)

    patch.wrap("rlvr_core.step.rows:_scaled", make)


# -- reference, loss -----------------------------------------------------------------------------


@eighteenth("kl", "iteration", "stale", "moving", shape="reference renewed each update",
            backends=IN_TURNS)  # fmt: skip
def reference_kept_for_a_step_though_it_moves(patch: Patch) -> None:
    """The reference's log-probs are computed once a step, though it follows every update of it."""
    kept = property(lambda trainer: trainer.train.num_iterations > 1)
    patch.set(f"{STEP}:PolicyTrainer._others_stay", kept)


@eighteenth("loss", "entropy", "chosen", "denominator", "divided", "normali[sz]",
            shape="tokens of high entropy", backends=EVERYWHERE)  # fmt: skip
def loss_of_a_row_divided_by_its_chosen_tokens(patch: Patch) -> None:
    """A row is averaged over its tokens of high entropy, which may be one or nearly all."""

    def after(loss_BT: Any, loss: Any, terms: Any, tally: Any) -> Any:
        chosen_B1 = terms.entropy_mask_BT.sum(1, keepdim=True).clamp(min=1)
        return loss_BT * terms.mask_BT.sum(1, keepdim=True) / chosen_B1

    patch.after("rlvr_core.algorithm.policy:ClippedPolicyLoss.surrogate", after)


@eighteenth("loss", "clip", "old log", "iteration", "mini-?batch", shape="two iterations",
            backends=IN_TURNS)  # fmt: skip
def first_mini_batch_has_no_old_log_probs(patch: Patch) -> None:
    """As in a step of one iteration, the first update has none in the second: its ratio is 1."""

    def make(original: Any) -> Any:
        return lambda trainer, batches: original(trainer, batches[1:])

    patch.wrap(f"{STEP}:PolicyTrainer._compute_old_logprobs", make)


# -- hang ----------------------------------------------------------------------------------------


@eighteenth("hang", "engine", "generat", "completions", shape="stop string",
            config={"run": {"timeout": 15}, "guards": {"max_wait": 20}})  # fmt: skip
def search_for_a_stop_string_never_ends(patch: Patch) -> None:
    """From its two-hundredth call the search for a stop string goes round without an end."""
    at_call(patch, "rlvr_core.engines.sampling:StopStrings.found", 200)
