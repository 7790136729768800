"""Every loss that is registered really trains: a tiny model's reward rises in a few steps.

The model and the reward are as small as can be: 16 tokens, and the share of a completion's tokens
that are in the lower half of the vocabulary. Sampling is the textbook's loop, no engine's.
"""

import copy
import os

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rlvr_algos.distillation.teacher import Teacher
from rlvr_core.advantages import GroupRelativeConfig
from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.algorithm.policy import PolicyLoss
from rlvr_core.api import Completion, Group, Judged, NoConfig, Problem, Verdict
from rlvr_core.config.model import ReferenceSection, TrainSection
from rlvr_core.plugins.host import load_host
from rlvr_core.step.batch import Row
from rlvr_core.step.model import Precision
from rlvr_core.step.objective import LossTerm, Objective
from rlvr_core.step.optim import AdamW, Constant, Optimizer, Update
from rlvr_core.step.reference import SeparateModel
from rlvr_core.step.step import PolicyTrainer

ADAMW, CONSTANT = AdamW(AdamW.Config()), Constant(NoConfig())

V, LENGTH, PROMPTS, N, STEPS = 16, 6, 4, 8, 30


def entries():
    """The losses of all first-party plugins."""
    return {entry.leaf: entry.load() for entry in load_host().registry.of("loss")}


def estimator(terms, combine):
    """The estimator of ``advantage: auto``."""
    registry = load_host().registry
    names = [term.traits.advantage for term in terms if term.traits.advantage]
    if not names:
        return None
    cls = registry.find("advantage", names[0]).load()
    return Estimator(names[0], cls(GroupRelativeConfig(combine=combine)))


POLICY = [name for name, cls in entries().items() if issubclass(cls, PolicyLoss)]


@pytest.fixture(scope="module")
def start():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=V,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=False,
            initializer_range=0.1,
        )
    ).eval()


def problem(i):
    return Problem(f"p{i}", "prompt", "low", {}, "toy")


@torch.no_grad()
def sample(model, step, weights=(1.0,)):
    """A step's groups; with a second weight, a second reward: minus a hundredth of the first."""
    draw = torch.Generator().manual_seed(step)
    groups = []
    for i in range(PROMPTS):
        prompt = (i, i + 1)
        ids = torch.tensor([prompt] * N)
        logps = []
        for _ in range(LENGTH):
            logp = model(input_ids=ids).logits[:, -1].log_softmax(-1)
            token = torch.multinomial(logp.exp(), 1, generator=draw)
            ids = torch.cat([ids, token], dim=1)
            logps.append(logp.gather(1, token))
        members = []
        for tokens, logp in zip(ids[:, 2:].tolist(), torch.cat(logps, 1).tolist(), strict=True):
            scores = [sum(t < V // 2 for t in tokens) / LENGTH]
            scores += [-0.01 * scores[0]] if len(weights) > 1 else []
            done = Completion(prompt, tuple(tokens), tuple(logp), (True,) * LENGTH, "", "stop")
            verdicts = {f"r{k}": Verdict(score) for k, score in enumerate(scores)}
            reward = sum(w * score for w, score in zip(weights, scores, strict=True))
            members.append(Judged(done, verdicts, reward, None))
        groups.append(Group(problem(i), tuple(members), step))
    return groups


def mean_reward(groups):
    first = [m.verdicts["r0"].score for group in groups for m in group.members]
    return sum(first) / len(first)


def trainer(model, terms, weights=(1.0,), combine="sum_then_normalise", **train):
    options = {"lr": 0.03, "warmup_steps": 0, "tokens_per_micro_batch": 100} | train
    train = TrainSection(steps=STEPS, **options)
    objective = Objective(tuple(terms), estimator(terms, combine))
    reference = None
    if objective.needs_reference:
        frozen = copy.deepcopy(model).requires_grad_(False)
        reference = SeparateModel(frozen, model, ReferenceSection())
    return PolicyTrainer(
        model=model,
        reference=reference,
        objective=objective,
        optimizer=Optimizer(model, train, torch.float32, ADAMW, CONSTANT),
        precision=Precision(torch.float32),
        train=train,
        temperature=1.0,
        max_completion_tokens=LENGTH,
        reward_weights=lambda step: weights,
    )


def run(start, terms, weights=(1.0,), combine="sum_then_normalise"):
    model = copy.deepcopy(start)
    made = trainer(model, terms, weights, combine)
    before = mean_reward(sample(model, -1))
    metrics = [
        made.update(sample(model, step, weights), step, step).metrics for step in range(STEPS)
    ]
    return before, mean_reward(sample(model, -1)), metrics


@pytest.mark.skipif(
    os.environ.get("RLVR_TEST_ALL") != "1", reason="make test-all runs it (RLVR_TEST_ALL=1)"
)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_several_updates_a_step_learn_from_fewer_completions(start, name):
    """A third of the steps, and so of the completions: 2 mini-batches x 3 iterations each."""
    cls = entries()[name]
    gained = {}
    for updates in ({}, {"mini_batches": 2, "num_iterations": 3}):
        model = copy.deepcopy(start)
        made = trainer(model, [LossTerm(name, cls(cls.Config()))], lr=0.005, **updates)
        before = mean_reward(sample(model, -1))
        reports = [made.update(sample(model, step), step, step) for step in range(STEPS // 3)]
        gained[len(updates)] = mean_reward(sample(model, -1)) - before
    assert all(report.applied == 6 for report in reports)
    last = reports[-1].metrics
    assert last["iteration/3/ratio/max"] > last["iteration/1/ratio/max"] > 1
    assert gained[2] > gained[0] + 0.1


FULL = {"beta": 0.01, "entropy_bonus": 0.001, "top_entropy": 0.8, "kl_ratio_corrected": True}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, FULL], ids=["defaults", "everything"])
@pytest.mark.parametrize("name", POLICY)
def test_reward_rises_with_every_policy_loss(start, name, options):
    cls = entries()[name]
    before, after, metrics = run(start, [LossTerm(name, cls(cls.Config(**options)))])
    assert 0.3 < before < 0.7
    assert after > 0.9
    assert all(line["entropy/mean"] > 0 for line in metrics)
    assert metrics[-1]["entropy/mean"] < metrics[0]["entropy/mean"]
    if options:
        assert all(0.75 < line["entropy/chosen"] < 0.85 for line in metrics[:5])
        assert all(line["entropy/threshold"] > 0 for line in metrics)
        assert metrics[0]["kl/mean"] == pytest.approx(0, abs=1e-9)
        assert metrics[-1]["kl/mean"] > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("combine", "rises"), [("sum_then_normalise", True), ("normalise_then_sum", False)]
)
def test_a_reward_of_tiny_scale_has_its_weights_say_when_normalised_first(start, combine, rises):
    """Twice the weight on a hundredth of the opposite: lost in the sum, decisive apart."""
    cls = entries()["grpo"]
    term = LossTerm("grpo", cls(cls.Config()))
    before, after, _ = run(start, [term], weights=(1.0, 2.0), combine=combine)
    assert after > 0.9 if rises else after < 0.5 * before


class Answers:
    """Demonstrations whose every answer is the token 3, then 5."""

    def rows(self, step):
        return [
            Row((i % 4, i % 4 + 1), (3, 5), (True, True), (0.0, 0.0), 0.0)
            for i in range(step, step + 8)
        ]


@pytest.mark.slow
def test_sft_alone_learns_the_answers_without_completions(start):
    cls = entries()["sft"]
    model = copy.deepcopy(start)
    made = trainer(model, [LossTerm("sft", cls(cls.Config()), 1.0, Answers())])
    reports = [made.update([], step, step) for step in range(STEPS)]
    assert all(report.applied for report in reports)
    first, last = reports[0].metrics, reports[-1].metrics
    assert last["sft/nll"] < 0.5 < 2 < first["sft/nll"]
    assert (first["sft/rows"], first["sft/tokens/loss"]) == (8, 16)
    assert first["loss"] == pytest.approx(first["sft/nll"])
    assert not any(name.startswith(("groups", "ratio", "loss/")) for name in first)


@pytest.mark.slow
def test_a_weighted_sum_trains_both(start):
    both = entries()
    terms = [
        LossTerm("grpo", both["grpo"](both["grpo"].Config())),
        LossTerm("sft", both["sft"](both["sft"].Config()), 0.3, Answers()),
    ]
    before, after, metrics = run(start, terms)
    assert after > 0.9 > before
    assert metrics[-1]["sft/nll"] < 0.5 * metrics[0]["sft/nll"]
    for line in metrics:
        assert line["loss"] == pytest.approx(line["loss/grpo"] + 0.3 * line["loss/sft"])


@pytest.mark.parametrize("split", [40, 100, 10_000])
def test_t10_a_step_does_not_depend_on_how_rows_are_packed(start, split):
    """Through the model: choosing tokens by entropy and a sum of losses included."""
    both = entries()
    terms = [
        LossTerm("dapo", both["dapo"](both["dapo"].Config(**FULL))),
        LossTerm("gspo", both["gspo"](both["gspo"].Config()), 0.5),
        LossTerm("sft", both["sft"](both["sft"].Config()), 0.3, Answers()),
    ]
    moved = []
    for budget in (split, 60):
        model = copy.deepcopy(start).double()
        made = trainer(model, terms)
        made.train = made.train.model_copy(update={"tokens_per_micro_batch": budget})
        report = made.update(sample(start, 7), 0, 7)
        moved.append((report.metrics, torch.cat([p.flatten() for p in model.parameters()])))
    (one, weights), (other, other_weights) = moved
    # the model's norms are float32 in any precision, and their gradients add up by packing
    assert one == pytest.approx(other, rel=1e-7, abs=1e-10)
    torch.testing.assert_close(weights, other_weights, rtol=0, atol=1e-6)


def test_advantage_scale_and_its_dataset(start):
    cls = entries()["grpo"]
    made = trainer(copy.deepcopy(start), [LossTerm("grpo", cls(cls.Config()))])
    groups = sample(start, 0)
    plain = made.update(groups, 0, 0).advantages
    made = trainer(copy.deepcopy(start), [LossTerm("grpo", cls(cls.Config()))])
    made.advantage_scale = {"p1": 0.25}
    scaled = made.update(groups, 0, 0).advantages
    assert scaled[0] == plain[0]
    assert scaled[1] == pytest.approx([0.25 * a for a in plain[1]])
    assert any(plain[1])


@pytest.fixture(scope="module")
def expert(start):
    """A model that mostly says low tokens."""
    model = copy.deepcopy(start)
    cls = entries()["grpo"]
    made = trainer(model, [LossTerm("grpo", cls(cls.Config()))])
    for step in range(12):
        made.update(sample(model, step), step, step)
    return model.requires_grad_(False)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ["jsd", "kl"])
def test_gkd_brings_the_policy_to_its_teacher_without_rewards(start, expert, divergence):
    cls = entries()["gkd"]
    loss = cls(cls.Config(teacher="x", top_k=8, divergence=divergence, alpha=0.5))
    before, after, metrics = run(start, [LossTerm("gkd", loss, teacher=Teacher(8, expert))])
    goal = mean_reward(sample(expert, -1))
    assert after > before + 0.5 * (goal - before)
    assert metrics[-1]["distill/divergence"] < 0.5 * metrics[0]["distill/divergence"]
    assert 0.5 < metrics[0]["distill/covered"] <= 1
    assert metrics[0]["loss"] == pytest.approx(metrics[0]["distill/divergence"], rel=1e-5)


@pytest.mark.slow
def test_gkd_gradient_is_that_of_the_whole_distributions(start, expert):
    """With every token compared, the step's gradient is autograd's of the textbook divergence."""
    cls = entries()["gkd"]
    loss = cls(cls.Config(teacher="x", top_k=V, divergence="kl"))
    made = trainer(copy.deepcopy(start), [LossTerm("gkd", loss, teacher=Teacher(V, expert))])
    groups = sample(start, 0)
    seen = []
    made.optimizer.step = lambda step: (
        seen.extend(p.grad.clone() for p in made.model.parameters()) or Update(1.0, True)
    )
    made.update(groups, 0, 0)
    model = copy.deepcopy(start)
    rows = [(*m.completion.prompt_ids, *m.completion.token_ids) for g in groups for m in g.members]
    ids = torch.tensor(rows)
    log_p, log_q = (m(input_ids=ids).logits[:, 1:-1].log_softmax(-1) for m in (model, expert))
    (log_q.exp() * (log_q - log_p)).sum(-1).mean().backward()
    for ours, theirs in zip(seen, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_opsd_learns_what_its_own_longer_prompt_would_make_it_say(start):
    """The privileged prompt is that of another problem: the policy comes to answer alike."""
    cls = entries()["opsd"]
    loss = cls(cls.Config(prompt="{prompt}", top_k=V))
    hint = (9, 9, 3)
    teacher = Teacher(V, prompt=lambda problem: hint)

    def gap(model):
        with torch.no_grad():
            ours = model(input_ids=torch.tensor([(0, 1)])).logits[0, -1].log_softmax(-1)
            told = model(input_ids=torch.tensor([hint])).logits[0, -1].log_softmax(-1)
        return float((told.exp() * (told - ours)).sum())

    model = copy.deepcopy(start)
    with torch.no_grad():
        model.lm_head.weight *= 4  # so that prompts matter
    made = trainer(model, [LossTerm("opsd", loss, teacher=teacher)])
    first = gap(model)
    for step in range(STEPS):
        made.update(sample(model, step), step, step)
    assert gap(model) < 0.5 * first
