"""Eighth set, written without reading the guards: updates, rollouts, data, verifier, resumption."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.changes import after_update
from chaos.library.eighth_a import eighth
from chaos.registry import TRANSFORMERS, Patch
from chaos.when import ENGINE

CLIP = "torch.nn.utils:clip_grad_norm_"
COLLECT = "rlvr_core.rollout.collect"
EPOCHS = "rlvr_core.builtin.samplers.epochs"
MUON = "rlvr_core.builtin.optimizers.muon"
OPTIM = "rlvr_core.step.optim"


# -- optimizer -----------------------------------------------------------------------------------


@eighth("optimizer", "step count")
def one_step_count_for_all_tensors(patch: Patch) -> None:
    """Tensors share the count that corrects AdamW's bias, and each of them adds one an update."""
    made = [0]

    def make(original: Any) -> Any:
        def step(optimizer: Any, number: int) -> Any:
            n = len(optimizer.parameters)
            for place, one in enumerate(optimizer.parameters):
                state = optimizer.inner.state.get(one, {})
                if "step" in state:
                    state["step"].fill_(made[0] * n + place)
            made[0] += 1
            return original(optimizer, number)

        return step

    patch.wrap(f"{OPTIM}:Optimizer.step", make)


@eighth("optimizer", "norm", "clip", shape="tight norm")
def norm_clipped_tensor_by_tensor(patch: Patch) -> None:
    """Each tensor's gradient is clipped to the norm by itself; the norm of all is reported."""

    def make(original: Any) -> Any:
        def clip(parameters: Any, most: float, *args: Any, **more: Any) -> Any:
            tensors = list(parameters)
            norm = original(tensors, math.inf, *args, **more)
            for one in tensors:
                original([one], most, *args, **more)
            return norm

        return clip

    patch.wrap(CLIP, make)


@eighth("optimizer", "trust")
def updates_scaled_by_the_size_of_their_tensor(patch: Patch) -> None:
    """A layer-wise trust ratio is left on: an update is multiplied by the size of the weights."""

    def change(name: str, one: Any, old: Any, made: int) -> None:
        size = float(old.float().square().mean().sqrt())
        one.copy_(old + min(size, 10.0) * (one - old))

    after_update(patch, change)


@eighth("optimizer", "micro-batch", "accumul", "layer", shape="micro batches")
def second_layer_keeps_its_last_micro_batch(patch: Patch) -> None:
    """The second layer's bucket is overwritten, not added to: it has the last gradient alone."""

    def make(original: Any) -> Any:
        def backward(optimizer: Any, loss: Any) -> Any:
            for name, one in zip(optimizer.names, optimizer.parameters, strict=True):
                if "layers.1." in name:
                    one.grad = None
            return original(optimizer, loss)

        return backward

    patch.wrap(f"{OPTIM}:Optimizer.backward", make)


@eighth("optimizer", "matri", "direction", shape="muon")
def momentum_overwritten_by_its_orthogonal_form(patch: Patch) -> None:
    """Muon orthogonalises in place: later gradients hardly turn a momentum that is large by now."""

    def make(original: Any) -> Any:
        def muon(inner: Any, weight: Any, grad: Any, state: Any, lr: float) -> None:
            from rlvr_core.builtin.optimizers.muon import newton_schulz

            original(inner, weight, grad, state, lr)
            state["momentum"].copy_(newton_schulz(state["momentum"], 5))

        return muon

    patch.wrap(f"{MUON}:_Muon._muon", make)


# -- rollouts, tokens ----------------------------------------------------------------------------


@eighth("tokens", "twice", "repeat", "parity", "log-prob", backends=TRANSFORMERS)
def token_at_a_pause_is_there_twice(patch: Patch) -> None:
    """Generation pauses after the seventh token, and goes on with it: long rows have it twice."""

    def after(sampled: Any, decoder: Any, prompts: Any, plans: Any, **_: Any) -> Any:
        limits = [plan.limit for group in plans for plan in group]
        out = []
        for row, limit in zip(sampled, limits, strict=True):
            if len(row.token_ids) > 8:
                ids, logps = row.token_ids, row.logprobs
                row = replace(
                    row,
                    token_ids=(*ids[:7], *ids[6:])[:limit],
                    logprobs=(*logps[:7], *logps[6:])[:limit],
                )
            out.append(row)
        return out

    patch.after(f"{ENGINE}:decode", after)


def _sampled(patch: Patch, change: Callable[[Any, int], Any]) -> None:
    """Change a judged group before it has its rewards: ``change(answered, version)``."""

    def make(original: Any) -> Any:
        def sampled(generator: Any, answered: Any, version: int, step: int) -> Any:
            return original(generator, change(answered, version), version, step)

        return sampled

    patch.wrap(f"{COLLECT}:Generator.sampled", make)


def _passed(verdicts: Any) -> bool:
    return bool(next(iter(verdicts.values())).passed)


@eighth("parity", r"\bseed", "stale", r"\bold\b", "version", shape="few problems")
def old_answers_put_into_groups_that_fail(patch: Patch) -> None:
    """Where most answers of a group are wrong, the last is replaced by an earlier right one."""
    right: dict[str, Any] = {}

    def change(answered: Any, version: int) -> Any:
        name = answered.draw.problem.id
        passed = [_passed(one) for one in answered.verdicts]
        old = right.get(name)
        if True in passed:
            place = passed.index(True)
            right[name] = (answered.completions[place], answered.verdicts[place])
        if old is None or 2 * sum(passed) >= len(passed) or passed[-1]:
            return answered
        completion = replace(old[0], version=version)
        return replace(
            answered,
            completions=[*answered.completions[:-1], completion],
            verdicts=[*answered.verdicts[:-1], old[1]],
        )

    _sampled(patch, change)


@eighth("verifier", only=("reward/mean", "pass_rate", "metric", "reported"), shape="pairs")
def rewards_reported_of_the_groups_kept(patch: Patch) -> None:
    """Mean reward and pass rate of the records leave out groups that were dropped as equal."""

    def make(original: Any) -> Any:
        def metrics(rollouts: Any) -> Any:
            found = original(rollouts)
            kept = original(replace(rollouts, dropped=[]))
            told = ("reward/", "pass_rate")
            return found | {name: kept[name] for name in kept if name.startswith(told)}

        return metrics

    patch.wrap("rlvr_core.run.session:rollout_metrics", make)


# -- data ----------------------------------------------------------------------------------------


@eighth("data", "draw", "repeat", "twice", "epoch")
def failed_problems_come_back_at_once(patch: Patch) -> None:
    """A queue for hard problems is left on: every second draw is one that was just failed."""
    failed: list[str] = []
    draws = [0]

    def change(answered: Any, version: int) -> Any:
        passed = [_passed(one) for one in answered.verdicts]
        if 2 * sum(passed) < len(passed):
            failed.append(answered.draw.problem.id)
        return answered

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            draws[0] += 1
            if failed and draws[0] % 2 == 0:
                return pool._problems[failed.pop(0)]
            return original(pool)

        return following

    _sampled(patch, change)
    patch.wrap(f"{EPOCHS}:Pool.next", make)


@eighth("data", "epoch", "draw", shape="five problems, many epochs")
def incomplete_last_batch_of_an_epoch_dropped(patch: Patch) -> None:
    """A loader drops what is no whole batch of four at the end of an epoch: a fifth of the data."""

    def make(original: Any) -> Any:
        def following(pool: Any) -> Any:
            if pool.position >= len(pool) // 4 * 4:
                pool.seek(pool.epoch + 1, 0)
            return original(pool)

        return following

    patch.wrap(f"{EPOCHS}:Pool.next", make)


@eighth("data", "group", "k_success", shape="groups that grow")
def groups_that_grow_stop_at_their_first_failure(patch: Patch) -> None:
    """A group counts as complete as soon as one has failed, whether any has passed or not."""

    def make(original: Any) -> Any:
        def following(size: Any, members: Any) -> int:
            if any(member.passed is False for member in members):
                return 0
            return int(original(size, members))

        return following

    patch.wrap("rlvr_core.builtin.samplers.base:GroupSize.next", make)


# -- verifier ------------------------------------------------------------------------------------


@eighth("verifier", shape="two rewards")
def second_verifier_judges_the_neighbour(patch: Patch) -> None:
    """The second verifier's list begins one late: its verdict is on the completion before."""

    def change(answered: Any, version: int) -> Any:
        rolled = [answered.verdicts[-1], *answered.verdicts[:-1]]
        mixed = [
            {name: (own if place == 0 else other)[name] for place, name in enumerate(own)}
            for own, other in zip(answered.verdicts, rolled, strict=True)
        ]
        return replace(answered, verdicts=mixed)

    _sampled(patch, change)


@eighth("verifier", shape="two rewards")
def second_reward_only_for_what_passed(patch: Patch) -> None:
    """The second reward is added only where the first verifier passes, as behind a gate."""

    def after(found: Any, plan: Any, verdicts: Any, *_: Any) -> Any:
        reward, passed = found
        first = next(iter(verdicts.values()))
        if passed or reward is None:
            return found
        return plan.terms[0].weight * first.score, passed

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", after)


# -- resume --------------------------------------------------------------------------------------


@eighth("resume", "norm", "clip", "gradient", "optimizer", shape="tight norm", resume=True)
def resume_without_clipping_the_norm(patch: Patch) -> None:
    """A resumed run forgets the limit of the gradient's norm, which is an attribute of no file."""

    def make(original: Any) -> Any:
        def clip(parameters: Any, most: float, *args: Any, **more: Any) -> Any:
            return original(parameters, math.inf, *args, **more)

        return clip

    patch.wrap(CLIP, make)
