"""Second set, written later and without reading the guards: advantages, loss, KL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import estimated
from chaos.registry import Patch, later

POLICY = "rlvr_core.algorithm.policy"
STEP = "rlvr_core.step.step"


# -- advantages ----------------------------------------------------------------------------------


@later("advantages", "group")
def groups_read_across(patch: Patch) -> None:
    """Mean and deviation go over the wrong axis: over every n-th completion, not over a problem."""

    def make(original: Any) -> Any:
        def advantages(rewards_N: Any, group_N: Any, *more: Any) -> Any:
            groups = len(set(torch.as_tensor(group_N).tolist()))
            return original(rewards_N, torch.arange(len(group_N)) % groups, *more)

        return advantages

    patch.wrap("rlvr_core.algorithm.advantages:advantages", make)


@later("advantages")
def baseline_of_the_whole_run(patch: Patch) -> None:
    """The baseline is the mean reward of the run so far, not that of the group."""
    seen: list[float] = []

    def change(row_N: Any, step: Any) -> Any:
        seen.extend(step.reward_N.tolist())
        return np.where(np.isnan(step.reward_N), 0.0, step.reward_N - np.nanmean(seen))

    estimated(patch, change)


@later("advantages")
def deviation_plus_one(patch: Patch) -> None:
    """What keeps the deviation from 0 is 1, not 1e-6."""

    def change(row_N: Any, step: Any) -> Any:
        out = row_N.copy()
        for group in np.unique(step.group_N):
            own = step.group_N == group
            std = np.nanstd(step.reward_N[own])
            out[own] = row_N[own] * std / (std + 1)
        return out

    estimated(patch, change)


@later("advantages", "discount")
def advantages_discounted(patch: Patch) -> None:
    """Each token has its row's advantage times 0.8 for every token that follows."""

    def discounted(row: Any) -> Any:
        n = len(row.token_ids)
        own = tuple(row.advantage * 0.8 ** (n - 1 - t) for t in range(n))
        return replace(row, token_advantages=own)

    def after(made: Any, *_: Any) -> Any:
        return replace(made, by_group=[[discounted(row) for row in g] for g in made.by_group])

    patch.after(f"{STEP}:rows_of", after)


@later("advantages", shape="batch advantages")
def deviation_of_the_step_before(patch: Patch) -> None:
    """Advantages over the batch are divided by the deviation of the step before."""
    last: list[float] = []

    def change(row_N: Any, step: Any) -> Any:
        std = float(np.nanstd(step.reward_N))
        before = last[-1] if last else 1.0
        last.append(std)
        return row_N * (std + 1e-4) / (before + 1e-4)

    estimated(patch, change)


# -- loss ----------------------------------------------------------------------------------------


@later("loss", "clip")
def clip_bounds_swapped(patch: Patch) -> None:
    """The ratio is clipped to between 1 + high and 1 - low: below where it is above."""

    def make(original: Any) -> Any:
        def surrogate(ratio: Any, adv: Any, *, low: float, high: float, **more: Any) -> Any:
            clipped = ratio.clamp(1 + high, 1 - low)
            loss_BT = -torch.minimum(ratio * adv, clipped * adv)
            return replace(original(ratio, adv, low=low, high=high, **more), loss_BT=loss_BT)

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@later("loss", "nothing can be learn")
def ratio_detached(patch: Patch) -> None:
    """The ratio has no gradient: of the loss, only the KL term has one."""
    patch.after(f"{POLICY}:exp_linear", lambda ratio, *_: ratio.detach())


@later("loss", "clip", shape="two iterations")
def larger_of_the_two_arms(patch: Patch) -> None:
    """The surrogate takes the larger of the clipped and the unclipped arm, not the smaller."""

    def make(original: Any) -> Any:
        def surrogate(ratio: Any, adv: Any, *, low: float, high: float, **more: Any) -> Any:
            clipped = ratio.clamp(1 - low, 1 + high)
            loss_BT = -torch.maximum(ratio * adv, clipped * adv)
            return replace(original(ratio, adv, low=low, high=high, **more), loss_BT=loss_BT)

        return surrogate

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@later("loss", "normal", "token")
def rows_divided_by_padded_length(patch: Patch) -> None:
    """The sum over a row is divided by the length it is padded to, not by its own."""

    def make(original: Any) -> Any:
        def row_mean(loss_BT: Any, mask_BT: Any, normalizer: Any) -> Any:
            share_B = mask_BT.sum(1).clamp(min=1) / mask_BT.shape[1]
            return original(loss_BT * share_B[:, None], mask_BT, normalizer)

        return row_mean

    patch.wrap("rlvr_core.builtin.losses.policy_family:row_mean", make)


@later("loss", "normal", "accumul", shape="micro batches")
def divided_by_micro_batches_again(patch: Patch) -> None:
    """The loss, already a share of the step's, is divided by the number of micro-batches again."""
    count = {"n": 1}

    def note(original: Any) -> Any:
        def accumulate(trainer: Any, batch: Any, *more: Any) -> Any:
            count["n"] = sum(len(part.micro_batches) for part in batch.parts)
            return original(trainer, batch, *more)

        return accumulate

    def make(original: Any) -> Any:
        return lambda optimizer, loss: original(optimizer, loss / count["n"])

    patch.wrap(f"{STEP}:PolicyTrainer._accumulate", note)
    patch.wrap("rlvr_core.step.optim:Optimizer.backward", make)


@later("loss", "clip", shape="two iterations")
def ratio_of_the_whole_row(patch: Patch) -> None:
    """Each token has the ratio of its whole row, a product, in the place of its own."""

    def after(terms: Any, *_: Any) -> Any:
        total_B1 = torch.where(terms.mask_BT, terms.log_ratio_BT, 0.0).sum(1, keepdim=True)
        return replace(terms, ratio_BT=total_B1.exp().expand_as(terms.ratio_BT))

    patch.after(f"{POLICY}:PolicyLoss._terms", after)


# -- KL ------------------------------------------------------------------------------------------


@later("kl", "loss")
def kl_weight_grows(patch: Patch) -> None:
    """A controller that nobody asked for multiplies the KL's weight by 1.5 at every step."""
    steps = {"n": -1}

    def note(original: Any) -> Any:
        def update(*args: Any) -> Any:
            steps["n"] += 1
            return original(*args)

        return update

    patch.wrap(f"{STEP}:PolicyTrainer.update", note)
    patch.after(f"{POLICY}:PolicyLoss._kl", lambda kl_BT, *_: kl_BT * 1.5 ** steps["n"])


@later("kl", "loss", shape="strong kl")
def kl_capped(patch: Patch) -> None:
    """The KL of a token is cut at 0.003, so that a token that is far away has no gradient."""
    patch.after(f"{POLICY}:PolicyLoss._kl", lambda kl_BT, *_: kl_BT.clamp(max=0.003))


@later("kl", "estimator", shape="strong kl")
def kl_is_k1(patch: Patch) -> None:
    """The KL term uses the estimator k1, where k3 was asked for."""

    def make(original: Any) -> Any:
        return lambda logp, ref_logp, kind="k3": original(logp, ref_logp, "k1")

    patch.wrap(f"{POLICY}:kl_policy_ref", make)


@later("kl", shape="strong kl")
def reference_without_the_prompt(patch: Patch) -> None:
    """The reference sees of a prompt its last token only."""

    def make(original: Any) -> Any:
        def logprobs(trainer: Any, model: Any, batch: Any) -> Any:
            if model is not trainer.model:
                last_S = batch.prompt_len_S - 1
                ids_S1 = batch.prompt_ids_SP.gather(1, last_S[:, None])
                ones_S = torch.ones_like(last_S)
                batch = replace(batch, prompt_ids_SP=ids_S1, prompt_len_S=ones_S)
            return original(trainer, model, batch)

        return logprobs

    patch.wrap(f"{STEP}:PolicyTrainer._logprobs", make)


@later("kl", shape="moving reference")
def reference_moves_at_the_wrong_updates(patch: Patch) -> None:
    """The reference takes the policy's weights at every odd version, not at every even one."""

    def make(original: Any) -> Any:
        return lambda reference, version: original(reference, version + 1)

    patch.wrap("rlvr_core.step.reference:_Moving.follow", make)


@later("kl", shape="strong kl")
def reference_drifts(patch: Patch) -> None:
    """The reference, which is to stay, follows the policy by a twentieth at every step."""

    def after(report: Any, trainer: Any, *_: Any) -> Any:
        pairs = zip(trainer.reference.model.parameters(), trainer.model.parameters(), strict=True)
        with torch.no_grad():
            for own, new in pairs:
                own.lerp_(new.to(own.dtype), 0.05)
        return report

    patch.after(f"{STEP}:PolicyTrainer.update", after)
