"""How many processes may share a vLLM engine, and which engine they ask for; no vLLM is needed."""

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.engines.vllm.engine import VllmEngine
from rlvr_servers.shared.engine import SharedVllmEngine
from rlvr_servers.shared.group import check_size


@pytest.mark.parametrize(
    ("size", "world", "local", "message", "remedy"),
    [
        (2, 1, 1, "1 process does not divide into engines of 2", "--processes 2"),
        (2, 3, 3, "3 processes do not divide into engines of 2", "--processes 4"),
        (4, 8, 2, "would span machines: this one has 2 of the run's 8", "a divisor of 2"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(monkeypatch, size, world, local, message, remedy):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
    with pytest.raises(ConfigError, match=message) as caught:
        check_size(size)
    (complaint,) = caught.value.complaints
    assert complaint.where == "engine.with.tensor_parallel_size"
    assert remedy in " ".join(complaint.remedy)


@pytest.mark.parametrize(
    ("size", "world", "local"), [(2, 2, 2), (2, 8, 4), (4, 8, 4), (8, 8, 8), (1, 3, 3)]
)
def test_sizes_that_divide(monkeypatch, size, world, local):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
    check_size(size)


def test_an_adapter_beside_the_base_needs_an_engine_of_one_process():
    with pytest.raises(ValueError, match="lora: adapter is for engines of one process"):
        SharedVllmEngine.Config(tensor_parallel_size=2, lora="adapter")


def test_the_engine_of_one_process_names_the_one_that_is_shared():
    with pytest.raises(ValueError, match="is an option of servers/vllm-shared"):
        VllmEngine.Config(tensor_parallel_size=2)
    assert VllmEngine.Config(tensor_parallel_size=1) == VllmEngine.Config()


@pytest.mark.parametrize("size", [1, 2])
def test_only_an_engine_of_several_processes_is_collective(size):
    engine = SharedVllmEngine(SharedVllmEngine.Config(tensor_parallel_size=size))
    assert engine.traits.collective == (size > 1)
