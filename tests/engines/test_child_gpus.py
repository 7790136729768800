"""Which GPUs each process's engine gets of those that the launcher keeps for engines."""

import pytest

from rlvr_core.engines.child import engine_gpus


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
