"""The planner's memory against figures of the stand-in for a GPU (tests/gpu_standin/run.py)."""

import dataclasses

import pytest

from rlvr_core.builtin.planner.cards import CARDS
from rlvr_core.builtin.planner.memory import memory_of
from rlvr_core.builtin.planner.setup import Micro, Setup
from rlvr_core.builtin.planner.shape import Shape

LAYER = 2 * 2048 * 2048 + 2 * 2048 * 1024 + 3 * 2048 * 6144 + 2 * 2048 + 2 * 128


def qwen(layers):
    """Qwen3-1.7B with fewer layers."""
    params = layers * LAYER + 151_936 * 2048 + 2048
    return Shape(layers, 2048, 6144, 16, 8, 128, 151_936, True, True, LAYER, params)


def setup(layers, *, checkpointing):
    """One GPU without an engine, with a reference in bfloat16 and AdamW."""
    shape = qwen(layers)
    return Setup(
        card=CARDS["h200"], trainers=1, generators=1, shared=False, share=0.0, sleeps=True,
        shape=shape, trained=shape.params, width=2, checkpointing=checkpointing, fsdp=False,
        scored=True, reference=True, offload=False, lora=False, moments=8.0, budget=16_384,
        prompts=8, n=8, prompt=150, completion=512, mean_prompt=75, mean_completion=256,
        steps=10, overlapped=False, passes=1, updates=1, keep=3,
    )  # fmt: skip


SHORT = (Micro(7158, 6334, 8634), Micro(5800, 4983, 8345), Micro(4776, 3876, 8203))
"""Micro-batches of the stand-in's 64 completions of at most 512 tokens, budget 8,192."""
LONG = (Micro(11_356, 10_548, 14_883), Micro(5541, 4645, 9462))
"""The same, budget 16,384."""
MEASURED = {
    "28 layers, checkpointing, 16,384": (28, True, LONG, 32.91 * 2**30),
    "2 layers, 8,192": (2, False, SHORT, 11_553_571_328),
    "4 layers, 8,192": (4, False, SHORT, 15_133_998_592),
    "2 layers, checkpointing, 8,192": (2, True, SHORT, 11_147_465_216),
    "4 layers, checkpointing, 8,192": (4, True, SHORT, 12_959_573_504),
    "2 layers, checkpointing, 16,384": (2, True, LONG, 11_147_480_576),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_peak_is_that_of_the_stand_in(name):
    layers, checkpointing, micros, peak = MEASURED[name]
    given = [(micro, place > 0) for place, micro in enumerate(micros)]
    found = memory_of(setup(layers, checkpointing=checkpointing), given, reserved=0).peak
    print(f"{name}: {found / 2**30:.2f} GiB, {found / peak - 1:+.2%}")
    assert found == pytest.approx(peak, rel=0.05)


def test_what_is_held_between_steps_is_that_of_the_stand_in():
    assert memory_of(setup(28, checkpointing=True)).at_rest / 2**30 == pytest.approx(22.43, 0.001)


def test_shards_divide_what_is_held():
    whole = setup(28, checkpointing=True)
    sharded = dataclasses.replace(whole, trainers=8, fsdp=True)
    assert memory_of(sharded).at_rest == pytest.approx(memory_of(whole).at_rest / 8)
