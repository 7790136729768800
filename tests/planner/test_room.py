"""Whether a model fits on the machines of a job, by what its processes say is free there."""

import json
from types import SimpleNamespace

import pytest
import torch

from rlvr_core.api.services import load_host, resolve_file
from rlvr_core.builtin.planner import room
from rlvr_core.builtin.planner.room import RESERVED, Room, model_fits
from tests.planner.places import config_of, planned

GIB = 2**30
CASE = {"size": "1.7B", "groups": 64, "n": 8, "prompt": 150, "tokens": 512, "budget": 16_384}
PARAMS = 1_720_574_976  # Qwen3-1.7B, its tied table once


class Together:
    """Ranks as process 0 sees them; the others have what they are given."""

    index = 0

    def __init__(self, rooms):
        self.rooms = rooms

    def gather(self, mine):
        return self.rooms if isinstance(mine, Room) else [mine, *[None] * (len(self.rooms) - 1)]


def asked(config, rooms, overrides=()):
    return model_fits(resolve_file(config, overrides, load_host()), Together(rooms))


def gpu(free, total=80, machine=0):
    return Room(machine, int(free * GIB), int(total * GIB), 100 * GIB)


@pytest.mark.parametrize(
    ("left", "good"),
    [
        (0.05, True),  # of what is free, beyond the planned peak
        (0.01, None),  # below the 3 % by which formulas were too low
        (-0.01, None),  # the part planned for CUDA is taken already
        (-0.10, False),
    ],
)
def test_the_planned_peak_against_the_fullest_gpu(left, good, tmp_path):
    config = config_of(CASE | {"checkpointing": True}, tmp_path)
    peak = planned(config, count=2).memory.peak
    assert 0.03 < RESERVED / peak < 0.06
    free = peak * (1 + left) / GIB
    verdict, what, remedy = asked(config, [gpu(79), gpu(free, machine=1)])
    assert verdict is good, what
    assert f"planned peak {peak / GIB:.1f} GiB in" in what
    assert f"{free:.1f} of 80.0 GiB are free on the GPU of process 1 (machine 1)" in what
    assert bool(remedy) is (good is not True)
    assert what.startswith("the model does not fit: ") is (good is False)


def test_the_choice_of_checkpointing_is_that_of_the_run(tmp_path):
    config = config_of(CASE | {"checkpointing": "auto"}, tmp_path)
    verdict, what, _ = asked(config, [gpu(140, 141)])
    assert verdict is True
    assert "with gradient checkpointing none" in what
    verdict, what, _ = asked(config, [gpu(39, 40)])
    assert verdict is True
    assert "with gradient checkpointing all" in what


def test_an_engine_without_room_for_its_keys_and_values(tmp_path):
    config = config_of(CASE | {"checkpointing": True}, tmp_path)
    share = ("engine={use: vllm, with: {gpu_memory_utilization: 0.05}}",)
    verdict, what, _ = asked(config, [gpu(79)], share)
    assert verdict is False
    # 4 GiB of weights and 1.5 of CUDA do not go into 4 GiB
    assert what.startswith("the engine lacks ")


def test_processes_on_the_cpu_need_weights_gradients_and_optimizer(tmp_path):
    config = config_of(CASE | {"checkpointing": True}, tmp_path)
    each = 16 * PARAMS / GIB  # float32 weights 4, gradient 4, AdamW 8
    enough = Room(0, 0, 0, int((2 * each + 0.1) * GIB))
    verdict, what, _ = asked(config, [enough, enough])
    assert verdict is True, what
    assert f"2 processes of machine 0 on the CPU: at least {2 * each:.2g} GiB" in what
    less = Room(0, 0, 0, int((2 * each - 0.1) * GIB))
    verdict, what, remedy = asked(config, [less, less])
    assert verdict is False
    assert remedy == ("take fewer processes, or more memory",)
    other = [Room(0, 0, 0, int(each * GIB) + GIB), Room(1, 0, 0, int(each * GIB) - GIB)]
    verdict, what, _ = asked(config, other)
    assert verdict is False
    assert "1 process of machine 1" in what


def test_shards_share_it_out(tmp_path):
    config = config_of(CASE | {"checkpointing": True}, tmp_path)
    some = Room(0, 0, 0, 100 * GIB)
    sharded = ("train.parallel=fsdp", "engine=vllm-server")
    _, what, _ = asked(config, [some] * 4, sharded)
    whole = 16 * PARAMS / GIB  # in all four together
    assert f"at least {whole:.2g} GiB" in what


def test_a_model_that_cannot_be_planned_is_in_doubt(tmp_path):
    (tmp_path / "gpt2").mkdir()
    sizes = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(sizes))
    config = config_of(CASE, tmp_path)
    verdict, what, _ = asked(config, [gpu(79)], (f"model.path={tmp_path / 'gpt2'}",))
    assert verdict is None
    assert what.startswith("cannot be planned: GPT2LMHeadModel is not a model")


def test_engines_on_gpus_of_their_own_take_nothing_from_training(tmp_path, monkeypatch):
    """The choice of recomputation took the engine to be beside training, reserved GPUs or not."""
    config = config_of(CASE | {"checkpointing": "auto"}, tmp_path)
    ahead = ("train.max_staleness=1", "engine=vllm")
    _, beside, _ = asked(config, [gpu(95, 96)], ahead)
    monkeypatch.setenv("RLVR_ENGINE_GPUS", "1")
    _, apart, _ = asked(config, [gpu(95, 96)], ahead)
    assert "with gradient checkpointing none" in apart
    assert "with gradient checkpointing none" not in beside


def test_a_container_may_have_less_than_its_machine(tmp_path, monkeypatch):
    assert list(room._free_of_container(tmp_path)) == []
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert list(room._free_of_container(tmp_path)) == []
    (tmp_path / "memory.max").write_text("1000\n")
    assert list(room._free_of_container(tmp_path)) == [900]
    monkeypatch.setattr(room, "_CGROUP", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7, 8))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=5000))
    assert room._room_here() == Room(0, 7, 8, 900)


def test_rollout_actors_have_gpus_of_their_own(tmp_path):
    config = config_of(CASE | {"checkpointing": True}, tmp_path)
    actors = "engine={use: ray, with: {engine: vllm, actors: 2, gpus: 1}}"
    found = planned(config, actors, count=2)
    alone = planned(config, count=2)
    assert found.memory.training == alone.memory.training
    assert found.memory.engine == 0
    assert (found.setup.trainers, found.setup.engine.gpus) == (2, 4)
