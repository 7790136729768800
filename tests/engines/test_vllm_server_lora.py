"""Engine vllm-server with adapters beside the base, against a forward pass of peft's layers."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

sys.path.insert(0, str(Path(__file__).parent))

from test_vllm_lora import (  # type: ignore[import-not-found]
    PROMPT,
    context_in,
    distance,
    each_takes_the_place_of_the_one_before,
    layers_without_a_place_are_an_error,
    needs_vllm,
    oracle,
    policy,
)

from rlvr_core.api import ConfigError, EngineContext, GenerationRequest, SamplingParams
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.adapter import AdapterFolder, fingerprint_of
from rlvr_core.engines.vllm.server import NCCL, VllmServerEngine
from rlvr_core.lora.adapter import adapter_of


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = VllmServerEngine(VllmServerEngine.Config(servers=1, kv_cache_mb=64, lora="adapter"))
    made.start(context_in(tmp_path_factory.mktemp("base"), None))
    yield made
    made.close()


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
def test_t19_an_adapter_takes_the_place_of_the_one_before_on_a_server(engine):
    each_takes_the_place_of_the_one_before(engine)
    adapters = engine._running.fleet.weights.adapter
    assert sorted(path.name for path in adapters._parent.glob("adapter-*")) == [
        "adapter-4",
        "adapter-zero",
    ]


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
def test_what_is_unfinished_goes_on_with_the_new_adapter(engine):
    """Each log-prob is of the adapter that sampled its token, and there is one change."""
    first, second = policy(1), policy(2)
    engine.load_weights(4, ModuleSource(first))
    for attempt in range(6):  # it may be finished before, or not have begun
        future = engine.submit(
            GenerationRequest("r", PROMPT, SamplingParams(max_tokens=110), tuple(range(24)))
        )
        time.sleep(0.3 * 2**attempt)
        engine.load_weights(5, ModuleSource(second))
        changes = []
        for answer in future.result(120):
            found = torch.tensor(answer.logprobs)
            old, new = (
                (oracle(model, answer.token_ids) - found).abs() < 1e-4 for model in (first, second)
            )
            before = len(found) if old.all() else old.tolist().index(False)
            assert bool(new[before:].all())
            assert answer.version == (4 if before else 5)
            changes.append(0 < before < len(found))
        if any(changes):
            return
        engine.load_weights(4, ModuleSource(first))
    raise AssertionError("no completion was in the middle when the adapter came")


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
@pytest.mark.skipif(not os.environ.get("RLVR_TEST_ALL"), reason="takes long: RLVR_TEST_ALL=1")
def test_t32_a_killed_server_is_back_with_the_adapter(engine):
    second = policy(2)
    engine.load_weights(6, ModuleSource(second))
    os.kill(engine._running.fleet.servers[0].process.pid, signal.SIGKILL)
    assert distance(engine, second) < 1e-4
    assert engine.metrics()["engine/restarts"] == 1


@pytest.mark.vllm
@pytest.mark.slow
@needs_vllm
def test_t30_layers_that_the_server_would_leave_out_are_an_error(engine):
    layers_without_a_place_are_an_error(engine, 7)


def test_what_cannot_take_adapters_is_refused():
    with pytest.raises(ValidationError, match="servers that are started here"):
        VllmServerEngine.Config(lora="adapter", urls=["http://a:1"])
    engine = VllmServerEngine(VllmServerEngine.Config(lora="adapter"))
    context = EngineContext("x", None, None, torch.float32, 8, 0, adapter_rank=8, transport=NCCL)
    with pytest.raises(ConfigError, match="an adapter goes through a private folder"):
        engine.start(context)
    for rank, words in [(None, "engine vllm-server is to take adapters"), (513, "512 at most")]:
        engine = VllmServerEngine(VllmServerEngine.Config(lora="adapter"))
        context = EngineContext("x", None, None, torch.float32, 8, 0, adapter_rank=rank)
        with pytest.raises(ConfigError, match=words):
            engine.start(context)


def test_an_adapters_fingerprint_is_of_matrices_and_scale(tmp_path):
    adapters = AdapterFolder(tmp_path)
    first = adapters.write(adapter_of(policy(1)))
    assert adapters.write(adapter_of(policy(2))) != first
    assert adapters.write(adapter_of(policy(1, alpha=16))) != first
    assert adapters.write(adapter_of(policy(1))) == first == fingerprint_of(adapters.current)
    assert [path.name for path in tmp_path.iterdir()] == [adapters.current.name]
