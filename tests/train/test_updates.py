"""Several optimizer updates a step: mini-batches of its groups, and iterations over them.

The oracle is plain PyTorch in float64: the model on one row at a time, the losses written out as
they stand in the papers, and AdamW by its formula.
"""

from __future__ import annotations

import copy
import math
from collections import Counter

import pytest
import torch
from pydantic import ValidationError
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from rlvr_core.config.model import ReferenceSection, TrainSection
from rlvr_core.losses.dapo import DAPO
from rlvr_core.losses.distill import GKD
from rlvr_core.losses.grpo import GRPO
from rlvr_core.train import step as step_module
from rlvr_core.train.model import Precision
from rlvr_core.train.objective import Objective, Term
from rlvr_core.train.optim import Optimizer
from rlvr_core.train.reference import SeparateModel
from rlvr_core.train.step import PolicyTrainer
from rlvr_core.train.teacher import Teacher
from rlvr_core.types import Completion, Group, Judged, Problem

LR, BETA, LOW, HIGH = 2e-2, 0.1, 0.1, 0.15
VERSION = 7
OFF = {"mode": "off"}


def tiny(seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    return Qwen3ForCausalLM(config).to(dtype).eval()


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


def trainer_of(model, terms, *, reference=None, **train):
    section = TrainSection(
        **({"steps": 9, "lr": LR, "warmup_steps": 0, "tokens_per_micro_batch": 60} | train)
    )
    return PolicyTrainer(
        model=model,
        reference=reference,
        objective=Objective(tuple(terms)),
        optimizer=Optimizer(model, section, torch.float32),
        precision=Precision(torch.float32),
        train=section,
        temperature=0.8,
        max_completion_tokens=8,
        reward_weights=lambda step: (1.0,),
    )


def row_logp(model, completion):
    """Log-probs of the tokens of one completion at temperature 0.8, nothing shared or packed."""
    ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
    first = len(completion.prompt_ids) - 1
    logp = torch.log_softmax(model(ids).logits[0, first:-1] / 0.8, dim=-1)
    return logp.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]


class Oracle:
    """AdamW with decoupled decay and clipping by norm, and clipped losses with a k3 KL."""

    def __init__(self, model, reference):
        self.model, self.reference = model, reference
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
            surrogate = torch.minimum(
                ratio * advantage, ratio.clamp(1 - LOW, 1 + HIGH) * advantage
            )
            per_token = (-surrogate + BETA * (d.exp() - d - 1))[mask]
            share = per_token.mean() / len(rows) if name == "grpo" else per_token.sum() / tokens
            loss = loss + share
            out = ratio > 1 + HIGH if advantage > 0 else ratio < 1 - LOW
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
        """The sampling policy's own log-probs, of an older version's the engine's."""
        with torch.no_grad():
            return {
                id(m): row_logp(self.model, m.completion)
                if g.version == VERSION
                else torch.tensor(m.completion.logprobs, dtype=torch.float64)
                for g in step_groups
                for m in g.members
            }


@pytest.fixture(autouse=True)
def exact_norms(monkeypatch):
    """Qwen3's norm rounds to float32 in transformers, whatever its input."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, True) + self.variance_epsilon)

    monkeypatch.setattr(Qwen3RMSNorm, "forward", forward)


@pytest.mark.parametrize("name", ["grpo", "dapo"])
@pytest.mark.parametrize(("mini_batches", "iterations"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_updates_are_those_of_plain_pytorch(name, mini_batches, iterations):
    """Weights after a step of several updates, to 1e-9; two steps, so that both begin anew."""
    cls = {"grpo": GRPO, "dapo": DAPO}[name]
    loss = cls(
        cls.Config(clip_low=LOW, clip_high=HIGH, beta=BETA, advantage="center", mismatch=OFF)
    )
    model, frozen = tiny(0), tiny(1).requires_grad_(False)
    oracle = Oracle(copy.deepcopy(model), frozen)
    made = trainer_of(
        model,
        [Term(name, loss)],
        reference=SeparateModel(frozen, model, ReferenceSection()),
        mini_batches=mini_batches,
        iterations=iterations,
    )
    for step, seed in enumerate((3, 4)):
        step_groups = groups(seed=seed)
        step_groups[1] = groups(version=VERSION - 1, seed=seed)[1]
        report = made.update(step_groups, step, VERSION)
        old = oracle.old(step_groups)
        found = [
            [oracle.update(step_groups[b::mini_batches], old, name) for b in range(mini_batches)]
            for _ in range(iterations)
        ]
        for ours, theirs in zip(model.parameters(), oracle.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
        check_metrics(report, found)


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
        super().__init__(GRPO.Config(mismatch=OFF))
        self.seen, self.denominators, self.bad = [], [], set(bad)

    def __call__(self, batch, normalizer):
        self.seen.append(batch)
        self.denominators.append((normalizer.rows, normalizer.tokens))
        found = super().__call__(batch, normalizer)
        if len(self.seen) - 1 in self.bad:
            return type(found)(found.loss * torch.nan, found.sums, found.maxima)
        return found


def test_one_update_a_step_is_what_it_was():
    """No pass for old log-probs, and none of the metrics of several."""
    loss = Noting()
    made = trainer_of(tiny(), [Term("grpo", loss)], tokens_per_micro_batch=500)
    passes = counted(made, "completion_logprobs")
    report = made.update(groups(), 0, VERSION)
    assert report.applied == 1
    assert passes() == 0
    many = ("updates/", "iteration/", "grad_norm/", "rows/read")
    assert not any(name.startswith(many) for name in report.metrics)
    assert report.metrics["ratio/max"] == 1.0


def counted(made, name):
    """Counts forward passes of the policy by one of the functions that make them."""
    calls = Counter()
    plain = PolicyTrainer._compute

    def noting(compute, model, batch, **more):
        calls[compute.__name__, model is made.model] += 1
        return plain(made, compute, model, batch, **more)

    step_module_patch = pytest.MonkeyPatch()
    step_module_patch.setattr(
        step_module.PolicyTrainer, "_compute", lambda self, *a, **k: noting(*a, **k)
    )

    def done():
        step_module_patch.undo()
        return calls[name, True]

    return done
