"""Thirteenth set, written without reading the guards: objective, updates, resuming, reports."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import estimated
from chaos.library.thirteenth_a import thirteenth
from chaos.registry import Patch

DISTILLATION = "rlvr_core.builtin.distillation"
LORA = "rlvr_core.builtin.lora"
OPTIM = "rlvr_core.step.optim"
OUTCOMES = "rlvr_core.builtin.advantages.outcomes"
POLICY = "rlvr_core.algorithm.policy"
RESTORE = "rlvr_core.builtin.resumption.resumption:restore"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
DISTILLED = ("teacher", "distil", "divergence")
REPORTED = ("metric", "reported", "report", "record")

# -- advantages ----------------------------------------------------------------------------------


@thirteenth("advantages", "maxrl", "estimator", "formula", shape="maxrl")
def maxrl_falls_back_to_the_deviation(patch: Patch) -> None:
    """An unknown name of an estimator is taken for the default: divided by the deviation."""

    def make(original: Any) -> Any:
        return lambda reward_n: (reward_n - reward_n.mean()) / max(reward_n.std(), 1e-6)

    patch.wrap(f"{OUTCOMES}:_over_mean", make)


@thirteenth("advantages", "pass.?at.?k", "pass@k", "estimator", shape="pass at three of eight")
def pass_at_k_of_one_less(patch: Patch) -> None:
    """The subsets have one completion less than k: the formula counts k from 0."""

    def make(original: Any) -> Any:
        def of_group(estimator: Any, reward_n: Any) -> Any:
            estimator._k -= 1
            try:
                return original(estimator, reward_n)
            finally:
                estimator._k += 1

        return of_group

    patch.wrap(f"{OUTCOMES}:PassAtK._of_group", make)


@thirteenth("advantages", "return", "token", "normali[sz]", "whiten", "mean", shape="reinforce++")
def returns_whitened_over_rows(patch: Patch) -> None:
    """Mean and deviation of the returns are those of rows, each counted once, not of all tokens."""

    def after(found: Any, estimator: Any, step: Any) -> Any:
        masks = [np.array(one.completion.loss_mask, dtype=bool) for one in step.members]
        rows = [np.asarray(one) for one in found.advantages]
        means = [
            row[mask].mean()
            for row, mask, ok in zip(rows, masks, step.scorable_N, strict=True)
            if ok and mask.any()
        ]
        mean, std = np.mean(means), max(np.std(means), 1e-4)
        return replace(found, advantages=[(row - mean) / std for row in rows])

    place = "rlvr_core.builtin.advantages.reinforce_plus_plus:ReinforcePlusPlus.__call__"
    patch.after(place, after)


@thirteenth("advantages", "group", "baseline", "duplicate", shape="each problem twice a step")
def groups_of_one_problem_merged(patch: Patch) -> None:
    """Groups are told apart by the id of their problem: two of one problem have one baseline."""

    def change(row_N: Any, step: Any) -> Any:
        ids = np.array([step.groups[group].problem.id for group in step.group_N])
        for id_ in np.unique(ids):
            places = np.flatnonzero(ids == id_)
            rewards = step.reward_N[places]
            row_N[places] = (rewards - rewards.mean()) / max(rewards.std(), 1e-6)
        return row_N

    estimated(patch, change)


# -- loss ----------------------------------------------------------------------------------------


@thirteenth("loss", "delta", "clip", shape="clipped above and twice")
def second_clip_forgotten(patch: Patch) -> None:
    """A refactoring loses the bound on ratios of negative advantages: delta is never handed on."""

    def make(original: Any) -> Any:
        def clipped(*args: Any, **more: Any) -> Any:
            return original(*args, **(more | {"delta": None}))

        return clipped

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@thirteenth("loss", "off.policy", "drift", "mask", shape="off-policy mask, far")
def off_policy_drift_summed_over_a_row(patch: Patch) -> None:
    """A row's drift is the sum over its tokens, and is held against a threshold for their mean."""

    def after(mean_B1: Any, log_ratio_BT: Any, mask_BT: Any) -> Any:
        return mean_B1 * mask_BT.sum(dim=1, keepdim=True)

    patch.after(f"{POLICY}:row_mean_log_ratio", after)


@thirteenth("loss", "importance", "weight", shape="far ahead, four updates a step")
def importance_weights_scaled_to_a_mean_of_one(patch: Patch) -> None:
    """Importance weights are divided by their mean over the micro-batch, an option of others."""

    def after(found: Any, old_BT: Any, behaviour_BT: Any, mask_BT: Any, *_: Any) -> Any:
        if found is None:
            return None
        whole_BT = found.expand_as(mask_BT)
        return whole_BT / whole_BT[mask_BT].mean().clamp(min=1e-6)

    patch.after(f"{POLICY}:importance_weight", after)


@thirteenth("loss", "vespo", "phi", "sequence", "ratio", shape="vespo, two iterations")
def vespo_takes_the_mean_for_the_product(patch: Patch) -> None:
    """A completion's ratio is the geometric mean of its tokens' ratios, where it is the product."""

    def make(original: Any) -> Any:
        def weighed(loss: Any, loss_BT: Any, terms: Any, weight_BT: Any, tally: Any) -> Any:
            tokens_B1 = terms.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
            mean = replace(terms, log_ratio_BT=terms.log_ratio_BT / tokens_B1)
            return original(loss, loss_BT, mean, weight_BT, tally)

        return weighed

    patch.wrap("rlvr_core.builtin.losses.vespo:VESPO.weighed", make)


@thirteenth("loss", "entropy", "coefficient", "bonus", shape="entropy steered")
def entropy_control_moves_thrice_an_update(patch: Patch) -> None:
    """The weight of the entropy bonus is steered in a hook that is called three times an update."""

    def make(original: Any) -> Any:
        def steer(trainer: Any, total: Any) -> None:
            for _ in range(3):
                original(trainer, total)

        return steer

    patch.wrap(f"{TRAINER}._update_entropy_coefficients", make)


@thirteenth("loss", "temperature", "given answer", "sft", "nll", shape="given answers, cool")
def given_answers_at_the_temperature_of_sampling(patch: Patch) -> None:
    """The likelihood of given answers is taken at the temperature that completions have."""

    def after(found: Any, objective: Any, groups: Any, step: int, temperature: float) -> Any:
        return [replace(part, temperature=temperature) if part.given else part for part in found]

    patch.after("rlvr_core.step.objective:Objective.parts", after)


# -- teachers ------------------------------------------------------------------------------------


@thirteenth("loss", *DISTILLED, "prompt", shape="taught by itself")
def teacher_sees_the_prompt_of_the_policy(patch: Patch) -> None:
    """The teacher that is to be told more gets the policy's own prompt: it knows nothing better."""
    patch.wrap(
        f"{DISTILLATION}.teacher:Teacher.view", lambda original: lambda teacher, batch: batch
    )


@thirteenth("loss", *DISTILLED, shape="grpo and a teacher")
def divergence_the_other_way_round(patch: Patch) -> None:
    """Teacher and policy are exchanged in the call of the divergence: alpha is the policy's."""

    def make(original: Any) -> Any:
        return lambda teacher_K, student_K, alpha: original(student_K, teacher_K, alpha)

    patch.wrap(f"{DISTILLATION}.losses:jsd_over_top", make)


@thirteenth("loss", *DISTILLED, "shift", "position", shape="grpo and a teacher")
def teachers_probabilities_one_token_late(patch: Patch) -> None:
    """The teacher's probabilities come from a server, and are put one token further than theirs."""

    def after(found: Any, *_: Any) -> Any:
        late = {
            name: (ids, logp_BTK.roll(1, 1))
            for name, (ids, logp_BTK) in found.teacher_logprobs.items()
        }
        return replace(found, teacher_logprobs=late)

    patch.after(f"{TRAINER}._aux_logprobs", after)


# -- updates -------------------------------------------------------------------------------------


class _EpsilonWithin(torch.optim.AdamW):
    """AdamW with epsilon below the root, as one library has it."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for one in group["params"]:
                if one.grad is None:
                    continue
                state = self.state[one]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(one)
                    state["exp_avg_sq"] = torch.zeros_like(one)
                state["step"] += 1
                made = float(state["step"])
                state["exp_avg"].lerp_(one.grad, 1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(one.grad, one.grad, value=1 - second)
                square = state["exp_avg_sq"] / (1 - second**made)
                one.mul_(1 - group["lr"] * group["weight_decay"])
                mean = state["exp_avg"] / (1 - first**made)
                one.sub_(group["lr"] * mean / (square + group["eps"]).sqrt())


@thirteenth("optimizer", "epsilon", r"\beps\b", "adam")
def epsilon_within_the_root(patch: Patch) -> None:
    """Another library's AdamW adds epsilon to the mean square, below the root."""

    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            config = builder.config
            return _EpsilonWithin(
                [one.tensor for one in parameters],
                lr=lr,
                betas=config.betas,
                eps=config.eps,
                weight_decay=config.weight_decay,
            )

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


@thirteenth("optimizer", "muon", "scale", "size", "orthogonal", shape="muon")
def muon_scaled_for_another_rate(patch: Patch) -> None:
    """A library's Muon scales updates as at first: not by what makes AdamW's rate fit them."""

    def after(update_AB: Any, matrix_AB: Any, *_: Any) -> Any:
        rows, columns = matrix_AB.shape
        return update_AB * math.sqrt(max(1.0, rows / columns) / max(rows, columns)) / 0.2

    patch.after("rlvr_core.builtin.optimizers.muon:newton_schulz", after)


@thirteenth("optimizer", "precision", "round", "half")
def moments_kept_in_half_precision(patch: Patch) -> None:
    """To save memory the moments are bfloat16: small gains of the mean square round away."""

    def make(original: Any) -> Any:
        @torch.no_grad()
        def step(optimizer: Any, number: int) -> Any:
            said = original(optimizer, number)
            for state in optimizer.inner.state.values():
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name].copy_(state[name].bfloat16())
            return said

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@thirteenth("optimizer", "accumul", "micro", "precision", "round", "half", shape="micro batches")
def gradients_added_up_in_half_precision(patch: Patch) -> None:
    """Gradients of micro-batches are added up in a buffer of bfloat16."""

    def make(original: Any) -> Any:
        def backward(optimizer: Any, loss: Any) -> None:
            original(optimizer, loss)
            for one in optimizer.parameters:
                if one.grad is not None:
                    one.grad.copy_(one.grad.bfloat16())

        return backward

    patch.wrap(f"{OPTIM}:Optimizer.backward", make)


# -- adapters ------------------------------------------------------------------------------------


@thirteenth("learning", "dropout", "seed", "random", shape="lora without kl")
def dropout_of_the_adapter_never_changes(patch: Patch) -> None:
    """The dropout of the adapter is seeded anew with one number for every micro-batch."""
    patch.wrap(f"{LORA}.lora:dropout", lambda original: lambda model, *key: original(model, 0))


@thirteenth("optimizer", "base", "adapter", "frozen", "train(ed|able)", r"\bkl\b", "reference",
            shape="lora", dtypes=("float32",))  # fmt: skip
def norms_of_the_base_are_trained_too(patch: Patch) -> None:
    """Norms below an adapter are not frozen: they are trained, and no adapter file has them."""

    def after(found: Any, adapter: Any, model: Any, *_: Any) -> Any:
        for name, one in model.named_parameters():
            if "norm" in name:
                one.requires_grad_(True)
        return found

    patch.after(f"{LORA}.model_adapter:LoraAdapter.install", after)


@thirteenth("kl", "adapter", "lora_A", "moved", shape="lora, moving reference")
def moving_reference_takes_half_of_the_adapter(patch: Patch) -> None:
    """Of an adapter the moving reference takes the second matrix alone; its first one stays."""

    def make(original: Any) -> Any:
        def pairs(adapter: Any, model: Any) -> Any:
            return (one for one in original(adapter, model) if ".lora_B." in one[0])

        return pairs

    patch.wrap(f"{LORA}.model_adapter:LoraAdapter.reference_pairs", make)


# -- resume --------------------------------------------------------------------------------------


def _restored(patch: Patch, change: Any) -> None:
    """Change a session when it has been restored."""
    patch.after(RESTORE, lambda found, session, *_: change(session))


@thirteenth("resume", "iteration", "update", shape="two iterations", resume=True)
def resume_with_one_iteration_a_step(patch: Patch) -> None:
    """A resumed run reads the rows of a step once, where it read them twice before."""

    def change(session: Any) -> None:
        trainer = session.trainer
        trainer.train = trainer.train.model_copy(update={"num_iterations": 1})

    _restored(patch, change)


@thirteenth("resume", r"top[-_ ]?p\b", "sampl", shape="top p", resume=True)
def resume_with_top_p_forgotten(patch: Patch) -> None:
    """A resumed run samples from the whole distribution: top-p is 1 until somebody sets it."""

    def change(session: Any) -> None:
        rollouts = session.rollouts
        rollouts._params = replace(rollouts._params, top_p=1.0)

    _restored(patch, change)


# -- reported numbers ----------------------------------------------------------------------------


@thirteenth("kl", only=(*REPORTED, r"\bkl\b"))
def kl_reported_with_the_padding(patch: Patch) -> None:
    """The mean KL in the records is over all places of a micro-batch, those of padding too."""

    def after(found: Any, tally: Any, name: str, *_: Any) -> None:
        if name == "kl/mean":
            total, count = tally.sums[name]
            tally.sums[name] = (total, torch.full_like(count, tally.mask_BT.numel()))

    patch.after("rlvr_core.algorithm.reduce:Tally.mean", after)


@thirteenth("optimizer", only=(*REPORTED, "norm"), shape="two iterations")
def norm_reported_of_the_last_update(patch: Patch) -> None:
    """Of a step with several updates the norm of the last one is in the records, not the mean."""

    def after(found: Any, totals: Any, updates: Any, iterations: int) -> Any:
        return found | {"grad_norm": updates[-1].grad_norm}

    patch.after("rlvr_core.step.step:summarize_updates", after)


@thirteenth("masks", only=(*REPORTED, "loss token", "tokens?/loss", "tokens? of the loss"))
def loss_tokens_reported_with_those_of_prompts(patch: Patch) -> None:
    """The number of loss tokens in the records has the tokens of each row's prompt in it."""

    def after(found: Any, parts: Any, normalizer: Any) -> Any:
        for part in parts:
            rows = [row for row in part.rows if any(row.loss_mask)]
            found[f"{part.prefix}tokens/loss"] += sum(len(row.prompt_ids) for row in rows)
        return found

    patch.after("rlvr_core.step.step:count_rows", after)
