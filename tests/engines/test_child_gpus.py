"""What an engine's process is told: its GPUs, and nothing of the run's other processes."""

import pytest
import torch

from rlvr_core.engines.child.child_process import engine_gpus, environment, gpus_for


@pytest.mark.parametrize(
    ("kept", "world", "shares"),
    [
        ("", 2, ["", ""]),
        ("2", 1, ["2"]),
        ("2,3", 1, ["2,3"]),
        ("4,5,6,7", 2, ["4,5", "6,7"]),
        ("2,3", 2, ["2", "3"]),
        ("3", 2, ["3", "3"]),
        ("6,7", 4, ["6", "7", "6", "7"]),
    ],
)
def test_t31_engines_of_several_processes_share_the_gpus_out(kept, world, shares, monkeypatch):
    monkeypatch.setenv("RLVR_ENGINE_GPUS", kept)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(world))
    found = []
    for rank in range(world):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        found.append(engine_gpus())
    assert found == shares


def test_an_engines_process_is_no_rank_of_the_run(monkeypatch):
    """vLLM refused to start there in a run of several processes: their group was missing."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    for name in names:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = environment("5")
    assert not {*names, "LOCAL_WORLD_SIZE"} & set(found)
    assert found["CUDA_VISIBLE_DEVICES"] == "5"
    assert environment("")["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("kept", "shown", "device", "gpus"),
    [
        ("4,5", "2,3", "cuda:1", "5"),
        ("", "2,3", "cuda:1", "3"),
        ("", "GPU-a,GPU-b", "cuda:0", "GPU-a"),
        ("", None, "cuda:1", "1"),
        ("", "2", "cuda", "2"),
        ("", "2,3", "cpu", ""),
    ],
)
def test_t31_an_engine_without_gpus_of_its_own_sees_its_trainers_alone(
    kept, shown, device, gpus, monkeypatch
):
    """Every process sees the GPUs of all, and vLLM takes the first one it sees."""
    monkeypatch.setenv("RLVR_ENGINE_GPUS", kept)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert gpus_for(torch.device(device)) == gpus
