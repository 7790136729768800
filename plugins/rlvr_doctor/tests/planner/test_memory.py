"""The planner's memory against figures of the stand-in for a GPU, and against sums by hand."""

import dataclasses
import json
import shutil
import subprocess
import sys

import pytest

from plugins.rlvr_doctor.tests.planner.places import config_of, planned
from plugins.rlvr_doctor.tests.planner.tables import MEASURED, SHARDED, predicted
from rlvr_doctor.planner.memory import held_by, memory_of
from rlvr_doctor.planner.moments import saved_by_layer
from rlvr_doctor.planner.setup import Micro
from rlvr_doctor.planner.speed import checkpoint_bytes, gradient_of, scoring_of

FIGURES = {figure["name"]: figure for figure in [*MEASURED, *SHARDED]}
LAYER = 2 * 2048 * 2048 + 2 * 2048 * 1024 + 3 * 2048 * 6144 + 2 * 2048 + 2 * 128
TABLE = 151_936 * 2048
PARAMS = 28 * LAYER + TABLE + 2048
"""Of Qwen3-1.7B, added up."""


@pytest.mark.parametrize("name", FIGURES)
def test_the_peak_is_that_of_the_stand_in(name, tmp_path):
    figure = FIGURES[name]
    assert predicted(figure, tmp_path).training == pytest.approx(figure["peak"], rel=0.005)


def test_a_rank_holds_its_part_of_weights_and_moments():
    """Of Qwen3-8B, added up: 12 bytes a parameter, over 8 GPUs."""
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 12_288 + 2 * 4096 + 2 * 128
    whole = 36 * layer + 2 * 151_936 * 4096 + 4096
    figure = FIGURES["Qwen3-8B, 8 GPUs, checkpointing"]
    assert figure["at_rest"] == pytest.approx(12 * whole / 8, rel=1e-3)
    assert figure["wide"] == 0
    assert figure["waits"] <= 4


PRODUCTS = {
    "Qwen3-1.7B": 0.005,
    "Qwen3-1.7B, reference": 0.005,
    "Qwen3-1.7B, checkpointing, 4,096-token completions": 0.005,
    "Qwen3-1.7B, LoRA of rank 16": 0.01,
    "Qwen3-1.7B, LoRA of rank 16, checkpointing": 0.01,
    "Qwen3-1.7B, float32, checkpointing": 0.04,  # grids compute what masks hide, too
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_products_are_those_that_the_stand_in_counted(name, tmp_path):
    """Of completions of one length, where the mean is the length."""
    figure = FIGURES[name]
    case = figure["case"]
    assert case["skewed"] is False
    setup = planned(config_of(case, tmp_path), mean_tokens=case["tokens"]).setup
    setup = dataclasses.replace(setup, mean_prompt=case["prompt"])
    flops = scoring_of(setup).flops + gradient_of(setup).flops
    assert flops == pytest.approx(figure["flops"], rel=PRODUCTS[name])


CASE = {"size": "1.7B", "groups": 4, "n": 4, "prompt": 100, "tokens": 924, "budget": 2048}


def plan(tmp_path, case=CASE, **changes):
    return planned(config_of(case | changes, tmp_path))


def test_what_is_held_is_the_sum_of_its_parts(tmp_path):
    held = plan(tmp_path, beta=0.1).memory.held
    assert held.weights == 4 * PARAMS
    assert held.reference == 2 * PARAMS
    assert held.optimizer == 8 * PARAMS
    assert held.total == 14 * PARAMS


def test_lora_holds_the_base_once_and_trains_its_matrices(tmp_path):
    found = plan(tmp_path, beta=0.1, lora=8)
    wide = 4 * 2048 + 2 * 2048 + 2 * 1024 + 3 * 2048 + 3 * 6144  # q, o: 2048 x 2048
    assert found.setup.trained == 28 * 8 * wide
    assert found.memory.held.weights == 2 * PARAMS + 4 * 28 * 8 * wide
    assert found.memory.held.reference == 0
    assert found.memory.held.optimizer == 8 * 28 * 8 * wide


def test_gpus_divide_shards_and_keep_buckets(tmp_path):
    file = config_of(CASE | {"beta": 0.1}, tmp_path)
    sharded = planned(file, "train.parallel=fsdp", "engine.use=core/vllm", count=8).memory
    assert sharded.held.total == pytest.approx(14 * PARAMS / 8)
    whole = planned(file, "engine.use=core/vllm", count=8).memory
    assert whole.held.total == 18 * PARAMS  # DDP keeps room for gradients
    sampling = planned(file, "train.parallel=fsdp", count=8).memory
    assert sampling.held.total == pytest.approx(14 * PARAMS / 8 + 4 * PARAMS)


def test_what_a_layer_keeps_is_counted_tensor_by_tensor(tmp_path):
    """In float32 with shards of bfloat16: a bfloat16 stream, and no copies of weights.

    A run of such a layer kept as much on the stand-in, and a seed of 16 bytes.
    """
    setup = planned(config_of(CASE, tmp_path), "train.parallel=fsdp", count=2).setup
    micro = Micro(tokens=990, loss_tokens=903, keys=1260)
    norms = 990 * (2 * (4 + 2) * 2048 + 2 * 4)
    heads = 990 * ((4 + 2) * (2048 + 1024) + 4 * (16 + 8))
    attention = 990 * (2 * 2048 + 2 * 2048 + 4 * 16) + 1260 * 2 * 2 * 1024
    inputs = 990 * 2 * 2 * 2048
    mlp = 990 * 4 * 2 * 6144
    assert norms + heads + attention + inputs + mlp == 112_785_856 - 16
    assert saved_by_layer(setup, micro) == 112_785_856 - 16


def test_a_step_of_one_micro_batch_has_no_gradients_before_it(tmp_path):
    one = plan(tmp_path, groups=1, n=2)
    several = plan(tmp_path)
    assert one.setup.several_micros is False
    assert several.setup.several_micros is True
    assert several.memory.worst.gradients == 4 * PARAMS


def test_a_checkpoint_is_weights_their_float32_copy_and_two_moments(tmp_path):
    whole, adapter = plan(tmp_path).setup, plan(tmp_path, lora=8).setup
    assert checkpoint_bytes(whole) == (2 + 4 + 8) * whole.trained
    assert checkpoint_bytes(adapter) == (4 + 8) * adapter.trained


SMALL = {
    "size": "1.7B", "layers": 2, "groups": 2, "n": 4, "prompt": 384, "tokens": 4000,
    "skewed": False, "budget": 16_384, "vocab": 32_000,
}  # fmt: skip
"""Four completions with their prompt fill a micro-batch: the worst that may come does come. With
fewer tokens to choose of, the stand-in takes a minute, not three."""
RUNS = {
    "whole": {},
    "checkpointing, reference": {"checkpointing": True, "beta": 0.001},
    "checkpointing, offloaded reference": {"checkpointing": True, "beta": 0.001, "offload": True},
    "every second layer": {"checkpointing": "every-2", "layers": 4},
    "every third layer": {"checkpointing": "every-3", "layers": 4},
    "float32": {"dtype": "float32"},
    "LoRA": {"lora": 16},
    "LoRA, checkpointing": {"lora": 16, "checkpointing": True},
    "Llama, checkpointing": {"size": "Llama-3.2-1B", "checkpointing": True},
    "Qwen2, untied": {"size": "Qwen2.5-7B"},
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++")
def test_plans_of_configurations_are_what_the_step_takes(tmp_path):
    """Nothing stored: the stand-in does the steps of ten configurations, and each is planned."""
    cases = {name: SMALL | changes for name, changes in RUNS.items()}
    pytest.importorskip("rlvr_algos", reason="the stand-in takes Muon and distillation too")
    words = [sys.executable, "-m", "tests.together.gpu_standin.run"]
    words.append(json.dumps(list(cases.values())))
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    wrong = {}
    for (name, case), line in zip(cases.items(), done.stdout.splitlines(), strict=True):
        peak = json.loads(line)["peak"]
        memory = planned(config_of(case, tmp_path)).memory
        ratio = (memory.training - memory.reserved) / peak
        if not 0.98 < ratio < 1.05:
            wrong[name] = ratio
    assert wrong == {}


def test_the_worst_micro_batch_is_within_the_budget_or_one_completion(tmp_path):
    micro = plan(tmp_path).setup.worst_micro()
    assert (micro.tokens, micro.loss_tokens) == (2048, 2048)
    assert micro.keys == 2048 + 2 * 100  # of two completions
    alone = plan(tmp_path, tokens=5000).setup.worst_micro()
    assert (alone.tokens, alone.loss_tokens) == (5100, 5000)


def test_more_of_anything_takes_more(tmp_path):
    setup = plan(tmp_path).setup
    peak = memory_of(setup).peak
    for change in ({"budget": 4096}, {"scored": True, "reference": True}, {"dtype": "float32"}):
        assert memory_of(dataclasses.replace(setup, **change)).peak > peak, change
    assert held_by(dataclasses.replace(setup, moments=2.0)).optimizer == 2 * PARAMS


def test_what_a_step_computes_is_shared_out_over_those_that_split_it(tmp_path):
    """Two GPUs with four rows each, or both with half of eight: the same products."""
    file = config_of(CASE | {"n": 2}, tmp_path)
    apart, split = (
        planned(file, f"train.context_parallel={size}", count=2, mean_tokens=900) for size in (1, 2)
    )
    assert split.speed.flops == pytest.approx(apart.speed.flops)
    assert split.speed.tokens < apart.speed.tokens  # keys and values are sent, and more is launched
