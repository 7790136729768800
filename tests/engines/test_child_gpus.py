"""What an engine's process is told: its GPUs, and nothing of the run's other processes."""

import pytest

from rlvr_core.engines.child_process import engine_gpus, environment


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
    monkeypatch.setenv("RLVR_ENGINE_GPUS", "4,5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    found = environment()
    assert not {*names, "LOCAL_WORLD_SIZE"} & set(found)
    assert found["CUDA_VISIBLE_DEVICES"] == "5"
    monkeypatch.delenv("RLVR_ENGINE_GPUS")
    assert environment()["CUDA_VISIBLE_DEVICES"] == "1"
