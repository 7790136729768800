"""Engine vllm-server with real vLLM servers, against a plain forward pass of transformers."""

import contextlib
import importlib.util
import os
import signal
import time
from dataclasses import replace

import psutil
import pytest
import torch

from rlvr_core.api import EngineContext, GenerationRequest, SamplingParams
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.files import FILES
from rlvr_servers.engine import NCCL, VllmServerEngine
from tests.support import vllm_models as one_process

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

DEVICE = one_process.DEVICE
PROMPT = one_process.LONG_PROMPT  # two and a half cache blocks


@contextlib.contextmanager
def running(folder, transport=None, **options):
    tokenizer = one_process.make_tokenizer()
    model = one_process.make_model(tokenizer, tied=True, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    engine = VllmServerEngine(VllmServerEngine.Config(**options))
    try:
        length = one_process.MAX_LEN
        context = EngineContext(str(folder), None, tokenizer, torch.float32, length, 7)
        engine.start(replace(context, transport=transport))
        yield engine, model, tokenizer
    finally:
        engine.close()


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    if DEVICE != "cpu":
        pytest.skip("servers on a CPU would meet a trainer on a GPU")
    with running(tmp_path_factory.mktemp("two"), servers=2, kv_cache_mb=64) as found:
        yield found


def distance(engine, model, **params):
    """Largest difference in nats to the model's own forward, over both servers' answers."""
    params = SamplingParams(**{"max_tokens": 24, **params})
    future = engine.submit(GenerationRequest("r", PROMPT, params, tuple(range(8))))
    engine.drain(300)
    return max(
        float(
            (
                one_process.oracle(model, PROMPT, answer.token_ids, params.temperature)
                - torch.tensor(answer.logprobs)
            )
            .abs()
            .max()
        )
        for answer in future.result(0)
    )


def test_t19_servers_follow_syncs_there_and_back(started):
    engine, a, tokenizer = started
    b = one_process.make_model(tokenizer, tied=True, seed=1)
    assert distance(engine, a) < 1e-4
    engine.load_weights(1, ModuleSource(b))
    assert distance(engine, b) < 1e-4
    assert distance(engine, a) > 1.0  # the models differ: agreement means something
    assert distance(engine, b, temperature=0.6, max_tokens=400) < 1e-4  # more than there is room
    engine.load_weights(2, ModuleSource(a))
    assert distance(engine, a) < 1e-4


def test_stop_strings_are_those_of_the_engine_in_process(started, tmp_path):
    engine, a, _ = started
    engine.load_weights(3, ModuleSource(a))
    request = GenerationRequest(
        "r", PROMPT, SamplingParams(max_tokens=40, stop=("e", "3 +")), tuple(range(12))
    )
    future = engine.submit(request)
    engine.drain(300)
    with one_process.running(tmp_path) as (other, _, _):
        again = other.submit(request)
        other.drain(300)
        for ours, theirs in zip(future.result(0), again.result(0), strict=True):
            assert ours.token_ids == theirs.token_ids
            assert (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)
            assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)


def test_t32_killed_servers_come_back_with_the_weights_and_nothing_is_lost(started):
    """The engine behind one front is killed, and the front of the other."""
    engine, _, tokenizer = started
    b = one_process.make_model(tokenizer, tied=True, seed=1)
    engine.load_weights(5, ModuleSource(b))

    def ask(n):
        params = SamplingParams(max_tokens=100)
        return [
            engine.submit(GenerationRequest(f"r{i}", PROMPT[i:], params, tuple(range(8))))
            for i in range(n)
        ]

    calm = ask(8)
    engine.drain(300)
    engine.metrics()
    first, second = engine._running.fleet.servers
    futures = ask(8)
    until = time.monotonic() + 60
    while not (first.in_flight and second.in_flight):
        assert time.monotonic() < until
        time.sleep(0.01)
    (behind,) = [
        child
        for child in psutil.Process(first.process.pid).children()
        # where setproctitle is installed vLLM names its process
        if any(name in " ".join(child.cmdline()) for name in ("spawn_main", "EngineCore"))
    ]
    behind.kill()
    os.kill(second.process.pid, signal.SIGKILL)
    engine.drain(500)
    for future, expected in zip(futures, calm, strict=True):
        for ours, theirs in zip(future.result(0), expected.result(0), strict=True):
            assert ours.token_ids == theirs.token_ids
            assert ours.version == 5
    until = time.monotonic() + 300
    while not (first.ready and second.ready):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert engine.metrics()["engine/restarts"] == 2
    assert distance(engine, b) < 1e-4
    engine.load_weights(6, ModuleSource(b))


# -- GPUs, not yet run: docs/engines.md ----------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two CUDA devices")
@pytest.mark.parametrize("transport", ["nccl", "files"])
def test_weights_reach_a_server_on_another_gpu(tmp_path, transport):
    options = {"gpus": [1], "gpu_memory_utilization": 0.3}
    chosen = {"nccl": NCCL, "files": FILES}[transport]
    with running(tmp_path, chosen, **options) as (engine, a, tokenizer):
        b = one_process.make_model(tokenizer, tied=True, seed=1)
        assert distance(engine, a) < 1e-2
        engine.load_weights(1, ModuleSource(b))
        assert distance(engine, b) < 1e-2
        os.kill(engine._running.fleet.servers[0].process.pid, signal.SIGKILL)
        assert distance(engine, b) < 1e-2
        engine.load_weights(2, ModuleSource(a))  # the NCCL group is made anew
        assert distance(engine, a) < 1e-2
