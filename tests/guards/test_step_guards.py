"""The guards ``parity``, ``tokens`` and ``updates``: each on its fault, and on healthy steps."""

from dataclasses import replace

import pytest
import torch

import rlvr_core.step.step as step_module
from rlvr_core.api import RunError
from rlvr_core.guards.log_probs import DECIDING, Sums, fit
from rlvr_core.guards.parity import Parity
from rlvr_core.guards.tokens import Tokens
from rlvr_core.guards.updates import Updates
from rlvr_core.losses import DAPO, GSPO, DrGRPO
from tests.support.guards.stepping import (
    Watched,
    fault,
    made,
    put_back,
    sample,
    small_model,
    trainer_with,
)


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        (None, {}),
        (DAPO(DAPO.Config()), {"mini_batches": 2}),
        (DrGRPO(DrGRPO.Config()), {"num_iterations": 2}),
        (GSPO(GSPO.Config()), {"mini_batches": 2, "tokens_per_micro_batch": 40}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else type(value).__name__,
)
def test_healthy_steps_are_quiet(loss, more):
    guards = [made(kind) for kind in (Parity, Tokens, Updates)]
    run = Watched(*guards, trainer=trainer_with(loss, **more)).start()
    lines = run.steps()
    assert [text for text in run.said if "warning" in text] == []
    for line in lines:
        assert abs(line.get("parity/slope", 1.0) - 1) < 1e-4
        assert line.get("parity/k3", 0.0) < 1e-9
        assert line.get("tokens/missing", 0.0) == 0
        assert line.get("updates/at_rest", 0.0) == 0


# -- parity ---------------------------------------------------------------------------------------


def in_training(monkeypatch, change):
    """Change what the training pass alone computes."""
    real = step_module.completion_scores
    monkeypatch.setattr(
        step_module,
        "completion_scores",
        lambda model, batch, **more: change(real, model, batch, **more),
    )


def test_parity_sees_another_temperature_in_the_training_pass(monkeypatch):
    def colder(real, model, batch, *, temperature, **more):
        return real(model, batch, temperature=0.97 * temperature, **more)

    in_training(monkeypatch, colder)
    fault(Watched(made(Parity)), "slope", "different temperatures")


def test_parity_sees_a_training_pass_that_is_off_by_one(monkeypatch):
    def late(real, model, batch, **more):
        logp_BT, *others = real(model, batch, **more)
        return (logp_BT.roll(-1, 1), *others)

    in_training(monkeypatch, late)
    fault(Watched(made(Parity)), "k3")


def test_parity_sees_an_engine_with_older_weights():
    run = Watched(made(Parity)).start()
    run.steps(1)
    stale = sample(run.trainer.model, seed=9, version=2)
    run.steps(2)
    run.version = 2
    with pytest.raises(RunError, match="did not take the trainer's new weights"):
        run.steps(1, groups=stale)


def test_parity_does_not_judge_completions_of_older_weights():
    run = Watched(made(Parity))
    stale = sample(run.trainer.model, version=0)
    run.version = 3  # three updates later, as far as the trainer knows
    assert "parity/slope" not in run.steps(1, groups=stale)[0]


def half(loss=None, depth=2, scale=1.0):
    """A trainer that computes in bfloat16, as an engine of other kernels would not."""
    from rlvr_core.step.model import Precision

    model = small_model(num_hidden_layers=depth, hidden_size=64, intermediate_size=64)
    trainer = trainer_with(loss, model=model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    trainer.precision = Precision(torch.bfloat16)
    return trainer


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_the_band_in_half_precision_comes_from_the_model_itself(scale):
    """The engine samples in float32: its log-probs differ by the rounding of the training pass."""
    run = Watched(made(Parity), trainer=half(depth=8, scale=scale), model=BFLOAT16).start()
    run.steps(3)
    assert run.guard.bands().k3 >= 1e-4


BFLOAT16 = {"path": "m", "dtype": "bfloat16"}


def test_in_half_precision_another_temperature_is_seen(monkeypatch):
    def colder(real, model, batch, *, temperature, **more):
        return real(model, batch, temperature=0.93 * temperature, **more)

    run = Watched(made(Parity), trainer=half(), model=BFLOAT16)
    in_training(monkeypatch, colder)
    fault(run, "different temperatures", n=8)


def test_in_half_precision_a_pass_that_is_off_by_one_is_seen(monkeypatch):
    def late(real, model, batch, **more):
        logp_BT, *others = real(model, batch, **more)
        return (logp_BT.roll(-1, 1), *others)

    run = Watched(made(Parity), trainer=half(), model=BFLOAT16)
    in_training(monkeypatch, late)
    fault(run, "k3")


def test_truncated_sampling_is_not_looked_at_and_said_once():
    run = Watched(made(Parity), sampling={"top_p": 0.9}).start()
    run.steps(2)
    assert [text for text in run.said if "does not look" in text] == run.said
    assert len(run.said) == 1


def test_slope_and_k3_by_hand():
    """Trainer = 1.1 * engine + 0.05: slope 1.1, bias mean(0.1 x + 0.05)."""
    x = torch.tensor([-1.0, -2.0, -3.0, -0.5], dtype=torch.float64)
    line = fit(Sums.of(1.1 * x + 0.05, x))
    assert line.slope == pytest.approx(1.1)
    assert line.slope_error == pytest.approx(0, abs=1e-6)
    assert line.bias == pytest.approx(0.1 * -1.625 + 0.05)
    d = 0.1 * x + 0.05
    assert line.k3 == pytest.approx(float((d.exp() - d - 1).mean()))


def test_the_error_of_a_slope_knows_that_errors_differ_from_token_to_token():
    """White's estimator, written out; statsmodels calls it HC0."""
    generator = torch.Generator().manual_seed(1)
    x = -torch.rand(400, generator=generator, dtype=torch.float64).exponential_(generator=generator)
    y = 0.02 * x * torch.randn(400, generator=generator, dtype=torch.float64)
    line = fit(Sums.of(x + y, x))
    dx = x - x.mean()
    slope = (dx * y).sum() / (dx**2).sum()
    left = y - y.mean() - slope * dx
    expected = float(((dx * left) ** 2).sum().sqrt() / (dx**2).sum())
    assert line.slope == pytest.approx(1 + float(slope))
    assert line.slope_error == pytest.approx(expected, rel=1e-6)
    # eight completions that are alike are one
    eight = fit(Sums.of((x + y).repeat(8), x.repeat(8)))
    assert eight.slope_error == pytest.approx(line.slope_error)
    assert eight.deciding == pytest.approx(line.deciding)


def test_healthy_rounding_of_a_policy_that_is_nearly_sure_tilts_no_slope():
    """Logits rounded to bfloat16 on both sides at temperatures of 0.1 to 1: 300 steps, no alarm."""
    alarms = 0
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        temperature = (0.1, 0.3, 1.0)[seed % 3]
        logits = 3 * torch.randn(60, 32, generator=generator, dtype=torch.float64)
        logits[:50, 0] += 14 * temperature  # most tokens are nearly sure
        sides = [
            (
                (logits * (1 + 2**-9 * torch.randn(logits.shape, generator=generator)))
                / temperature
            ).log_softmax(-1)
            for _ in range(2)
        ]
        token = torch.multinomial(sides[0].exp(), 1, generator=generator)
        trainer, engine = (side.gather(1, token)[:, 0].repeat(8) for side in sides)
        line = fit(Sums.of(trainer, engine))
        if line.deciding >= DECIDING:
            alarms += abs(line.slope - 1) > 1e-2 + 4 * line.slope_error
        alarms += line.k3 - 4 * line.k3_error > 1e-4 / temperature**2
    assert alarms == 0


def test_what_parity_remembers_survives_a_checkpoint():
    run = Watched(made(Parity)).start()
    run.steps(2)
    other = made(Parity)
    other.load_state_dict(run.guard.state_dict())
    assert other.state_dict() == run.guard.state_dict()


# -- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [("twice", "more than once"), ("lost", "and the update has"), ("short", "end-of-sequence")],
)
def test_tokens_that_are_not_trained_once(monkeypatch, name, words):
    trainer = trainer_with()
    real = trainer._pack

    def pack(rows):
        if name == "lost":
            return real(rows[:-3])
        if name == "short":
            rows = [replace(row, loss_mask=(*row.loss_mask[:-1], False)) for row in rows]
        packed = real(rows)
        return packed + packed[:1] if name == "twice" else packed

    monkeypatch.setattr(step_module.PolicyTrainer, "_pack", lambda self, rows: pack(rows))
    fault(Watched(made(Tokens), trainer=trainer), words)


def test_a_step_without_an_update(monkeypatch):
    monkeypatch.setattr(step_module, "split_into_mini_batches", lambda *given: [])
    fault(Watched(made(Tokens)), "36 of 36 rows that have a reward were trained on by no update")


def test_an_iteration_that_is_made_again():
    trainer = trainer_with(num_iterations=2, lr=1e-4)
    run = Watched(made(Tokens), trainer=trainer, train={"steps": 100, "num_iterations": 1})
    fault(run, "was in 2 updates of the step, and train.num_iterations is 1")


# -- updates --------------------------------------------------------------------------------------


def test_a_tensor_without_a_gradient():
    run = Watched(made(Updates))
    run.trainer.model.model.layers[1].mlp.up_proj.weight.register_hook(torch.zeros_like)
    fault(run, "got no gradient", "layers.1.mlp.up_proj")
    run = Watched(made(Updates))
    run.trainer.model.model.embed_tokens.weight.requires_grad_(False)
    fault(run, "takes no gradient", "embed_tokens")


def test_a_tensor_that_the_model_never_uses_is_said_and_stops_nothing():
    trainer = trainer_with()
    trainer.model.register_parameter("tower", torch.nn.Parameter(torch.ones(3)))
    trainer = trainer_with(model=trainer.model)
    run = Watched(made(Updates), trainer=trainer)
    run.steps(5)
    assert len(run.said) == 1
    assert "tower: the model does not use them" in run.said[0]


def test_an_optimizer_that_moves_nothing():
    run = Watched(made(Updates))
    put_back(run.trainer, run.trainer.optimizer.parameters)
    fault(run, "a copy")


def test_one_tensor_that_the_optimizer_leaves_out():
    run = Watched(made(Updates))
    put_back(run.trainer, [run.trainer.model.model.layers[0].post_attention_layernorm.weight])
    fault(run, "has not moved", "post_attention_layernorm", n=6)


def test_a_learning_rate_that_is_not_the_configs(monkeypatch):
    import rlvr_core.step.optim as optim

    real = optim.learning_rate
    monkeypatch.setattr(optim, "learning_rate", lambda *given: 3 * real(*given))
    text = fault(Watched(made(Updates)), "learning rate is 0.03", "give 0.01")
    assert "step 1" in text
