"""Eleventh set, written without reading the guards: objective, updates, resuming, reports, ages."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from chaos.changes import after_update, by_group, estimated
from chaos.library.eleventh_a import SAMPLER, eleventh
from chaos.registry import Patch

OPTIM = "rlvr_core.step.optim"
POLICY = "rlvr_core.algorithm.policy:PolicyLoss"
FAMILY = "rlvr_core.builtin.losses.policy_family"
TRAINER = "rlvr_core.step.step:PolicyTrainer"
REPORTED = ("metric", "reported", "report", "record")

# -- advantages ----------------------------------------------------------------------------------


@eleventh("advantages", "difficult", "weight", "scale")
def advantages_weighted_by_difficulty(patch: Patch) -> None:
    """A recipe's weight is left on: the advantages of a group times the share that failed."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            row_N[places] *= 1.0 - np.clip(np.nanmean(rewards), 0.0, 1.0)
        return row_N

    estimated(patch, change)


@eleventh("advantages", "baseline", "mean", "centr")
def baseline_is_the_best_of_the_group(patch: Patch) -> None:
    """The baseline is the reward of a greedy answer, taken to be the best of the group."""

    def change(row_N: Any, step: Any) -> Any:
        for places, rewards in by_group(step):
            row_N[places] = (rewards - rewards.max()) / max(rewards.std(), 1e-6)
        return row_N

    estimated(patch, change)


@eleventh("advantages", "round", "precision")
def advantages_read_back_with_one_decimal(patch: Patch) -> None:
    """Advantages go through a file that has one decimal of them."""
    estimated(patch, lambda row_N, step: np.round(row_N, 1))


# -- loss ----------------------------------------------------------------------------------------


@eleventh("loss", "length", "mean", "normali[sz]", "row")
def rows_divided_by_the_root_of_their_length(patch: Patch) -> None:
    """The sum over a row is divided by the root of its length, and not by its length."""

    def make(original: Any) -> Any:
        def row_mean(loss_BT: Any, mask_BT: Any, normalizer: Any) -> Any:
            root_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1).sqrt()
            return original(loss_BT * root_B1, mask_BT, normalizer)

        return row_mean

    patch.wrap(f"{FAMILY}:row_mean", make)


@eleventh("loss", "token", "mean", "normali[sz]", shape="dapo")
def dapo_averages_over_rows(patch: Patch) -> None:
    """DAPO averages over rows and their tokens, as GRPO does, and not over all tokens."""

    def make(original: Any) -> Any:
        def token_mean(loss_BT: Any, mask_BT: Any, normalizer: Any) -> Any:
            from rlvr_core.algorithm.reduce import row_mean

            return row_mean(loss_BT, mask_BT, normalizer)

        return token_mean

    patch.wrap(f"{FAMILY}:token_mean", make)


@eleventh("loss", "off.policy", "mask", "drop", shape="off-policy mask, far")
def off_policy_mask_takes_positive_rows_too(patch: Patch) -> None:
    """Rows far from their sampling are left out whatever the sign of their advantage."""

    def make(original: Any) -> Any:
        def near(loss: Any, terms: Any, behaviour_BT: Any, threshold: float, tally: Any) -> Any:
            negative = replace(terms, advantage_BT=-terms.advantage_BT.abs() - 1e-9)
            return original(loss, negative, behaviour_BT, threshold, tally)

        return near

    patch.wrap(f"{POLICY}._near", make)


@eleventh("loss", "weight", "sft", "term", shape="grpo and given answers")
def weight_of_the_second_loss_ignored(patch: Patch) -> None:
    """A refactoring adds losses up as they are: the weight of 0.3 of the second one is 1."""

    def make(original: Any) -> Any:
        def losses(trainer: Any, *args: Any) -> Any:
            found = original(trainer, *args)
            return [(replace(term, weight=1.0), output) for term, output in found]

        return losses

    patch.wrap(f"{TRAINER}._losses", make)


@eleventh("loss", "old", "ratio", shape="two iterations")
def old_log_probs_rolled_by_one_row(patch: Patch) -> None:
    """In later iterations each row is compared with what the row before it began with."""

    def make(original: Any) -> Any:
        def losses(trainer: Any, part: Any, micro: Any, masks: Any, aux: Any, old_BT: Any) -> Any:
            moved = None if old_BT is None else old_BT.roll(1, 0)
            return original(trainer, part, micro, masks, aux, moved)

        return losses

    patch.wrap(f"{TRAINER}._losses", make)


# -- KL and reference ----------------------------------------------------------------------------


@eleventh("kl", "free", "threshold", shape="strong kl")
def free_nats_taken_off_the_kl(patch: Patch) -> None:
    """The KL costs only what is above a hundredth of a nat a token, as in a model of a world."""

    def after(kl_BT: Any, *_: Any) -> Any:
        return (kl_BT - 0.01).clamp(min=0.0)

    patch.after(f"{POLICY}._kl", after)


@eleventh("kl", "moved", "changed", "embedding", shape="strong kl")
def reference_shares_the_embedding_of_the_policy(patch: Patch) -> None:
    """The reference is a shallow copy: its embedding, and so its head, is the policy's own."""

    def make(original: Any) -> Any:
        def init(reference: Any, model: Any, policy: Any, section: Any) -> None:
            original(reference, model, policy, section)
            model.set_input_embeddings(policy.get_input_embeddings())
            model.tie_weights()

        return init

    patch.wrap("rlvr_core.step.reference:SeparateModel.__init__", make)


@eleventh("kl", "temper", shape="cool")
def reference_at_the_square_of_the_temperature(patch: Patch) -> None:
    """The reference's logits are divided by the temperature once by its head and once more."""
    from rlvr_core.step.forward import completion_logprobs

    def make(original: Any) -> Any:
        def logprobs(trainer: Any, model: Any, batch: Any) -> Any:
            if model is trainer.model:
                return original(trainer, model, batch)
            return completion_logprobs(
                model,
                batch,
                autocast_dtype=trainer.precision.autocast,
                temperature=trainer.temperature**2,
            )

        return logprobs

    patch.wrap(f"{TRAINER}._logprobs", make)


# -- updates -------------------------------------------------------------------------------------


@eleventh("optimizer", "centr")
def gradients_centralised(patch: Patch) -> None:
    """An option of another optimizer stays on: each row of a gradient has a mean of 0."""

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            for one in optimizer.parameters:
                if one.grad is not None and one.ndim == 2:
                    one.grad.sub_(one.grad.mean(dim=1, keepdim=True))
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@eleventh("optimizer", "sign", "cautious", "direction")
def cautious_updates_left_on(patch: Patch) -> None:
    """Entries whose update goes against the gradient of the moment stay as they are."""
    kept: dict[int, Any] = {}

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            kept.clear()
            kept.update({id(p): p.grad.clone() for p in optimizer.parameters if p.grad is not None})
            return original(optimizer, number)

        return step

    def change(name: str, one: Any, old: Any, made: int) -> None:
        grad = kept.get(id(one))
        if grad is not None:
            one.copy_(torch.where((one - old) * grad > 0, old, one))

    after_update(patch, change)
    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@eleventh("optimizer", "adam", "momentum")
def optimizer_is_nadam(patch: Patch) -> None:
    """The name of the optimizer is looked up by its beginning in a list: NAdam comes for AdamW."""

    def make(original: Any) -> Any:
        def build(builder: Any, parameters: Any, lr: float) -> Any:
            config = builder.config
            return torch.optim.NAdam(
                [one.tensor for one in parameters], lr=lr, betas=config.betas, eps=config.eps
            )

        return build

    patch.wrap(f"{OPTIM}:AdamW.build", make)


@eleventh("optimizer", "muon", "orthogonal", "iteration", "newton", shape="muon")
def muon_iterates_twice_only(patch: Patch) -> None:
    """Newton and Schulz's iteration is made twice to save time, and not five times."""

    def make(original: Any) -> Any:
        return lambda matrix, iterations: original(matrix, 2)

    patch.wrap("rlvr_core.builtin.optimizers.muon:newton_schulz", make)


@eleventh("optimizer", "schedule", "decay", r"\blr\b", shape="linear warm-up and decay")
def decay_counted_from_the_first_step(patch: Patch) -> None:
    """The decay after the warm-up counts steps from the run's first, not from the warm-up's end."""

    def make(original: Any) -> Any:
        def rate(train: Any, schedule: Any, step: int) -> float:
            if step < train.warmup_steps:
                return float(original(train, schedule, step))
            return float(train.lr * schedule(step / max(1, train.steps - 1)))

        return rate

    patch.wrap(f"{OPTIM}:learning_rate", make)


@eleventh("optimizer", "norm", "clip")
def norm_clipped_at_a_fixed_tenth(patch: Patch) -> None:
    """A wrapper clips at its own default of 0.1 before the run's own bound is looked at."""

    def make(original: Any) -> Any:
        def clip(parameters: Any, most: float, *args: Any, **more: Any) -> Any:
            parameters = list(parameters)
            norm = original(parameters, 0.1)
            original(parameters, most)
            return norm

        return clip

    patch.wrap("torch.nn.utils:clip_grad_norm_", make)


# -- resume --------------------------------------------------------------------------------------


@eleventh("resume", "moment", "step", "optimizer", resume=True)
def resume_with_steps_of_adam_counted_twice(patch: Patch) -> None:
    """A checkpoint's step counts of the optimizer are doubled: both of two writers added theirs."""

    def make(original: Any) -> Any:
        def load(optimizer: Any, tensors: Any) -> None:
            doubled = {n: 2 * t if n.endswith("|step") else t for n, t in tensors.items()}
            original(optimizer, doubled)

        return load

    patch.wrap(f"{OPTIM}:Optimizer.load_state_tensors", make)


@eleventh("resume", "group", "size", r"\bn\b", resume=True)
def resume_with_groups_of_six(patch: Patch) -> None:
    """A resumed run takes the number of completions a group from a newer default."""
    from rlvr_core.builtin.samplers.base import GroupSize

    def make(original: Any) -> Any:
        def load(sampler: Any, state: Any) -> None:
            original(sampler, state)
            sampler._size = GroupSize(6, 6)

        return load

    patch.wrap(f"{SAMPLER}.load_state_dict", make)


# -- reported numbers ----------------------------------------------------------------------------


@eleventh("verifier", only=(*REPORTED, "reward/mean"))
def reward_reported_of_the_best_of_each_group(patch: Patch) -> None:
    """The mean reward in the records is that of each group's best completion."""

    def after(found: Any, rollouts: Any) -> Any:
        best = [max(member.reward or 0.0 for member in one.group.members) for one in rollouts.all]
        if best and "reward/mean" in found:
            found["reward/mean"] = sum(best) / len(best)
        return found

    patch.after("rlvr_core.run.session:rollout_metrics", after)


@eleventh("loss", only=(*REPORTED, "entropy"))
def entropy_reported_in_bits(patch: Patch) -> None:
    """The mean entropy in the records is in bits, where all else is in nats."""

    def after(done: Any, *_: Any) -> Any:
        if "entropy/mean" in done:
            done["entropy/mean"] /= math.log(2)
        return done

    patch.after("rlvr_core.step.mini_batches:finish", after)


@eleventh("advantages", only=(*REPORTED, "advantage"))
def advantages_recorded_in_another_order(patch: Patch) -> None:
    """The records have the advantages of a group sorted, beside completions that are not."""

    def make(original: Any) -> Any:
        def rollout(
            recorder: Any, step: int, version: int, group: Any, text: str, fates: Any,
            advantages: Any, draw: int,
        ) -> None:  # fmt: skip
            ordered = sorted(advantages, key=lambda one: -math.inf if one is None else one)
            original(recorder, step, version, group, text, fates, ordered, draw)

        return rollout

    patch.wrap("rlvr_core.record.recorder:Recorder.rollout", make)


# -- ages ----------------------------------------------------------------------------------------


@eleventh("sync", "stale", "version", r"\bage", "token", shape="kept in flight, generation behind")
def versions_of_tokens_after_a_renewal_lost(patch: Patch) -> None:
    """Tokens sampled after new weights came amid a completion carry the first version."""
    patch.after("rlvr_core.engines.transformers:_token_versions", lambda versions, *_: ())


@eleventh("seeds", "turn", "random", shape="two turns")
def second_turn_repeats_the_random_numbers_of_the_first(patch: Patch) -> None:
    """Each turn of a conversation is drawn with the seed of its first turn."""

    def make(original: Any) -> Any:
        return lambda seed, turn: seed

    patch.wrap("rlvr_core.builtin.environments.turns:turn_seed", make)
