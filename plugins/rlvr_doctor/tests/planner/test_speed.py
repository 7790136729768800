"""Seconds of a step, against the same roofline worked out by hand."""

import dataclasses

import pytest

from plugins.rlvr_doctor.tests.planner.places import config_of, planned
from rlvr_doctor.planner.speed import speed_of

CASE = {
    "size": "1.7B", "groups": 4, "n": 8, "prompt": 300, "tokens": 450, "budget": 16_384,
    "checkpointing": True,
}  # fmt: skip
PARAMS = 1_720_574_976
PER_TOKEN = 2 * 28 * 50_331_648
"""FLOPs of the products of all layers, forward: 2 x 28 x (2 x 2048^2 + 2 x 2048 x 1024 + ...)."""


def plan(tmp_path, *changes, **more):
    return planned(config_of(CASE, tmp_path), *changes, mean_tokens=450, **more)


def test_15_000_tokens_on_an_h200_take_what_their_operations_add_up_to(tmp_path):
    """The stand-in's operations one by one came to 0.293 + 0.054 s of products at 660 TFLOP/s, and
    the others to 0.332 s at 4.0 TB/s."""
    found = plan(tmp_path)
    assert found.setup.step_tokens == 15_000
    seconds = 0.347 * 660 / 700 + 0.332 * 4.0 / 2.55
    assert found.speed.gradient + found.speed.optimizer == pytest.approx(seconds, rel=0.1)


def test_generation_reads_weights_for_each_token_and_what_came_before(tmp_path):
    found = plan(tmp_path)
    rounds = 450  # all 32 at a time
    keys = 2 * 2 * 1024 * 28 * (150 + 225)
    seconds = (rounds * 2 * PARAMS + 32 * 450 * keys) / 4.0e12
    seconds += 4 * 150 * (PER_TOKEN + 28 * 2 * (2 * 2048 + 256)) / 700e12
    assert found.speed.generation == pytest.approx(seconds, rel=1e-6)


def test_completions_that_wait_for_room_read_the_weights_again(tmp_path):
    setup = plan(tmp_path).setup
    room = 8 * setup.entry * (150 + 225)
    waiting = speed_of(setup, room).generation - speed_of(setup, 1e12).generation
    assert waiting == pytest.approx(24 / 8 * 450 * 2 * PARAMS / 4.0e12, rel=1e-6)


def test_a_reference_costs_one_forward_pass_and_an_offloaded_one_its_way(tmp_path):
    speed = plan(tmp_path, "loss.with.beta=0.1").speed
    flops = 15_000 * PER_TOKEN + 14_400 * 2 * 151_936 * 2048
    assert plan(tmp_path).speed.scoring == 0
    assert speed.scoring > flops / 700e12
    moved = plan(tmp_path, "loss.with.beta=0.1", "train.reference.offload=true").speed
    assert moved.scoring - speed.scoring == pytest.approx(2 * PARAMS / 50e9)


def test_what_goes_on_at_once_takes_the_longer_of_both(tmp_path):
    ahead = plan(
        tmp_path, "engine.use=core/vllm", "train.max_staleness=1", count=2, engine_gpus=1
    ).speed
    training = ahead.scoring + ahead.gradient + ahead.optimizer
    assert ahead.step == pytest.approx(max(training, ahead.generation) + ahead.sync)
    assert ahead.bottleneck == "forward and backward"
    assert ahead.sync == pytest.approx(2 * 2 * PARAMS / 50e9)


def test_more_gpus_share_the_work_and_add_the_sum_of_gradients(tmp_path):
    one = plan(tmp_path, "engine.use=core/vllm").speed
    four = plan(tmp_path, "engine.use=core/vllm", count=4).speed
    ring = 2 * 4 * PARAMS * 3 / 4 / 450e9
    assert four.optimizer - one.optimizer == pytest.approx(ring)
    assert four.flops == pytest.approx(one.flops / 4)


def test_hours_are_those_of_all_steps(tmp_path):
    found = plan(tmp_path)
    assert found.speed.hours == pytest.approx(10 * found.speed.step / 3600)
    longer = dataclasses.replace(found.setup, steps=100)
    assert speed_of(longer, 1e12).hours == pytest.approx(10 * found.speed.hours, rel=0.01)


def test_float32_is_computed_without_tensor_cores(tmp_path):
    half, wide = plan(tmp_path).speed, plan(tmp_path, "model.dtype=float32").speed
    assert wide.gradient > 5 * half.gradient


def test_compiled_layers_and_head_move_fewer_bytes_and_make_logits_once(tmp_path):
    """14,400 x 151,936 logits in bfloat16, 4.4 GB, are kept: less than a 32nd of 151 GB."""
    plain, compiled = plan(tmp_path).speed, plan(tmp_path, "train.compile=true").speed
    layers = 28 * (104 * 2048 + 110 * 3072 + 10 * 6144) * 15_000 * 4  # forward twice, backward
    logits = 14_400 * 151_936
    moved = (0.64 * layers + (40 + 67 - 10 - 24) * logits) / 2.55e12
    assert plain.gradient - compiled.gradient == pytest.approx(
        moved + 2 * 2048 * logits / 700e12, rel=1e-6
    )
