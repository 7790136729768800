"""Sixteenth set, written without reading the guards: objective, updates, resuming, figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import at_call, estimated
from chaos.library.sixteenth_a import sixteenth
from chaos.registry import EVERYWHERE, TRANSFORMERS, Patch

OPTIM = "rlvr_core.step.optim"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
RESTORE = "rlvr_core.builtin.resumption.resumption:restore"
REPORTED = ("metric", "reported", "report", "record")
IN_TURNS = ("in process", "vllm")
"""Engines of shapes with more updates a step than a child engine may be behind."""
RANK = 4
"""Of the gradient of a matrix that is left."""

# -- advantages ----------------------------------------------------------------------------------


@sixteenth("advantages", "deviation", "dropped", "batch", "scale", "normal",
           shape="batch advantages, pairs", backends=EVERYWHERE)  # fmt: skip
def deviation_has_the_dropped_groups_in_it(patch: Patch) -> None:
    """Rewards are normalised before groups are filtered: the deviation is that of all drawn."""
    drawn: list[float] = []

    def taken(metrics: Any, rollouts: Any, *_: Any) -> Any:
        drawn[:] = [
            member.reward
            for one in rollouts.all
            for member in one.group.members
            if member.reward is not None
        ]
        return metrics

    def change(row_N: Any, step: Any) -> Any:
        # of what is left to train on, which the advantages were divided by
        ours, all_drawn = float(np.nanstd(step.reward_N)), float(np.std(drawn))
        return row_N * (ours + 1e-4) / (all_drawn + 1e-4)

    patch.after("rlvr_core.run.session:rollout_metrics", taken)
    estimated(patch, change)


@sixteenth("advantages", "baseline", "group", "mean", "centr", shape="reinforce++ by group",
           backends=EVERYWHERE)  # fmt: skip
def baseline_of_a_group_is_forgotten(patch: Patch) -> None:
    """The option for a baseline by problem is not passed on: REINFORCE++ has none."""

    def make(original: Any) -> Any:
        def init(estimator: Any, config: Any) -> None:
            original(estimator, config.model_copy(update={"group_baseline": False}))

        return init

    patch.wrap("rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus.__init__", make)


@sixteenth("advantages", "token", "shift", "late", "align", shape="reinforce++ with a strong kl",
           backends=EVERYWHERE)  # fmt: skip
def advantages_of_tokens_one_token_late(patch: Patch) -> None:
    """Each token has the advantage of the one before it, the first that of padding."""

    def after(found: Any, rows: Any) -> Any:
        return found if found is None else found.roll(1, dims=1)

    patch.after("rlvr_core.step.batch:_token_advantages", after)


# -- loss ----------------------------------------------------------------------------------------


@sixteenth("loss", "attention", "pack", "prompt", "share", backends=EVERYWHERE)
def completions_send_no_gradient_into_their_prompt(patch: Patch) -> None:
    """Keys and values of a shared prompt are taken from a cache, through which nothing goes back.

    The prompt's tokens are computed once for all its completions, which see them as constants.
    """

    def after(total: Any, *_: Any) -> Any:
        return torch.zeros_like(total)

    patch.after("rlvr_core.builtin.packing.joined_attention:JoinedMask.sum_prompt_keys", after)


@sixteenth("loss", "clip", shape="dapo, three iterations", backends=IN_TURNS)
def upper_bound_of_the_clip_is_the_lower_one(patch: Patch) -> None:
    """One number is read for both sides of the clip: the wider one above is never used."""

    def make(original: Any) -> Any:
        def surrogate(ratio: Any, advantage: Any, *, low: float, high: float, **more: Any) -> Any:
            return original(ratio, advantage, low=low, high=low, **more)

        return surrogate

    patch.wrap("rlvr_core.algorithm.policy:clipped_surrogate", make)


@sixteenth("loss", "importance", r"\bcap", "weight", "mismatch", "truncat",
           shape="stale, weighed by rows")  # fmt: skip
def caps_of_importance_weights_ignored(patch: Patch) -> None:
    """Importance weights are left as they are, however large."""

    def make(original: Any) -> Any:
        def weight(old: Any, behaviour: Any, mask: Any, config: Any, tally: Any) -> Any:
            return original(
                old, behaviour, mask, config.model_copy(update={"cap": math.inf}), tally
            )

        return weight

    patch.wrap("rlvr_core.algorithm.policy:importance_weight", make)


@sixteenth("loss", "entropy", "threshold", "chosen", "micro", shape="high entropy, micro batches",
           backends=EVERYWHERE)  # fmt: skip
def entropy_threshold_of_each_micro_batch_alone(patch: Patch) -> None:
    """The tokens of highest entropy are chosen in each micro-batch, not in the whole update."""

    def make(original: Any) -> Any:
        def masks(trainer: Any, part: Any, work: Any) -> Any:
            found = [original(trainer, part, [micro]) for micro in work]
            least = {share: min(one[share] for one, _ in found) for share in found[0][0]}
            return least, [mask for _, (mask,) in found]

        return masks

    patch.wrap(f"{TRAINER}._entropy_masks", make)


@sixteenth("loss", "teacher", "distil", "temperature", "divergence", shape="a teacher, cool")
def teacher_at_temperature_one(patch: Patch) -> None:
    """The teacher's log-probs are those of a server, at temperature 1; the policy's are cooler."""

    from rlvr_core.builtin.distillation.teacher import Teacher

    original = Teacher.top_tokens

    def top_tokens(*args: Any, temperature: float, **more: Any) -> Any:
        patch.hit()
        return original(*args, temperature=1.0, **more)

    Teacher.top_tokens = staticmethod(top_tokens)  # type: ignore[method-assign]


@sixteenth("loss", r"\bcap", "clip", "weight", "cispo", shape="cispo, three iterations",
           backends=IN_TURNS)  # fmt: skip
def cispo_has_the_cap_of_reinforce(patch: Patch) -> None:
    """The cap on a token's weight is 1, as in REINFORCE, not 5."""

    def make(original: Any) -> Any:
        def init(loss: Any, config: Any) -> None:
            original(loss, config)
            loss._cap = 1.0

        return init

    patch.wrap("rlvr_core.builtin.losses.policy_family:CISPO.__init__", make)


# -- KL, adapters --------------------------------------------------------------------------------


@sixteenth("kl", "mask", "last token", "end of", "sum", shape="strong kl", backends=EVERYWHERE)
def kl_left_out_at_the_end_of_a_row(patch: Patch) -> None:
    """The mask of the KL stops one token short: a row's last token is held to nothing."""

    def after(kl_BT: Any, loss: Any, batch: Any, *_: Any) -> Any:
        mask_BT = batch.mask_BT
        behind_BT = mask_BT.flip(1).cumsum(1).flip(1)
        return torch.where(behind_BT > 1, kl_BT, 0.0)

    patch.after("rlvr_core.algorithm.policy:PolicyLoss._kl", after)


@sixteenth("kl", "adapter", "lora", "version 0", "begin", "start", "initial", shape="lora",
           backends=TRANSFORMERS)  # fmt: skip
def second_matrices_of_adapters_do_not_begin_at_zero(patch: Patch) -> None:
    """Both matrices of an adapter are drawn at random: the policy is not the model it came from."""

    @torch.no_grad()
    def after(made: Any, model: Any, *_: Any, **more: Any) -> Any:
        random = torch.Generator().manual_seed(1)
        for name, one in model.named_parameters():
            if "lora_B" in name:
                one.copy_(0.05 * torch.randn(one.shape, generator=random))
        return made

    patch.after("rlvr_core.builtin.lora.lora:attach", after)


@sixteenth("learning", "adapter", "lora", "alpha", "rank", "scal", shape="lora",
           backends=TRANSFORMERS)  # fmt: skip
def adapters_scaled_by_the_root_of_their_rank(patch: Patch) -> None:
    """A library's newer scale is on: an adapter counts alpha over the root of its rank."""

    def make(original: Any) -> Any:
        return lambda **options: original(**{**options, "use_rslora": True})

    patch.wrap("peft:LoraConfig", make)


# -- optimizer -----------------------------------------------------------------------------------


@sixteenth("optimizer", "amsgrad", "square", "step size", backends=EVERYWHERE)
def amsgrad_left_on(patch: Patch) -> None:
    """Adam divides by the largest mean square there was, and its steps never grow again."""

    def after(inner: Any, *_: Any) -> Any:
        for group in inner.param_groups:
            group["amsgrad"] = True
        return inner

    patch.after(f"{OPTIM}:AdamW.build", after)


@sixteenth("optimizer", "norm", "clip", shape="tight norm", backends=EVERYWHERE)
def norm_is_that_of_the_largest_entry(patch: Patch) -> None:
    """The norm that is clipped and reported is the largest entry of the gradient."""

    def make(original: Any) -> Any:
        return lambda tensors, most, **more: original(tensors, most, norm_type=math.inf)

    patch.wrap("torch.nn.utils:clip_grad_norm_", make)


@sixteenth("optimizer", "rank", "project", "matri", backends=EVERYWHERE)
def gradients_projected_to_a_low_rank(patch: Patch) -> None:
    """Low-rank training of another recipe is left on: a matrix's gradient keeps four directions."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
                if one.grad is not None and one.ndim == 2 and "embed" not in name:
                    left_AR = torch.linalg.svd(one.grad, full_matrices=False).U[:, :RANK]
                    one.grad = left_AR @ (left_AR.T @ one.grad)
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@sixteenth("optimizer", "micro", "accumulat", "norm", shape="micro batches", backends=EVERYWHERE)
def an_update_after_each_micro_batch(patch: Patch) -> None:
    """Accumulation is not announced to a wrapper: the optimizer steps for every micro-batch."""
    waiting = [False]

    def backward(original: Any) -> Any:
        def called(optimizer: Any, loss: Any) -> Any:
            original(optimizer, loss)
            waiting[0] = True

        return called

    def losses(original: Any) -> Any:
        def called(trainer: Any, *args: Any) -> Any:
            if waiting[0]:
                trainer.optimizer.inner.step()
                trainer.optimizer.inner.zero_grad(set_to_none=True)
                waiting[0] = False
            return original(trainer, *args)

        return called

    def step(original: Any) -> Any:
        def called(optimizer: Any, number: int) -> Any:
            waiting[0] = False
            return original(optimizer, number)

        return called

    patch.wrap(f"{OPTIM}:Optimizer.backward", backward)
    patch.wrap(f"{TRAINER}._losses", losses)
    patch.wrap(f"{OPTIM}:Optimizer.step", step)


@sixteenth("optimizer", "schedule", "decay", "wsd", r"\blr\b", shape="constant, then down",
           backends=EVERYWHERE)  # fmt: skip
def decay_takes_the_share_that_should_be_constant(patch: Patch) -> None:
    """The share of the decay is read as that of the constant part: it begins after a quarter."""

    def make(original: Any) -> Any:
        def init(schedule: Any, config: Any) -> None:
            original(schedule, config)
            schedule._decay = 1.0 - config.decay

        return init

    patch.wrap("rlvr_core.builtin.schedules.decay:WSD.__init__", make)


# -- resuming ------------------------------------------------------------------------------------


@sixteenth("resume", "replay", r"\breads?\b", "again", "stale", shape="groups read thrice",
           resume=True)  # fmt: skip
def resume_with_the_reads_of_groups_counted_anew(patch: Patch) -> None:
    """Groups that wait to be read again have all their reads left when a run is resumed."""

    def after(entry: Any, *_: Any) -> Any:
        entry.left = entry.sampled.reads
        return entry

    patch.after("rlvr_core.builtin.replay.buffer:_entry", after)


@sixteenth("resume", "stop", "string", "sampling", shape="stop string", resume=True)
def resume_with_the_stop_strings_forgotten(patch: Patch) -> None:
    """A resumed run samples to the end of sequence: stop strings are not read again."""

    def after(made: Any, session: Any, *_: Any) -> None:
        session.rollouts._params = replace(session.rollouts._params, stop=())

    patch.after(RESTORE, after)


# -- hang ----------------------------------------------------------------------------------------


@sixteenth("hang", "teacher", shape="grpo and a teacher",
           config={"run": {"timeout": 15}, "guards": {"max_wait": 20}})  # fmt: skip
def teacher_never_answers(patch: Patch) -> None:
    """The teacher's fifth micro-batch waits for a server that is gone."""
    at_call(patch, f"{TRAINER}._aux_logprobs", 5)


# -- figures -------------------------------------------------------------------------------------


@sixteenth("loss", only=(*REPORTED, r"\bloss\b", "weight"), shape="grpo and given answers",
           backends=EVERYWHERE)  # fmt: skip
def loss_reported_without_the_weights_of_its_terms(patch: Patch) -> None:
    """The loss in the records is the plain sum of its terms, not what was minimised."""

    from rlvr_core.step.mini_batches import Totals

    original = Totals.over

    def over(updates: Any) -> Any:
        patch.hit()
        metrics = original(updates)
        terms = [name for name in metrics if name in ("loss/grpo", "loss/sft")]
        return metrics | {"loss": sum(metrics[name] for name in terms)}

    Totals.over = staticmethod(over)  # type: ignore[method-assign]


@sixteenth("loss", only=(*REPORTED, "clip"), shape="two iterations", backends=IN_TURNS)
def clip_fractions_counted_whatever_the_sign(patch: Patch) -> None:
    """A token counts as clipped where its ratio left the range, though its gradient did not end."""

    def make(original: Any) -> Any:
        def surrogate(ratio: Any, advantage: Any, *, low: float, high: float, **more: Any) -> Any:
            found = original(ratio, advantage, low=low, high=high, **more)
            return replace(found, low_BT=ratio < 1 - low, high_BT=ratio > 1 + high)

        return surrogate

    patch.wrap("rlvr_core.algorithm.policy:clipped_surrogate", make)


@sixteenth("verifier", only=(*REPORTED, "pass[ _]rate", "passed"), backends=EVERYWHERE)
def pass_rate_reported_of_what_could_be_read(patch: Patch) -> None:
    """Completions without an answer that can be read are left out of the pass rate."""

    def make(original: Any) -> Any:
        def rates(sampled: Any) -> Any:
            return original([_read(one) for one in sampled])

        return rates

    patch.wrap("rlvr_core.run.metrics:_pass_rates", make)


def _read(one: Any) -> Any:
    """A group without the completions of which no answer was read."""
    members = tuple(
        member
        for member in one.group.members
        if any(verdict.extracted is not None for verdict in member.verdicts.values())
    )
    return replace(one, group=replace(one.group, members=members))
