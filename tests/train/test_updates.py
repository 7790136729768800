"""Several optimizer updates a step: mini-batches of its groups, and iterations over them.

The oracle is plain PyTorch in float64: the model on one row at a time, the losses written out as
they stand in the papers, and AdamW by its formula.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from importlib.util import find_spec

import pytest
import torch
from pydantic import ValidationError
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    Group,
    Judged,
    Problem,
)
from rlvr_core.config.model import ReferenceSection, TrainSection
from rlvr_core.losses import DAPO, GRPO
from rlvr_core.step.objective import LossTerm
from rlvr_core.step.reference import SeparateModel
from rlvr_core.step.step import PolicyTrainer
from tests.support.train.small import estimator_for, small_model, small_trainer

needs_algos = pytest.mark.skipif(find_spec("rlvr_algos") is None, reason="comes with rlvr-algos")
LR, BETA, LOW, HIGH = 2e-2, 0.1, 0.1, 0.15
VERSION = 7
OFF = {"mode": "off"}


def tiny(seed=0, dtype=torch.float64):
    return small_model(seed, num_hidden_layers=2).to(dtype)


def groups(version=VERSION, count=5, seed=3):
    """Groups of 2 to 4 completions, lengths 1 to 6; numbers that float32 holds exactly."""
    draw = torch.Generator().manual_seed(seed)

    def integers(low, high, n):
        return tuple(torch.randint(low, high, (n,), generator=draw).tolist())

    made = []
    for g in range(count):
        prompt, size = integers(1, 20, 2 + g), (2, 4, 2, 4, 2)[g % 5]
        members = []
        for place in range(size):
            n = 1 + (2 * g + place) % 6
            logprobs = tuple(-k / 16 for k in integers(8, 60, n))
            mask = tuple(not (n > 2 and t == 1) for t in range(n))
            done = Completion(prompt, integers(1, 20, n), logprobs, mask, "", "stop")
            members.append(Judged(done, {}, float(place == 0), place == 0))
        made.append(Group(Problem(f"p{g}", "?", "v", {}, "toy"), tuple(members), version))
    return made


def trainer_of(model, terms, *, reference=None, advantage="auto", **train):
    section = TrainSection(
        **({"steps": 9, "lr": LR, "warmup_steps": 0, "tokens_per_micro_batch": 60} | train)
    )
    return small_trainer(
        model,
        terms,
        section,
        reference=reference,
        temperature=0.8,
        estimator=estimator_for(terms, advantage),
    )


def row_logp(model, completion):
    """Log-probs of the tokens of one completion at temperature 0.8, nothing shared or packed."""
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
    first = len(completion.prompt_ids) - 1
    logp = torch.log_softmax(model(ids).logits[0, first:-1] / 0.8, dim=-1)
    return logp.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]


class Oracle:
    """AdamW with decoupled decay and clipping by norm, and clipped losses with a k3 KL."""

    def __init__(self, model, reference, cap=None):
        self.model, self.reference, self.cap = model, reference, cap
        self.moments = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()}
        self.updates = 0

    def update(self, batch, old, name):
        """One update on groups; returns clipped and all loss tokens, and the gradient's norm."""
        rows = [(m, a) for g in batch for m, a in zip(g.members, self.centred(g), strict=True)]
        tokens = sum(sum(m.completion.loss_mask) for m, _ in rows)
        loss, clipped = 0.0, 0
        for member, advantage in rows:
            mask = torch.tensor(member.completion.loss_mask)
            logp = row_logp(self.model, member.completion)
            with torch.no_grad():
                d = row_logp(self.reference, member.completion) - logp
            ratio = (logp - old[id(member)]).exp()
            d = d - (logp - logp.detach())
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - LOW, 1 + HIGH) * advantage)
            if self.cap is not None:
                sampled = torch.tensor(member.completion.logprobs, dtype=torch.float64)
                surrogate = surrogate * (old[id(member)] - sampled).exp().clamp(max=self.cap)
            per_token = (-surrogate + BETA * (d.exp() - d - 1))[mask]
            share = per_token.mean() / len(rows) if name == "grpo" else per_token.sum() / tokens
            loss = loss + share
            good = torch.as_tensor(advantage) > 0
            out = torch.where(good, ratio > 1 + HIGH, ratio < 1 - LOW)
            clipped += int(out[mask].sum())
        self.model.zero_grad()
        loss.backward()
        grads = {p: p.grad for p in self.model.parameters()}
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads.values()))
        self.updates += 1
        with torch.no_grad():
            for p, g in grads.items():
                g = g * min(1.0, 1.0 / (norm + 1e-6))
                m, v = self.moments[p]
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                m_hat, v_hat = m / (1 - 0.9**self.updates), v / (1 - 0.999**self.updates)
                p.sub_(LR * m_hat / (v_hat.sqrt() + 1e-5))
        return clipped, tokens, norm, float(loss.detach())

    @staticmethod
    def centred(group):
        rewards = [m.reward for m in group.members]
        return [r - sum(rewards) / len(rewards) for r in rewards]

    def old(self, step_groups):
        """The log-probs of the policy at the start of the step, whatever version sampled."""
        with torch.no_grad():
            return {
                id(m): row_logp(self.model, m.completion) for g in step_groups for m in g.members
            }


@pytest.fixture(autouse=True)
def exact_norms(monkeypatch):
    """Qwen3's norm rounds to float32 in transformers, whatever its input."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, True) + self.variance_epsilon)

    monkeypatch.setattr(Qwen3RMSNorm, "forward", forward)


@pytest.mark.parametrize(
    ("name", "mini_batches", "iterations", "cap"),
    [
        ("grpo", 1, 2, None),
        ("dapo", 2, 1, None),
        ("grpo", 2, 3, 1.25),
        ("dapo", 3, 2, 1.25),
    ],
)
def test_updates_are_those_of_plain_pytorch(name, mini_batches, iterations, cap):
    """Weights after a step of several updates, to 1e-9; two steps, so that both begin anew.

    Groups of the current version, and of one and two versions ago: decoupled PPO clips against the
    policy at the start of the step, and weighs from what sampled to that one.
    """
    cls = {"grpo": GRPO, "dapo": DAPO}[name]
    correction = OFF if cap is None else {"mode": "token_truncate", "cap": cap}
    loss = cls(
        cls.Config(clip_low=LOW, clip_high=HIGH, beta=BETA, importance_correction=correction)
    )
    model, frozen = tiny(0), tiny(1).requires_grad_(False)
    oracle = Oracle(copy.deepcopy(model), frozen, cap)
    made = trainer_of(
        model,
        [LossTerm(name, loss)],
        advantage="center",
        reference=SeparateModel(frozen, model, ReferenceSection()),
        mini_batches=mini_batches,
        num_iterations=iterations,
    )
    for step, seed in enumerate((3, 4)):
        step_groups = groups(seed=seed)
        step_groups[1] = groups(version=VERSION - 1, seed=seed)[1]
        step_groups[2] = groups(version=VERSION - 2, seed=seed)[2]
        report = made.update(step_groups, step, VERSION)
        old = oracle.old(step_groups)
        found = [
            [oracle.update(step_groups[b::mini_batches], old, name) for b in range(mini_batches)]
            for _ in range(iterations)
        ]
        for ours, theirs in zip(model.parameters(), oracle.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
        check_metrics(report, found)


class ByToken:
    """An estimator with numbers of its own for every token, which float32 holds exactly."""

    traits = AdvantageTraits(per_token=True)

    def __call__(self, step):
        return AdvantageOutput([self.of(member) for member in step.members])

    @staticmethod
    def of(member):
        ids = member.completion.token_ids
        return [(7 * token + 3 * t) % 16 / 8 - 1 for t, token in enumerate(ids)]


class OracleByToken(Oracle):
    @staticmethod
    def centred(group):
        return [torch.tensor(ByToken.of(m), dtype=torch.float64) for m in group.members]


@pytest.mark.parametrize(
    ("name", "budget", "mini_batches", "iterations"), [("grpo", 500, 1, 1), ("dapo", 60, 2, 2)]
)
def test_advantages_by_token_are_those_of_plain_pytorch(name, budget, mini_batches, iterations):
    cls = {"grpo": GRPO, "dapo": DAPO}[name]
    loss = cls(cls.Config(clip_low=LOW, clip_high=HIGH, beta=BETA, importance_correction=OFF))
    model, frozen = tiny(0), tiny(1).requires_grad_(False)
    oracle = OracleByToken(copy.deepcopy(model), frozen)
    section = TrainSection(
        steps=9,
        lr=LR,
        warmup_steps=0,
        tokens_per_micro_batch=budget,
        mini_batches=mini_batches,
        num_iterations=iterations,
    )
    made = small_trainer(
        model,
        [LossTerm(name, loss)],
        section,
        reference=SeparateModel(frozen, model, ReferenceSection()),
        temperature=0.8,
        estimator=Estimator("by-token", ByToken()),
    )
    step_groups = groups()
    report = made.update(step_groups, 0, VERSION)
    old = oracle.old(step_groups)
    for _ in range(iterations):
        for b in range(mini_batches):
            oracle.update(step_groups[b::mini_batches], old, name)
    for ours, theirs in zip(model.parameters(), oracle.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    first = step_groups[0].members[0]
    kept = [a for a, m in zip(ByToken.of(first), first.completion.loss_mask, strict=True) if m]
    assert report.advantages[0][0] == pytest.approx(sum(kept) / len(kept))


@needs_algos
def test_reinforce_plus_plus_is_given_the_kl_to_the_reference():
    """Policy - reference of each token at the start of the step, whatever the packing."""
    model, frozen = tiny(0), tiny(1).requires_grad_(False)
    terms = [LossTerm("grpo", GRPO(GRPO.Config(importance_correction=OFF)))]
    made = trainer_of(
        model,
        terms,
        reference=SeparateModel(frozen, model, ReferenceSection()),
        advantage="reinforce_plus_plus",
    )
    assert made.objective.needs_reference
    step_groups = groups()
    found = made._reference_kl(step_groups)
    members = [member for group in step_groups for member in group.members]
    assert len(found) == len(members)
    with torch.no_grad():
        for kl_T, member in zip(found, members, strict=True):
            d = row_logp(model, member.completion) - row_logp(frozen, member.completion)
            expected = torch.where(torch.tensor(member.completion.loss_mask), d, 0.0)
            torch.testing.assert_close(torch.from_numpy(kl_T), expected, rtol=0, atol=1e-9)
    assert made.update(step_groups, 0, VERSION).metrics["advantage/return_std"] > 0


def check_metrics(report, found):
    flat = [one for iteration in found for one in iteration]
    metrics = report.metrics

    def clip_fraction(ones, prefix=""):
        total = metrics[f"{prefix}clip_fraction/low"] + metrics[f"{prefix}clip_fraction/high"]
        expected = sum(one[0] for one in ones) / sum(one[1] for one in ones)
        assert total == pytest.approx(expected, rel=1e-6)
        return expected

    assert report.applied == len(report.updates) == len(flat) == metrics["updates/applied"]
    assert clip_fraction(flat) > 0
    assert metrics["grad_norm"] == pytest.approx(sum(one[2] for one in flat) / len(flat))
    assert metrics["grad_norm/max"] == pytest.approx(max(one[2] for one in flat))
    assert metrics["loss"] == pytest.approx(sum(one[3] for one in flat) / len(flat), abs=1e-9)
    assert metrics["rows"] == 14
    assert metrics["rows/read"] == 14 * len(found)
    assert metrics["tokens/loss"] == sum(one[1] for one in found[0])
    if len(found) > 1:
        by_iteration = [
            clip_fraction(ones, f"iteration/{number}/") for number, ones in enumerate(found, 1)
        ]
        assert by_iteration[-1] > by_iteration[0]
    else:
        assert not any(name.startswith("iteration/") for name in metrics)


class Noting(GRPO):
    """GRPO that remembers its batches and denominators; on demand its loss is not finite."""

    def __init__(self, bad=()):
        super().__init__(GRPO.Config(importance_correction=OFF))
        self.seen, self.denominators, self.bad = [], [], set(bad)

    def __call__(self, batch, normalizer):
        self.seen.append(batch)
        self.denominators.append((normalizer.rows, normalizer.tokens))
        found = super().__call__(batch, normalizer)
        if len(self.seen) - 1 in self.bad:
            return type(found)(found.loss * torch.nan, found.sums, found.maxima)
        return found


@pytest.fixture
def passes(monkeypatch):
    """Forward passes so far, by function of rlvr_core.step.forward and model."""
    calls = Counter()
    plain = PolicyTrainer._compute

    def noting(self, compute, model, batch, **more):
        calls[compute.__name__, model is self.model] += 1
        return plain(self, compute, model, batch, **more)

    monkeypatch.setattr(PolicyTrainer, "_compute", noting)
    return calls


OLD = ("completion_logprobs", True)
REFERENCE = ("completion_logprobs", False)


def test_one_update_a_step_is_what_it_was(passes):
    """No pass for old log-probs, and none of the metrics of several."""
    loss = Noting()
    made = trainer_of(tiny(), [LossTerm("grpo", loss)], tokens_per_micro_batch=500)
    report = made.update(groups(), 0, VERSION)
    assert report.applied == 1
    assert passes[OLD] == 0
    many = ("updates/", "iteration/", "grad_norm/", "rows/read")
    assert not any(name.startswith(many) for name in report.metrics)
    assert report.metrics["ratio/max"] == 1.0


def test_groups_are_never_split_and_denominators_are_the_mini_batchs():
    loss = Noting()
    made = trainer_of(
        tiny(),
        [LossTerm("grpo", loss)],
        mini_batches=3,
        num_iterations=2,
        tokens_per_micro_batch=500,
    )
    step_groups = groups()
    report = made.update(step_groups, 0, VERSION)
    assert report.applied == 6
    assert report.thrown_away == [False] * 5
    # groups 0 and 3, 1 and 4, 2 alone: sizes 2, 4, 2, 4, 2
    sizes = [len(batch.advantage_B) for batch in loss.seen]
    assert sizes == [6, 6, 2] * 2
    assert [rows for rows, _ in loss.denominators] == sizes
    tokens = [int(batch.mask_BT.sum()) for batch in loss.seen]
    assert [count for _, count in loss.denominators] == tokens
    # both iterations start from the same log-probs, and the second has moved away from them
    for first, second in zip(loss.seen[:3], loss.seen[3:], strict=True):
        torch.testing.assert_close(first.old_logp_BT, second.old_logp_BT, rtol=0, atol=1e-9)
        assert not torch.allclose(second.logp_BT, second.old_logp_BT, atol=1e-3)
    assert torch.equal(loss.seen[0].logp_BT.detach(), loss.seen[0].old_logp_BT)
    assert not torch.allclose(loss.seen[1].logp_BT, loss.seen[1].old_logp_BT, atol=1e-3)


@pytest.mark.parametrize(
    ("mini_batches", "iterations", "expected"),
    # in micro-batches, of which every mini-batch is one here
    [(1, 1, 0), (3, 1, 2), (1, 2, 1), (3, 2, 3)],
)
def test_old_log_probs_are_computed_once_and_where_they_are_needed(
    passes, mini_batches, iterations, expected
):
    train = {"mini_batches": mini_batches, "num_iterations": iterations}
    made = trainer_of(tiny(), [LossTerm("grpo", Noting())], tokens_per_micro_batch=500, **train)
    made.update(groups(), 0, VERSION)
    assert passes[OLD] == expected


@needs_algos
def test_a_loss_that_does_not_look_at_old_log_probs_costs_no_pass_for_them(passes):
    from rlvr_algos.distillation.losses import GKD
    from rlvr_algos.distillation.teacher import Teacher

    teacher = tiny(1).requires_grad_(False)
    term = LossTerm("gkd", GKD(GKD.Config(teacher="x", top_k=5)), teacher=Teacher(5, teacher))
    made = trainer_of(tiny(), [term], mini_batches=2, num_iterations=2)
    assert made.update(groups(), 0, VERSION).applied == 4
    assert passes[OLD] == 0
    assert passes["top_tokens", False] > 0


@pytest.mark.parametrize(("every", "expected"), [(None, 2), (1, 4)])
def test_a_frozen_reference_is_asked_once_and_a_moving_one_in_each_update(passes, every, expected):
    model = tiny()
    reference = SeparateModel(
        tiny(1).requires_grad_(False), model, ReferenceSection(sync_every=every)
    )
    loss = GRPO(GRPO.Config(beta=BETA))
    made = trainer_of(
        model,
        [LossTerm("grpo", loss)],
        reference=reference,
        mini_batches=2,
        num_iterations=2,
        tokens_per_micro_batch=500,
    )
    made.update(groups(), 0, VERSION)
    assert passes[REFERENCE] == expected


def test_a_reference_follows_after_every_so_many_updates_within_a_step_too():
    """Every 4th version: of versions 8 to 11 the reference takes over number 8."""
    model = tiny()
    reference = SeparateModel(tiny(1).requires_grad_(False), model, ReferenceSection(sync_every=4))
    made = trainer_of(
        model,
        [LossTerm("grpo", GRPO(GRPO.Config(beta=BETA)))],
        reference=reference,
        mini_batches=2,
        num_iterations=2,
    )
    after, plain = [], made.optimizer.step

    def noting(step):
        update = plain(step)
        after.append([p.detach().clone() for p in model.parameters()])
        return update

    made.optimizer.step = noting
    assert made.update(groups(), 0, VERSION).applied == 4
    held = list(reference.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(held, after[0], strict=True))
    assert not torch.equal(held[0], after[3][0])


def test_a_skipped_update_is_no_version_and_only_what_no_update_read_is_lost():
    """Of six updates the first and fourth, both of the first mini-batch, are not finite."""
    loss = Noting(bad=(0, 3))
    made = trainer_of(
        tiny(),
        [LossTerm("grpo", loss)],
        mini_batches=3,
        num_iterations=2,
        tokens_per_micro_batch=500,
    )
    report = made.update(groups(), 0, VERSION)
    assert [update.applied for update in report.updates] == [False, True, True] * 2
    assert report.applied == report.metrics["updates/applied"] == 4
    assert report.metrics["updates/skipped"] == 2
    assert report.metrics["updates/missing"] == 0
    assert report.thrown_away == [True, False, False, True, False]
    # one good reading is enough
    again = trainer_of(
        tiny(), [LossTerm("grpo", Noting(bad=(0,)))], mini_batches=3, num_iterations=2,
        tokens_per_micro_batch=500,
    )  # fmt: skip
    report = again.update(groups(), 0, VERSION)
    assert report.applied == 5
    assert report.thrown_away == [False] * 5


def test_a_step_with_fewer_groups_makes_fewer_updates():
    made = trainer_of(tiny(), [LossTerm("grpo", Noting())], mini_batches=4, num_iterations=2)
    report = made.update(groups(count=2), 0, VERSION)
    assert report.applied == report.metrics["updates/applied"] == 4
    assert report.metrics["updates/missing"] == 4
    report = made.update([], 1, VERSION + 4)
    assert report.applied == report.metrics["updates/applied"] == 0
    assert report.metrics["updates/skipped"] == 0
    assert report.metrics["updates/missing"] == 8


def test_a_group_without_a_reward_takes_no_place():
    """Of the other three the first and last are in the first mini-batch."""
    unscored = groups()
    members = tuple(Judged(member.completion, {}, None, None) for member in unscored[1].members)
    unscored[1] = Group(unscored[1].problem, members, VERSION)
    loss = Noting(bad=(0,))
    made = trainer_of(tiny(), [LossTerm("grpo", loss)], mini_batches=2, tokens_per_micro_batch=500)
    report = made.update(unscored[:4], 0, VERSION)
    # sizes 2, 4, 2, 4, of which the second is out
    assert [len(batch.advantage_B) for batch in loss.seen] == [6, 2]
    assert report.thrown_away == [True, False, False, True]


def test_the_entropy_that_steers_is_of_all_tokens_of_an_update():
    """Micro-batches of few rows measure what a single one does."""
    control = {"target": 1.0}
    loss = DAPO(DAPO.Config(importance_correction=OFF, entropy_control=control))
    found = []
    for budget in (20, 10_000):
        made = trainer_of(tiny(), [LossTerm("dapo", loss)], tokens_per_micro_batch=budget)
        report = made.update(groups(), 0, VERSION)
        assert made.entropy["dapo"].entropy == report.metrics["entropy/mean"]
        found.append(made.entropy["dapo"].entropy)
        assert report.metrics["entropy/bonus"] == report.metrics["entropy/coefficient"] == 0.0
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_staleness_is_at_least_the_updates_of_a_step():
    assert (
        TrainSection(steps=9, mini_batches=2, num_iterations=2, max_staleness=4).max_staleness == 4
    )
    assert TrainSection(steps=9, mini_batches=2, num_iterations=2).updates_per_step == 4
    with pytest.raises(ValidationError, match=r"below the 4 updates of a step .* set it to 4"):
        TrainSection(steps=9, mini_batches=2, num_iterations=2, max_staleness=3)
