"""Guard ``optimizer``: its formulas against torch's own; each kind of wrong update shows."""

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
)

from rlvr_core.algorithm.policy import ClipConfig
from rlvr_core.builtin.invariants import formulas, matrices
from rlvr_core.builtin.invariants.differences import compare
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.optimizer import AGAIN, FIRST
from rlvr_core.builtin.invariants.row_sums import _checksums
from rlvr_core.builtin.optimizers import muon as muon_module
from rlvr_core.builtin.optimizers.muon import Muon
from rlvr_core.config.model import TrainSection
from rlvr_core.losses import GRPO
from rlvr_core.step import optim
from rlvr_core.step.objective import LossTerm


def with_optimizer(builder, compute=torch.float32, **train):
    """A trainer with another optimizer than that of ``trainer_with``; it has tall matrices."""
    model = small_model(num_hidden_layers=2, intermediate_size=24)
    section = TrainSection(**{"steps": 100, "lr": 1e-2, "warmup_steps": 0} | train)
    trainer = small_trainer(model, [LossTerm("l", GRPO(ClipConfig()))], section)
    constant = optim.Constant(optim.NoConfig())
    trainer.optimizer = optim.Optimizer(model, section, compute, builder, constant)
    trainer.observer = invariants_of(run_config(section), trainer, Sampling())
    return trainer


def before_each(trainer, change):
    """Call ``change(optimizer)`` before each update, behind the step's back."""
    real = trainer.optimizer.step

    def step(number):
        with torch.no_grad():
            change(trainer.optimizer)
        return real(number)

    trainer.optimizer.step = step
    return trainer


def after_each(trainer, change):
    real = trainer.optimizer.step

    def step(number):
        update = real(number)
        with torch.no_grad():
            change(trainer.optimizer)
        return update

    trainer.optimizer.step = step
    return trainer


def test_adamw_is_that_of_torch():
    """Five updates of four weights in float64, with decay, against ``torch.optim.AdamW``."""
    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
    options = SimpleNamespace(betas=(0.9, 0.98), eps=1e-5, weight_decay=0.1)
    theirs = torch.optim.AdamW([weight], lr=0.03, **vars(options))
    ours, mean, square = weight.detach().clone(), torch.zeros(4).double(), torch.zeros(4).double()
    for number in range(1, 6):
        weight.grad = torch.randn(4, dtype=torch.float64)
        mean = formulas.first_moment(mean, weight.grad, 0.9, 0.1)
        square = formulas.second_moment(square, weight.grad, 0.98)
        ours = ours + sum(formulas.adamw_move(ours, (mean, square), number, 0.03, options))
        theirs.step()
        assert torch.allclose(ours, weight.detach(), rtol=1e-12)


def test_a_single_rounding_is_no_difference():
    expected = torch.ones(100, dtype=torch.float64)
    found = expected.clone()
    found[3] = 2.0
    assert compare(found, expected, 1e-4 * expected).bad == 0
    found[:4] = -1.0
    wrong = compare(found, expected, 1e-4 * expected)
    assert (wrong.bad, wrong.n, wrong.worst) == (4, 100, pytest.approx(2e4))
    assert compare(found * float("nan"), expected, expected).bad == 100


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 1e-6},
        {"lr": 1e-2, "max_grad_norm": 1e-3},
        {"max_grad_norm": None, "num_iterations": 2, "mini_batches": 2},
        {"tokens_per_micro_batch": 40, "warmup_steps": 3},
    ],
)
def test_healthy_updates_are_within_the_band(options):
    lines = steps(trainer_with(**options), 2)
    assert all(line["optimizer/error"] < 3e-5 for line in lines)


def test_healthy_updates_of_other_optimizers_and_of_float16():
    decay = optim.AdamW(optim.AdamWConfig(weight_decay=0.1, betas=(0.8, 0.95)))
    assert all(line["optimizer/error"] < 3e-5 for line in steps(with_optimizer(decay)))
    muon = Muon(Muon.Config(weight_decay=0.1))
    assert all(line["optimizer/error"] < 3e-5 for line in steps(with_optimizer(muon)))
    plain = optim.AdamW(optim.AdamWConfig())
    scaled = with_optimizer(plain, torch.float16)  # gradients arrive times the loss scale
    assert scaled.optimizer.scaler.get_scale() > 1
    assert all(line["optimizer/error"] < 3e-5 for line in steps(scaled))


def orthogonal(monkeypatch, change):
    """Muon with another Newton-Schulz: ``change(update, matrix)``."""
    real = muon_module.newton_schulz
    monkeypatch.setattr(
        muon_module, "newton_schulz", lambda matrix, n: change(real(matrix, n), matrix)
    )
    return with_optimizer(Muon(Muon.Config()))


@pytest.mark.parametrize(
    "change",
    [
        lambda update, matrix: (
            update if matrix.shape[0] <= matrix.shape[1] else update.T.reshape(matrix.shape)
        ),
        lambda update, matrix: 1.1 * update,
        lambda update, matrix: matrix / torch.linalg.matrix_norm(matrix),
    ],
    ids=["tall ones reshaped", "a tenth longer", "no iterations"],
)
def test_matrices_under_muon_that_move_otherwise(monkeypatch, change):
    fault(orthogonal(monkeypatch, change), "optimizer", "did not move as Muon's formula says")


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        (lambda one: one.tensor.ndim == 2, ("orthogonalises model.embed_tokens", "an embedding")),
        (
            lambda one: one.hidden_matrix and "q_proj" not in one.name,
            ("leaves to AdamW model.layers.0.self_attn.q_proj",),
        ),
    ],
    ids=["every matrix", "not of the attention"],
)
def test_tensors_under_muon_that_are_in_the_wrong_group(monkeypatch, hidden, words):
    real = optim.trained_parameters

    def sorted_otherwise(model):
        return [replace(one, hidden_matrix=hidden(one)) for one in real(model)]

    monkeypatch.setattr(optim, "trained_parameters", sorted_otherwise)
    fault(with_optimizer(Muon(Muon.Config())), "optimizer", *words)


def test_a_group_of_ours_has_no_learning_rate_of_its_own():
    trainer = trainer_with()
    trainer.optimizer.inner.param_groups[0]["lr_scale"] = 0.1
    fault(trainer, "updates", "learning rate is 0.001", "give 0.01")


def test_a_matrix_by_its_singular_values():
    """The quintic acts on singular values alone: the oracle is the decomposition."""
    torch.manual_seed(2)
    gradient_AB = torch.randn(6, 3, dtype=torch.float64)
    options = SimpleNamespace(momentum=0.9, iterations=5, weight_decay=0.0)
    before = matrices._Matrix(0, torch.zeros(6, 3).double(), torch.zeros(6, 3).double())
    left, values, right = torch.linalg.svd(gradient_AB, full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    due_AB = -0.1 * 0.2 * 6**0.5 * left @ values.diag() @ right
    found_AB = matrices._move(before, gradient_AB, 0.1, options)
    assert torch.allclose(found_AB, due_AB, rtol=1e-6, atol=1e-9)


class Sgd:
    """An optimizer of somebody else: it has no formula here."""

    def build(self, parameters, lr):
        return torch.optim.SGD([one.tensor for one in parameters], lr=lr, momentum=0.9)


def test_an_optimizer_of_somebody_else_is_judged_by_its_gradient_alone():
    reversed_ = before_each(with_optimizer(Sgd()), lambda o: [p.grad.neg_() for p in o.parameters])
    assert all(line["optimizer/error"] < 3e-5 for line in steps(reversed_, 2))
    kept = with_optimizer(Sgd())
    kept.optimizer.inner.zero_grad = lambda **_: None
    fault(kept, "optimizer", "of earlier updates were not cleared")


def pile_up():
    kept = {}

    def change(optimizer):
        for number, one in enumerate(optimizer.parameters):
            kept[number] = kept.get(number, 0) + one.grad.clone()
            one.grad.copy_(kept[number])

    return change


def swap(optimizer):
    first, second = (
        next(p for n, p in zip(optimizer.names, optimizer.parameters, strict=True) if which in n)
        for which in ("layers.0.mlp.up_proj", "layers.1.mlp.up_proj")
    )
    first.grad, second.grad = second.grad, first.grad


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (pile_up(), "did not take the gradient"),
        (lambda o: [one.grad.neg_() for one in o.parameters], "opposite sign"),
        (lambda o: [one.grad.mul_(3e-4) for one in o.parameters], "times the clipped gradient"),
        (lambda o: [one.grad.normal_() for one in o.parameters], "with a cosine of"),
        (swap, "layers.0.mlp.up_proj"),
        (lambda o: o.inner.state.clear(), "the moments, was lost"),
        (lambda o: [s["exp_avg"].zero_() for s in o.inner.state.values()], "its moments"),
        (lambda o: [s["exp_avg_sq"].zero_() for s in o.inner.state.values()], "mean squared"),
        (lambda o: [one.mul_(0.99) for one in o.parameters], "change by -1.000%"),
    ],
)
def test_what_comes_between_gradient_and_update(change, words):
    fault(before_each(trainer_with(), change), "optimizer", words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda o: [one.copy_(one.bfloat16()) for one in o.parameters], "rounded to bfloat16"),
        (lambda o: o.parameters[2].add_(1e-3), "did not move as the optimizer's formula says"),
        (lambda o: o.parameters[0].copy_(0.0 * o.parameters[0]), "did not move as"),
    ],
)
def test_what_comes_after_the_update(change, words):
    fault(after_each(trainer_with(), change), "optimizer", words)


def test_a_learning_rate_that_is_not_the_schedules(monkeypatch):
    real = optim.learning_rate
    monkeypatch.setattr(optim, "learning_rate", lambda *given: 2 * real(*given))
    trainer = trainer_with(lr=1e-4)
    config = run_config(trainer.train, updates=False)  # which would tell before
    trainer.observer = invariants_of(config, trainer, Sampling())
    fault(trainer, "optimizer", "are 2 times the formula", "learning rate")


def test_an_update_that_is_made_twice_and_counted_once():
    trainer = trainer_with()
    real = trainer.optimizer.step

    def twice(number):
        gradients = [one.grad.clone() for one in trainer.optimizer.parameters]
        real(number)
        for one, gradient in zip(trainer.optimizer.parameters, gradients, strict=True):
            one.grad = gradient
        return real(number)

    trainer.optimizer.step = twice
    fault(trainer, "optimizer", "counts 2 updates", "applied twice")


def test_micro_batches_that_overwrite_each_other():
    trainer = trainer_with(tokens_per_micro_batch=40)
    real = trainer.optimizer.backward

    def alone(loss):
        trainer.optimizer.inner.zero_grad(set_to_none=True)
        real(loss)

    trainer.optimizer.backward = alone
    fault(trainer, "optimizer", "is that of the last one alone")


def test_gradients_that_are_not_cleared():
    trainer = trainer_with()
    trainer.optimizer.inner.zero_grad = lambda **_: None
    fault(trainer, "optimizer", "of earlier updates were not cleared")


def test_weights_that_change_between_two_updates():
    trainer = trainer_with()
    steps(trainer, 1)
    with torch.no_grad():
        trainer.optimizer.parameters[3].mul_(1.0001)
    fault(trainer, "optimizer", "have changed between two updates", n=1)


def test_weights_that_are_put_back():
    trainer = trainer_with()
    before = [one.detach().clone() for one in trainer.optimizer.parameters]
    steps(trainer, 2)
    with torch.no_grad():
        for one, old in zip(trainer.optimizer.parameters, before, strict=True):
            one.copy_(old)
    fault(trainer, "optimizer", "they are again those that step 1 began with", n=1)


def test_a_skipped_update_changes_nothing():
    trainer = trainer_with()
    real = trainer.optimizer.step

    def overflow(number):
        trainer.optimizer.parameters[0].grad.fill_(torch.inf)
        return real(number)

    trainer.optimizer.step = overflow
    steps(trainer, 1)
    after_each(trainer, lambda o: o.parameters[1].add_(1e-3))
    fault(trainer, "optimizer", "though this one was skipped", n=1)


def test_later_one_update_of_many_is_checked():
    trainer = trainer_with(lr=1e-4)
    lines = steps(trainer, AGAIN + 2, n_groups=2)
    checked = [step for step, line in enumerate(lines) if "optimizer/error" in line]
    assert checked == [*range(FIRST), AGAIN]
    assert not any(one._backward_hooks for one in trainer.optimizer.parameters)


def head(optimizer):
    return next(
        one
        for name, one in zip(optimizer.names, optimizer.parameters, strict=True)
        if "lm_head" in name
    )


def of_many_tokens(**train):
    """A vocabulary of which 256 sampled elements have hardly one in any row."""
    model = small_model(vocab_size=4000)
    section = TrainSection(**{"steps": 100, "lr": 1e-2, "warmup_steps": 0} | train)
    trainer = small_trainer(model, [LossTerm("l", GRPO(ClipConfig()))], section)
    trainer.observer = invariants_of(run_config(section), trainer, Sampling())
    return trainer


def of_the_largest(optimizer, rank=0):
    gradient = head(optimizer).grad
    return gradient, gradient.abs().sum(1).argsort(descending=True)[rank]


def test_a_row_whose_gradient_is_written_over_before_the_update(monkeypatch):
    trainer = of_many_tokens()
    real = type(trainer)._accumulate

    def accumulate(self, *args):
        real(self, *args)
        with torch.no_grad():
            gradient, row = of_the_largest(self.optimizer)
            gradient[row] *= 2

    monkeypatch.setattr(type(trainer), "_accumulate", accumulate)
    words = "the gradient of 1 of 4000 rows of lm_head.weight is not the sum"
    fault(trainer, "optimizer", words)


def test_a_token_whose_row_is_kept_is_named():
    """One whose gradient is too small a part of the whole to show in its norm."""

    def padding(optimizer):
        gradient, row = of_the_largest(optimizer, rank=200)
        gradient[row] = 0.0

    words = "1 of 4000 rows of lm_head.weight did not move"
    fault(before_each(of_many_tokens(), padding), "optimizer", words)
    assert len(steps(of_many_tokens(), 2)) == 2


def test_rows_too_small_to_move_are_no_fault():
    """At such rates some rows stay as they are by rounding, and nobody says so of them."""
    for rate in (1e-8, 1e-9):
        assert len(steps(of_many_tokens(lr=rate), 3)) == 3


def test_a_checksum_of_rows_changes_with_any_bit_and_any_order():
    weight_RC = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0]])
    first, second, moved = _checksums(weight_RC).tolist()
    assert first == second != moved
    weight_RC[1, 2] = torch.nextafter(weight_RC[1, 2], torch.tensor(9.0))
    assert _checksums(weight_RC)[1] != second
