import math

import pytest
import torch

from rlvr_core.api import NoConfig
from rlvr_core.config.model import TrainSection
from rlvr_core.step.optim import AdamW, Constant, Optimizer, learning_rate
from rlvr_core.step.schedules import WSD, Cosine, DecayConfig, Linear

ADAMW, CONSTANT = AdamW(AdamW.Config()), Constant(NoConfig())
SHARP = AdamW(AdamW.Config(eps=1e-12))


def _train(**changes):
    return TrainSection(
        **{"steps": 10, "lr": 1.0, "warmup_steps": 0, "max_grad_norm": None} | changes
    )


def test_learning_rate_worked_out_by_hand():
    train, linear = _train(warmup_steps=2, steps=6), Linear(DecayConfig(min_lr_ratio=0.1))
    assert [learning_rate(train, linear, step) for step in range(6)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.7, 0.4, 0.1]
    )
    train, cosine = _train(steps=5), Cosine(DecayConfig())
    assert [learning_rate(train, cosine, step) for step in range(5)] == pytest.approx(
        [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0]
    )
    assert learning_rate(_train(), CONSTANT, 9) == 1.0
    # 1 step of warm-up, then 10 intervals: the last 4 go down from 1 to a fifth
    train, wsd = _train(warmup_steps=1, steps=12), WSD(WSD.Config(decay=0.4, min_lr_ratio=0.2))
    assert [learning_rate(train, wsd, step) for step in range(12)] == pytest.approx(
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2], abs=1e-12
    )


def test_a_schedule_of_a_lengthened_run_goes_on_from_where_it_is():
    linear = Linear(DecayConfig())
    assert learning_rate(_train(steps=5), linear, 2) == pytest.approx(0.5)
    assert learning_rate(_train(steps=9), linear, 2) == pytest.approx(0.75)


def _model(value=1.0):
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    return model


def test_first_adamw_step_is_the_learning_rate():
    # after one step m/sqrt(v) is sign(gradient), so the weight moves by lr
    model = _model()
    optimizer = Optimizer(model, _train(lr=0.01), torch.float32, SHARP, CONSTANT)
    optimizer.backward(model(torch.tensor([[3.0]])).sum())
    update = optimizer.step(0)
    assert update.applied
    assert update.grad_norm == pytest.approx(3.0)
    assert model.weight.item() == pytest.approx(1.0 - 0.01, abs=1e-6)
    assert model.weight.grad is None


def test_clipping_bounds_the_gradient_the_moments_see():
    model = _model()
    halves = AdamW(AdamW.Config(betas=(0.5, 0.5)))
    optimizer = Optimizer(model, _train(max_grad_norm=0.5), torch.float32, halves, CONSTANT)
    optimizer.backward(model(torch.tensor([[3.0]])).sum())
    assert optimizer.step(0).grad_norm == pytest.approx(3.0)
    # first moment = (1 - beta1) * clipped gradient
    assert optimizer.state_tensors()["weight|exp_avg"].item() == pytest.approx(0.25, rel=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_t4_non_finite_gradient_is_skipped_and_leaves_no_trace(bad):
    model = _model()
    optimizer = Optimizer(model, _train(), torch.float32, ADAMW, CONSTANT)
    optimizer.backward(model(torch.tensor([[bad]])).sum())
    assert not optimizer.step(0).applied
    assert model.weight.item() == 1.0
    assert optimizer.state_tensors() == {}
    optimizer.backward(model(torch.tensor([[1.0]])).sum())
    assert optimizer.step(1).applied
    assert math.isfinite(model.weight.item())


def test_t14_float16_scales_the_loss_and_halves_the_scale_on_overflow():
    model = _model()
    optimizer = Optimizer(model, _train(lr=0.01), torch.float16, SHARP, CONSTANT)
    assert optimizer.scaler.is_enabled()
    scale = optimizer.scaler.get_scale()
    optimizer.backward(model(torch.tensor([[3.0]])).sum())
    assert model.weight.grad.item() == pytest.approx(3.0 * scale)
    assert optimizer.step(0).grad_norm == pytest.approx(3.0)  # unscaled before clipping
    optimizer.backward(model(torch.tensor([[float("inf")]])).sum())
    assert not optimizer.step(1).applied
    assert optimizer.scaler.get_scale() == scale / 2


def test_t14_a_norm_that_overflows_by_itself_is_no_calibration():
    """Every gradient is finite, so the scale stays and must not excuse the skipped step."""
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = Optimizer(model, _train(), torch.float16, ADAMW, CONSTANT)
    scale = optimizer.scaler.get_scale()
    optimizer.backward(model(torch.full((1, 4), 1e25)).sum())
    assert torch.isfinite(model.weight.grad).all()
    update = optimizer.step(0)
    assert math.isinf(update.grad_norm)
    assert (update.applied, update.calibrating) == (False, False)
    assert optimizer.scaler.get_scale() == scale
    optimizer.backward(model(torch.full((1, 4), float("inf"))).sum())
    assert optimizer.step(1).calibrating


def test_state_of_another_model_is_refused():
    optimizer = Optimizer(_model(), _train(), torch.float32, ADAMW, CONSTANT)
    with pytest.raises(ValueError, match="lacks"):
        optimizer.load_state_tensors({"other|exp_avg": torch.zeros(1)})
