"""Guard ``loss``: values by hand, every built-in loss on hard batches, and what it must see."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model, small_trainer  # type: ignore
from test_invariants import (  # type: ignore
    Sampling,
    fault,
    run_config,
    steps,
    trainer_with,
    with_kl,
)

import rlvr_core.algorithm.policy as policy
import rlvr_core.builtin.distillation.losses as distillation
import rlvr_core.builtin.invariants.backward as backward
import rlvr_core.losses as losses
import rlvr_core.step.forward as forward
import rlvr_core.step.step as step_module
from rlvr_core.algorithm.entropy import EntropyController
from rlvr_core.api import EntropyTraits, LossBatch, LossOutput, LossTraits, Normalizer
from rlvr_core.builtin.distillation.losses import GKD
from rlvr_core.builtin.distillation.teacher import Teacher
from rlvr_core.builtin.invariants.entropy_control import EntropyControl
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.loss import _other_options
from rlvr_core.builtin.invariants.loss_contract import broken_contract
from rlvr_core.builtin.invariants.loss_oracles import expected, known
from rlvr_core.builtin.invariants.other_gradients import distilled
from rlvr_core.builtin.losses.gmpo import GMPO
from rlvr_core.builtin.losses.policy_family import CISPO, LUSPO, REINFORCE, SAPO
from rlvr_core.builtin.losses.vespo import VESPO
from rlvr_core.config.model import TrainSection
from rlvr_core.losses import DAPO, GRPO, GSPO, SFT, DrGRPO
from rlvr_core.step.batch import Row
from rlvr_core.step.objective import LossTerm

ALL = (GRPO, DAPO, DrGRPO, LUSPO, GSPO, CISPO, REINFORCE, SAPO, GMPO, VESPO)


def batch_of(logp, old, behaviour, advantages, mask=None, ref=None, **more):
    logp_BT = torch.tensor(logp, dtype=torch.float32, requires_grad=True)
    whole = torch.ones(logp_BT.shape, dtype=torch.bool)
    return LossBatch(
        logp_BT=logp_BT,
        old_logp_BT=torch.tensor(old, dtype=torch.float32),
        behaviour_logp_BT=torch.tensor(behaviour, dtype=torch.float32),
        ref_logp_BT=None if ref is None else torch.tensor(ref, dtype=torch.float32),
        mask_BT=whole if mask is None else torch.tensor(mask),
        advantage_B=torch.tensor(advantages, dtype=torch.float32),
        **more,
    )


def test_a_clipped_loss_by_hand():
    """Ratios 1.5 and 0.5, advantages 1 and -2, weight e^0.5 and 1, two rows of one token."""
    batch = batch_of(
        [[-1 + math.log(1.5)], [-1 + math.log(0.5)]], [[-1.0]] * 2, [[-1.5], [-1.0]], [1.0, -2.0]
    )
    should = expected(GRPO(GRPO.Config()), batch, Normalizer(2, 2, 8, 1))
    # clipped on both sides: -(e^0.5 * 1.2 * 1) and -(0.8 * -2), a half each, without a gradient
    assert should.value == pytest.approx((-math.exp(0.5) * 1.2 + 1.6) / 2, rel=1e-6)
    assert should.gradient_BT.tolist() == [[0.0], [0.0]]


def test_kl_entropy_and_a_constant_length_by_hand():
    """One row of two tokens; d = ref - logp = 1 and 0; entropy 0.5 and 1.5; length 10."""
    batch = batch_of(
        [[-1.0, -1.0]],
        [[-1.0, -1.0]],
        [[-1.0, -1.0]],
        [2.0],
        ref=[[0.0, -1.0]],
        entropy_BT=torch.tensor([[0.5, 1.5]]),
    )
    loss = DrGRPO(DrGRPO.Config(beta=0.1, entropy_bonus=0.01, constant=10))
    should = expected(loss, batch, Normalizer(1, 2, 8, 3))
    kl = 0.1 * (math.e - 2)
    assert should.value == pytest.approx(3 * ((-4 + kl) / 10 - 0.01 * 2.0 / 2), rel=1e-9)
    slope = 0.1 * (1 - math.e)  # of k3: 1 - exp(d)
    assert should.gradient_BT.tolist()[0] == pytest.approx([0.3 * (slope - 2), 0.3 * -2], rel=1e-9)


def hard(seed, **more):
    """Ratios, weights and drifts on both sides of every bound; advantages of both signs and 0."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale):
        return scale * torch.randn(6, 9, generator=generator)

    old_BT = -noise(1.5).abs()
    logp_BT = (old_BT + noise(0.4)).requires_grad_()
    mask_BT = torch.rand(6, 9, generator=generator) < 0.8
    mask_BT[:, 0] = True
    return LossBatch(
        logp_BT=logp_BT,
        old_logp_BT=old_BT,
        behaviour_logp_BT=old_BT + noise(0.5),
        ref_logp_BT=logp_BT.detach() + noise(0.7),
        mask_BT=mask_BT,
        advantage_B=torch.tensor([1.0, -1.0, 0.0, 0.5, -2.0, 0.1]),
        entropy_BT=noise(1.0).abs(),
        entropy_mask_BT=mask_BT & (torch.rand(6, 9, generator=generator) < 0.5),
        entropy_bonus=0.02,
        **more,
    )


OPTIONS = [
    {},
    {"beta": 0.1, "kl_estimator": "k3"},
    {"beta": 0.1, "kl_estimator": "k1", "kl_ratio_corrected": True},
    {"beta": 0.1, "kl_estimator": "k2", "kl_ratio_corrected": True},
    {"off_policy_mask": 0.1, "entropy_bonus": 0.03},
    {"top_entropy": 0.5},
    {"entropy_control": {"target": 0.3}},
    {"importance_correction": {"mode": "token_mask", "cap": 1.5, "floor": 0.6}},
    {"importance_correction": {"mode": "sequence_truncate", "cap": 1.5, "floor": 0.6}},
    {"importance_correction": {"mode": "sequence_mask", "cap": 3.0}},
    {"importance_correction": {"mode": "sequence_geo", "cap": 1.1, "floor": 0.9}},
    {"importance_correction": {"mode": "off"}},
    {"ratio": "sequence"},
    {"delta": 1.5},
]


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: " ".join(one) or "plain")
def test_every_built_in_loss_is_its_formula(cls, options):
    fields = cls.Config.model_fields
    sums = options.get("importance_correction", {}).get("mode", "").startswith("sequence")
    if set(options) - set(fields) or (cls is VESPO and sums):
        pytest.skip("not an option of this loss")
    loss, normalizer = cls(cls.Config(**options)), Normalizer(9, 77, 12, 2)
    assert known(loss)
    for seed in range(4):
        batch = hard(seed)
        output = loss(batch, normalizer)
        (gradient_BT,) = torch.autograd.grad(output.loss, batch.logp_BT)
        should = expected(loss, batch, normalizer)
        assert float(output.loss) == pytest.approx(should.value, abs=1e-5 * should.size)
        apart_BT = (gradient_BT - should.gradient_BT).abs()[~should.edge_BT]
        assert bool((apart_BT <= 1e-5 * should.size_BT[~should.edge_BT] + 1e-12).all())
        assert int(should.edge_BT.sum()) <= 2


def test_advantages_per_token_and_ratios_out_of_all_bounds():
    given = torch.linspace(-1, 1, 54).reshape(6, 9)
    batch = hard(5, advantage_BT=given)
    loss, normalizer = GRPO(GRPO.Config(beta=0.1)), Normalizer(6, 40, 9, 1)
    should = expected(loss, batch, normalizer)
    assert float(loss(batch, normalizer).loss) == pytest.approx(should.value, rel=1e-5)
    far = batch_of([[-1.0, -2.0]], [[-90.0, -2.0]], [[-90.0, -2.0]], [-1.0], ref=[[-50.0, 60.0]])
    output = loss(far, normalizer)
    should = expected(loss, far, normalizer)
    assert float(output.loss) == pytest.approx(should.value, rel=1e-4)


class Plugin:
    """A loss of somebody else."""

    traits = LossTraits(advantage="group")

    def __call__(self, batch, normalizer):
        return LossOutput(-(batch.logp_BT * batch.advantage_B[:, None]).mean(), {}, {})


def test_losses_of_others_are_not_judged():
    assert not known(Plugin())
    assert all("loss/error" not in line for line in steps(trainer_with(Plugin()), 2))


class Scaled:
    """A clipped loss of somebody else: its scale is ``of(batch, normalizer)``."""

    traits = LossTraits(advantage="group")

    def __init__(self, of):
        self.of = of

    def __call__(self, batch, normalizer):
        gain_BT = (batch.logp_BT - batch.old_logp_BT).exp() * batch.advantage_B[:, None]
        total = -gain_BT.masked_fill(~batch.mask_BT, 0.0).sum()
        return LossOutput(total * self.of(batch, normalizer), {}, {})


def by_the_update(batch, normalizer):
    return normalizer.world_size / normalizer.tokens


def by_the_micro_batch(batch, normalizer):
    return normalizer.world_size / int(batch.mask_BT.sum())


def without_processes(batch, normalizer):
    return 1 / normalizer.tokens


def seen_by(loss, *, micro_batches=1, world=1):
    """Micro-batches of four rows as a loss saw them, of an update of 16 tokens each."""
    batch = batch_of([[-1.0, -2.0, -3.0, -4.0]] * 4, [[-1.0] * 4] * 4, [[-1.0] * 4] * 4,
                     [1.0, -0.5, 2.0, -1.0])  # fmt: skip
    denominators = Normalizer(4 * micro_batches, 16 * micro_batches, 4, world)
    one = SimpleNamespace(batch=batch, normalizer=denominators, losses=[(loss, batch, None)])
    return [one] * micro_batches


@pytest.mark.parametrize(
    ("of", "given", "words"),
    [
        (by_the_update, {"micro_batches": 3, "world": 2}, ""),
        (by_the_micro_batch, {"micro_batches": 3}, "counts of its micro-batch"),
        (by_the_micro_batch, {"world": 2}, "counts of its micro-batch"),
        (by_the_micro_batch, {}, ""),  # one micro-batch is the whole update: nothing is wrong
        (without_processes, {"world": 2}, "multiplied by normalizer.world_size"),
        (without_processes, {"micro_batches": 3}, ""),
    ],
)
def test_losses_of_others_keep_what_every_loss_has_promised(of, given, words):
    loss = Scaled(of)
    found = broken_contract("l", loss, seen_by(loss, **given), 0)
    assert words in found
    assert bool(found) == bool(words)


def test_a_loss_that_draws_random_numbers_is_not_compared():
    loss = Scaled(lambda batch, normalizer: float(torch.rand(())))
    assert broken_contract("l", loss, seen_by(loss, micro_batches=3), 0) == ""


def test_a_loss_of_somebody_else_that_divides_by_its_micro_batch_stops_the_run():
    small = {"tokens_per_micro_batch": 40}
    fault(trainer_with(Scaled(by_the_micro_batch), **small), "loss", "counts of its micro-batch")
    assert len(steps(trainer_with(Scaled(by_the_update), **small), 2)) == 2


def test_healthy_losses_are_within_the_band():
    lines = steps(trainer_with(DAPO(DAPO.Config()), mini_batches=2, num_iterations=2, lr=3e-2))
    assert all(line["loss/error"] < 3e-5 for line in lines)


def each_loss(monkeypatch, change):
    """Change what every loss returns: ``change(output, batch)``."""
    real = LossTerm.of
    monkeypatch.setattr(LossTerm, "of", lambda s, b, n: change(real(s, b, n), b))


def test_a_loss_of_another_scale(monkeypatch):
    each_loss(monkeypatch, lambda out, _: replace(out, loss=1.01 * out.loss))
    fault(trainer_with(with_kl, reference="frozen"), "loss", "1.01 times the formula")


def test_a_gradient_that_is_not_that_of_the_value(monkeypatch):
    def half(out, _):
        return replace(out, loss=0.5 * out.loss + 0.5 * out.loss.detach())

    each_loss(monkeypatch, half)
    fault(trainer_with(), "loss", "gradient that arrives", "0.5 times the formula")


def test_a_backward_pass_of_another_loss():
    trainer = trainer_with()
    real = trainer.optimizer.backward
    trainer.optimizer.backward = lambda loss: real(3.0 * loss)
    fault(trainer, "loss", "are 3 times the formula")


def test_rows_without_a_gradient(monkeypatch):
    def stopped(real):
        def surrogate(terms, options):
            loss_BT = real(terms, options)
            return torch.where(terms.advantage_BT < 0, loss_BT.detach(), loss_BT)

        return surrogate

    monkeypatch.setattr(losses, "clipped", stopped(losses.clipped))
    fault(trainer_with(), "loss", "gradient that arrives")


@pytest.mark.parametrize(
    ("name", "change", "train"),
    [
        ("exp_linear", lambda real: lambda x: real(x) ** 2, {"num_iterations": 2, "lr": 3e-2}),
        ("exp_linear", lambda real: lambda x: x, {}),
        (
            "importance_weight",
            lambda real: lambda old, behaviour, *more: real(behaviour - 0.1, old, *more),
            {},
        ),
        ("kl_policy_ref", lambda real: lambda *given: 2 * real(*given), {"num_iterations": 2}),
    ],
)
def test_another_ratio_weight_or_kl(monkeypatch, name, change, train):
    monkeypatch.setattr(policy, name, change(getattr(policy, name)))
    trainer = trainer_with(with_kl, reference="frozen", **train)
    trainer.observer._checks.pop("kl")
    trainer.observer._checks.pop("advantages")
    fault(trainer, "loss", "formula")


def test_a_clip_that_never_acts(monkeypatch):
    real, open_range = losses.clipped, {"clip_low": 1.0, "clip_high": 1e9}
    monkeypatch.setattr(
        losses, "clipped", lambda terms, options: real(terms, options.model_copy(update=open_range))
    )
    fault(trainer_with(num_iterations=4, lr=0.1), "loss")


def test_denominators_of_a_micro_batch(monkeypatch):
    real = LossTerm.of

    def of(self, batch, normalizer):
        rows, tokens = int(batch.mask_BT.any(1).sum()), int(batch.mask_BT.sum())
        return real(self, batch, replace(normalizer, rows=rows, tokens=tokens))

    monkeypatch.setattr(LossTerm, "of", of)
    fault(trainer_with(tokens_per_micro_batch=40), "loss", "times that")


# -- behind the log-probs ------------------------------------------------------------------------


def test_a_gradient_that_lacks_the_temperature(monkeypatch):
    """Log-probs are right, and 0.6 of their gradient goes on into the model."""
    trainer = trainer_with()
    real = type(trainer)._scores

    def scaled(*args, **more):
        logp_BT, *others = real(*args, **more)
        return (0.6 * logp_BT + 0.4 * logp_BT.detach(), *others)

    monkeypatch.setattr(type(trainer), "_scores", scaled)
    assert "it is 0.6 times" in fault(trainer, "loss", "gradient of the log-probs")


def test_the_gradient_of_a_healthy_step_is_that_of_a_plain_pass():
    found = [metrics["loss/backward"] for metrics in steps(trainer_with())]
    assert all(one < 1e-4 for one in found)
    assert len(found) == 4


def trainer_of(model):
    section = TrainSection(steps=9, lr=0.01, warmup_steps=0)
    trainer = small_trainer(model, [LossTerm("l", GRPO(GRPO.Config()))], section)
    trainer.observer = invariants_of(run_config(section), trainer, Sampling())
    return trainer


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_that_gets_no_gradient(monkeypatch, tied):
    """With a tied embedding its weight has a gradient all the same, of what goes in."""
    trainer = trainer_of(small_model(tie_word_embeddings=tied))
    real = forward.fused_logprobs
    monkeypatch.setattr(
        forward,
        "fused_logprobs",
        lambda states, weight, *a, **k: real(states, weight.detach(), *a, **k),
    )
    assert "of it apart" in fault(trainer, "loss", "at the embedding and the head")


def test_a_first_layer_behind_a_detached_one(monkeypatch):
    """The last layer's gradient is right, and nothing reaches what is below it."""
    model = small_model(num_hidden_layers=2)
    trainer = trainer_of(model)
    packed = type(trainer)._scores

    def scores(*args, **more):
        handle = model.model.layers[1].register_forward_pre_hook(
            lambda _, args, kwargs: ((args[0].detach(), *args[1:]), kwargs), with_kwargs=True
        )
        try:
            return packed(*args, **more)
        finally:
            handle.remove()

    monkeypatch.setattr(type(trainer), "_scores", scores)
    fault(trainer, "loss", "at the ")


def test_a_loss_with_other_options_than_the_configs():
    trainer = trainer_with(GRPO(GRPO.Config(clip_high=0.9)))
    (term,) = trainer.objective.terms
    trainer.objective = replace(trainer.objective, terms=(replace(term, name="grpo"),))
    fault(trainer, "loss", "the loss grpo has clip_high 0.9, and the config makes it 0.2")


def test_a_loss_that_does_not_work_with_its_options():
    """Its options are the config's; what it computes with, and so its traits, is not."""
    trainer = trainer_with(GRPO(GRPO.Config()))
    (term,) = trainer.objective.terms
    term.loss.options = GRPO.Config(beta=0.3)
    trainer.objective = replace(trainer.objective, terms=(replace(term, name="grpo"),))
    words = "the loss grpo does not work with its options: it computes with beta 0.3, and they say"
    fault(trainer, "loss", words)


def test_rows_that_are_read_again_without_their_old_log_probs(monkeypatch):
    trainer = trainer_with(num_iterations=2, mini_batches=2)
    real = type(trainer)._compute_old_logprobs
    monkeypatch.setattr(
        type(trainer), "_compute_old_logprobs", lambda self, batches: real(self, batches[1:])
    )
    words = "micro-batch 1 of 1: the old log-probs of rows that the step reads again are the policy"
    fault(trainer, "loss", words)


def as_first_read(monkeypatch, trainer, change=lambda logp_BT: logp_BT):
    """Log-probs of a step's later readings of a row are those of its first, to the bit."""
    known, real = {}, type(trainer)._scores

    def scores(self, batch, **more):
        logp_BT, *others = real(self, batch, **more)
        # kept with its batch: another one may have its id later
        _, first_BT = known.setdefault(id(batch), (batch, logp_BT.detach()))
        return (logp_BT - logp_BT.detach() + change(first_BT), *others)

    monkeypatch.setattr(type(trainer), "_scores", scores)


@pytest.mark.parametrize("train", [{"num_iterations": 2}, {"num_iterations": 2, "mini_batches": 2}])
def test_later_updates_with_the_weights_of_the_steps_start(monkeypatch, train):
    trainer = trainer_with(**train)
    as_first_read(monkeypatch, trainer)
    words = "all log-probs are those of its start, to the last bit, and a plain pass of a row says"
    fault(trainer, "loss", words, "the pass computes with older weights than the update changes")


def test_a_policy_that_has_not_moved_has_the_log_probs_of_the_start():
    found = steps(trainer_with(num_iterations=2, lr=1e-12))
    assert len(found) == 4


def test_a_loss_that_reads_no_old_log_probs_has_its_own():
    loss = Plugin()
    loss.traits = replace(Plugin.traits, needs_old=False)
    assert len(steps(trainer_with(loss, num_iterations=2), 2)) == 2


# -- what does not pass through the log-probs ----------------------------------------------------

with_bonus = GRPO(GRPO.Config(entropy_bonus=0.01))


@pytest.mark.parametrize(("share", "words"), [(0.0, "(it is 0)"), (0.5, "are 0.5 times")])
def test_an_entropy_bonus_without_its_gradient(monkeypatch, share, words):
    def part(real):
        def mean(batch, normalizer):
            value = real(batch, normalizer)
            return share * value + (1 - share) * value.detach()

        return mean

    monkeypatch.setattr(policy, "_mean_entropy", part(policy._mean_entropy))
    fault(trainer_with(with_bonus), "loss", "arrives at the entropies", "entropy bonus", words)


def test_entropies_made_without_a_graph(monkeypatch):
    trainer = trainer_with(with_bonus)
    entropy_is(monkeypatch, trainer, lambda entropy_BT: entropy_BT.detach())
    fault(trainer, "loss", "arrives at the entropies", "(it is 0)")


def test_entropies_with_a_part_of_their_gradient(monkeypatch):
    """What arrives at them is right, and 0.4 of it goes on into the model."""
    trainer = trainer_with(with_bonus)
    entropy_is(monkeypatch, trainer, lambda one: 0.4 * one + 0.6 * one.detach())
    assert "it is 0.4 times" in fault(trainer, "loss", "gradient of the entropies")


def entropy_is(monkeypatch, trainer, change):
    real = type(trainer)._scores

    def scores(*args, **more):
        logp_BT, entropy_BT, *others = real(*args, **more)
        return (logp_BT, change(entropy_BT), *others)

    monkeypatch.setattr(type(trainer), "_scores", scores)


def test_an_entropy_that_no_loss_rewards_may_have_any_gradient(monkeypatch):
    trainer = trainer_with()
    entropy_is(monkeypatch, trainer, lambda entropy_BT: entropy_BT.detach())
    steps(trainer, n=1)


def distilling(**options):
    """A trainer that distils a model of other weights, beside a policy loss."""
    trainer = trainer_with()
    teacher = Teacher(5, small_model(seed=3, num_hidden_layers=2).requires_grad_(False))
    gkd = GKD(GKD.Config(teacher="x", top_k=5, **options))
    terms = (*trainer.objective.terms, LossTerm("gkd", gkd, weight=0.5, teacher=teacher))
    trainer.objective = replace(trainer.objective, terms=terms)
    return trainer


@pytest.mark.parametrize("divergence", ["kl", "jsd"])
def test_a_distillation_is_its_formula(monkeypatch, divergence):
    assert all(line["loss/error"] < 2e-5 for line in steps(distilling(divergence=divergence), n=2))
    name = f"{divergence}_over_top"
    real = getattr(distillation, name)

    def half(teacher, student, *more):
        return real(teacher, 0.5 * student + 0.5 * student.detach(), *more)

    monkeypatch.setattr(distillation, name, half)
    words = ("log-probs of the teacher's tokens", "0.5 times its formula")
    fault(distilling(divergence=divergence), "loss", *words)
    monkeypatch.setattr(distillation, name, lambda *given: 1.02 * real(*given))
    fault(distilling(divergence=divergence), "loss", "loss gkd is", "1.02 times that")


def other_teacher(monkeypatch, change):
    """Let a teacher give other tokens and log-probs: ``change(ids_NK, logp_BTK)``."""
    real = Teacher.top_tokens
    made = staticmethod(lambda *given, **more: change(*real(*given, **more)))
    monkeypatch.setattr(Teacher, "top_tokens", made)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda ids, logp: (ids, 0.9 * logp), "another temperature"),
        (lambda ids, logp: (ids, logp.roll(1, 1)), "likeliest tokens are"),
        (lambda ids, logp: ((ids + 7) % 20, logp), "the policy's log-probs of the teacher's"),
    ],
)
def test_a_teacher_that_says_something_else(monkeypatch, change, words):
    other_teacher(monkeypatch, change)
    fault(distilling(), "loss", "the loss gkd: ", words)


def test_a_teacher_with_other_weights_than_its_files(tmp_path):
    trainer = distilling()
    term = trainer.objective.terms[-1]
    term.teacher.model.save_pretrained(tmp_path)
    gkd = GKD(GKD.Config(teacher=str(tmp_path), top_k=5))
    terms = (*trainer.objective.terms[:-1], replace(term, loss=gkd))
    trainer.objective = replace(trainer.objective, terms=terms)
    assert len(steps(trainer, n=1)) == 1
    with torch.no_grad():
        next(term.teacher.model.parameters())[0, 0] += 1e-3
    fault(trainer, "loss", "its teacher has not the weights", "1 tensors differ")


def test_a_divergence_by_hand():
    """One token: q = .6, .2 brought to .75, .25 beside p = .5, .1; weights of a row and a step."""
    batch = batch_of(
        [[-1.0]],
        [[-1.0]],
        [[-1.0]],
        [0.0],
        teacher_logp_BTK=torch.tensor([[[0.6, 0.2]]]).log(),
        student_logp_BTK=torch.tensor([[[0.5, 0.1]]]).log(),
    )
    gkd = GKD(GKD.Config(teacher="x", top_k=2, divergence="kl"))
    due = distilled(gkd, batch, Normalizer(2, 9, 8, 1))
    whole = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.1)
    assert due.value == pytest.approx(whole / 2, rel=1e-6)
    assert due.gradient_BTK.flatten().tolist() == pytest.approx([-0.375, -0.125], rel=1e-6)


def given_entropies(monkeypatch, change):
    """Let losses be given other entropies: ``change(entropy_BT, logp_BT)``."""
    real = step_module.LossBatch

    def made(**given):
        return real(**given | {"entropy_BT": change(given["entropy_BT"], given["logp_BT"])})

    monkeypatch.setattr(step_module, "LossBatch", made)


@pytest.mark.parametrize(
    "change",
    [lambda entropy, logp: -logp.detach(), lambda entropy, logp: entropy / math.log(2)],
    ids=["surprise", "bits"],
)
def test_entropies_that_are_another_figure(monkeypatch, change):
    given_entropies(monkeypatch, change)
    fault(trainer_with(), "loss", "of which entropy/mean is reported")


STEERED = {"target": 2.0, "step": 0.25, "min": 0.0, "max": 1.0, "initial": 0.5}


def steered(entropies, coefficients):
    """What is said of updates of these entropies, after which the weight is one of these."""
    control = EntropyControl()
    controller = EntropyController(EntropyTraits(**STEERED), STEERED["initial"])
    view = SimpleNamespace(
        trainer=SimpleNamespace(entropy={"l": controller}, objective=SimpleNamespace(terms=())),
        seen=(),
    )
    said = []
    for entropy, coefficient in zip(entropies, coefficients, strict=True):
        said.append(control.wrong(view, [{"l": (3 * entropy, 3)}, {"l": (entropy, 1)}]))
        control.updated(view, applied=True)
        controller.coefficient = coefficient
        said.append(control.wrong_weight({"l": controller}))
    return [one for one in said if one]


def test_the_weight_of_a_steered_bonus_by_hand():
    """Up by a quarter at 1 nat, down at 3, held at both ends."""
    assert steered([1.0, 1.0, 1.0, 3.0, 1.0], [0.75, 1.0, 1.0, 0.75, 1.0]) == []
    assert steered([3.0, 3.0, 3.0], [0.25, 0.0, 0.0]) == []


def test_a_bonus_that_is_steered_the_wrong_way():
    (what, *_) = steered([1.0], [0.25])
    assert "entropy bonus is 0.25" in what
    assert "must be 0.75" in what


def test_a_steered_loss_is_followed():
    rule = {"target": 9.0, "step": 0.25, "min": 0.0, "max": 1.0}
    trainer = trainer_with(GRPO(GRPO.Config(entropy_control=rule)), num_iterations=2)
    lines = steps(trainer, 3)
    assert {line["entropy/coefficient"] for line in lines} != {0.0}
    real = EntropyController.observe
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EntropyController, "observe", lambda one, entropy: real(one, 18 - entropy))
        fault(trainer, "loss", "of l's entropy bonus is", n=2)


def bonus_of(monkeypatch, known):
    """A trainer whose bonus is half of the entropy, whatever it was before."""
    rule = {"target": 9.0, "step": 0.25, "min": 0.0, "max": 1.0}
    trainer = trainer_with(GRPO(GRPO.Config(entropy_bonus=0.25, entropy_control=rule)))
    for controller in trainer.entropy.values():
        controller.entropy = known
    monkeypatch.setattr(EntropyController, "bonus", property(lambda one: 0.5))
    return trainer


@pytest.mark.parametrize(("known", "due"), [(None, "0\n"), (10.0, "0\n"), (3.0, "0.25\n")])
def test_a_bonus_before_an_update_was_followed(monkeypatch, known, due):
    """The first update of a run has none, that of a resumed one goes by what it had."""
    fault(bonus_of(monkeypatch, known), "loss", f"entropy_control makes it {due}", n=1)


@pytest.mark.parametrize("explained", [False, True])
def test_a_gradient_below_float32_may_be_as_far_off_as_its_own_rounding(monkeypatch, explained):
    """With a band below 0 any row is beyond it; in float32 the row's own rounding is none."""
    found = []
    real = backward._rounding

    def rounding(*given):
        found.append(real(*given))
        return 2.0 if explained else found[-1]

    monkeypatch.setattr(backward, "_rounding", rounding)
    monkeypatch.setattr(backward, "compute_dtype", lambda trainer: torch.bfloat16)
    monkeypatch.setattr(backward, "BANDS", {torch.bfloat16: -0.5})
    monkeypatch.setattr(backward, "_other_entropies", lambda *given: "")
    trainer = trainer_with()
    if explained:
        steps(trainer, 1)
    else:
        fault(trainer, "loss", "the gradient of the log-probs behind the loss is not theirs")
    assert found
    assert max(found) < 1e-5


# -- losses on given answers, in the sum ---------------------------------------------------------


class Shown:
    """Two answers to imitate at every step."""

    def rows(self, step):
        return [
            Row((2, 3), (4 + step, 5), (True, True), (0.0, 0.0), 0.0, place) for place in (0, 1)
        ]


def imitating(weight=0.3, **train):
    """A trainer that imitates answers beside a policy loss."""
    trainer = trainer_with(**train)
    term = LossTerm("sft", SFT(SFT.Config()), weight=weight, demonstrations=Shown())
    terms = (*trainer.objective.terms, term)
    trainer.objective = replace(trainer.objective, terms=terms)
    return trainer


@pytest.mark.parametrize("train", [{}, {"num_iterations": 2, "mini_batches": 2}])
def test_a_weighted_loss_on_given_answers_is_quiet(train):
    assert len(steps(imitating(**train), 3)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda term: replace(term, weight=1.0), "is 1 times the loss's own"),
        (lambda term: replace(term, weight=-term.weight), "is -0.3 times the loss's own"),
    ],
)
def test_another_weight_in_the_sum(monkeypatch, change, words):
    real = step_module.PolicyTrainer._losses

    def losses(trainer, *given):
        return [
            (change(term) if term.name == "sft" else term, output)
            for term, output in real(trainer, *given)
        ]

    monkeypatch.setattr(step_module.PolicyTrainer, "_losses", losses)
    fault(imitating(), "loss", words, "its weight in the sum is 0.3")


def test_a_loss_on_given_answers_that_gets_completions():
    loss = SFT(SFT.Config())
    ref = SimpleNamespace(use="core/sft", weight=0.3, with_={})
    config = SimpleNamespace(losses={"second": ref})
    term = SimpleNamespace(loss=loss, name="sft", weight=0.3)
    trainer = SimpleNamespace(objective=SimpleNamespace(terms=[term]))
    assert _other_options(trainer, config) == ""
    loss.traits = LossTraits()
    assert "one of given answers, and gets completions" in _other_options(trainer, config)


def test_a_loss_on_given_answers_that_is_another_mean(monkeypatch):
    """Twice the mean, value and gradient alike."""
    real = SFT.__call__

    def doubled(loss, *given):
        output = real(loss, *given)
        return replace(output, loss=2 * output.loss)

    monkeypatch.setattr(SFT, "__call__", doubled)
    fault(imitating(), "loss", "the loss sft on given answers is", "over the 4 tokens")


def test_given_answers_that_are_multiplied_for_other_processes(monkeypatch):
    real = step_module.PolicyTrainer._normalizer

    def doubled(trainer, part):
        return replace(real(trainer, part), world_size=2 if part.given else 1)

    monkeypatch.setattr(step_module.PolicyTrainer, "_normalizer", doubled)
    fault(imitating(), "loss", "the loss sft on given answers is", "over the 4 tokens")


def test_given_answers_at_another_temperature(monkeypatch):
    real = step_module.PolicyTrainer._scores

    def scores(trainer, batch, *, temperature, **more):
        return real(trainer, batch, temperature=0.2 if imitated(batch) else temperature, **more)

    def imitated(batch):
        return int(batch.completion_len_B.max()) == 2 and int(batch.prompt_ids_SP[0, 0]) == 2

    monkeypatch.setattr(step_module.PolicyTrainer, "_scores", scores)
    fault(imitating(), "loss", "the log-probs of a given answer are", "at temperature 1")


def test_a_loss_with_another_weight_than_the_configs():
    trainer = trainer_with()
    (term,) = trainer.objective.terms
    term = replace(term, name="grpo", weight=0.5)
    trainer.objective = replace(trainer.objective, terms=(term,))
    fault(trainer, "loss", "the loss grpo has weight 0.5, and the config makes it 1")
