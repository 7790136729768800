"""Engine vllm-server with stand-ins for servers: real processes that die, hang and lie."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from rlvr_core.api import (
    ConfigError,
    Engine,
    MachineError,
    ReportsMetrics,
    RunError,
)
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.rollout.ahead.ahead import share_threads
from rlvr_servers import process as vllm_serve
from rlvr_servers.client import OtherWeightsError, _spans
from rlvr_servers.engine import VllmServerEngine
from rlvr_servers.pool import Server, ServerPool
from rlvr_servers.process import gpus_of
from tests.support import fake_vllm
from tests.support.embedded import make_tokenizer
from tests.support.fake_servers import EOS, Policy, check, request, sample, servers, until


def events_until(engine, words):
    """Its events up to one with these words (a server is counted out before it is written)."""
    events = []

    def there():
        events.extend(engine.take_events())
        return any(words in one for one in events)

    until(there)
    return events


def test_tokens_go_in_and_tokens_with_their_log_probs_come_out(make):
    engine = make(servers=2)
    assert isinstance(engine, Engine)
    assert isinstance(engine, ReportsMetrics)
    answers = sample(engine, range(16))
    check(answers, Policy(), 0)
    assert len({one.token_ids for one in answers}) == 16
    assert sample(engine, range(16)) == answers
    assert sample(engine, []) == ()
    assert engine.metrics() == {"engine/servers": 2, "engine/restarts": 0, "engine/resent": 0}


def test_work_goes_to_the_server_with_least_to_do_and_waits_at_the_cap(make):
    engine = make(servers=2, max_in_flight=3, slow=0.02)
    futures = [engine.submit(request([i], f"r{i}")) for i in range(10)]
    until(lambda: [len(one.in_flight) for one in servers(engine)] == [3, 3])
    engine.drain(60)
    assert [future.result(0) for future in futures] == [sample(engine, [i]) for i in range(10)]


@pytest.mark.parametrize(
    ("options", "elsewhere"),
    [
        ({}, False),
        ({"urls": ["http://localhost:8000"]}, False),
        ({"urls": ["http://gpu-7:8000", f"http://{socket.gethostname()}:8000"]}, False),
        ({"urls": ["http://gpu-7:8000", "http://10.0.0.4:8000"]}, True),
    ],
)
def test_servers_on_other_machines_leave_all_cores_to_the_trainer(monkeypatch, options, elsewhere):
    engine = VllmServerEngine(VllmServerEngine.Config(**options))
    assert engine.traits.elsewhere is elsewhere
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    taken = []
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    share_threads(engine, torch.device("cpu"))
    assert taken == ([] if elsewhere else [4])


def test_every_server_takes_new_weights(make):
    engine = make(servers=2)
    before = sample(engine)
    for version in (1, 2):
        policy = Policy(shift=0.3 * version)
        engine.load_weights(version, ModuleSource(policy))
        check(sample(engine, range(16)), policy, version)
    engine.load_weights(3, ModuleSource(Policy()))
    again = sample(engine)
    assert [one.token_ids for one in again] == [one.token_ids for one in before]


@pytest.mark.parametrize(
    ("count", "number"),
    [
        (1, signal.SIGKILL),
        (2, signal.SIGSTOP),
        pytest.param(1, signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_t32_a_server_lost_in_the_middle_of_a_step_loses_and_repeats_nothing(make, number, count):
    calm = make(servers=1)
    policy = Policy(shift=0.3)
    calm.load_weights(4, ModuleSource(policy))
    expected = [sample(calm, range(5 * i, 5 * i + 5)) for i in range(8)]

    hang_after = 5 if number == signal.SIGSTOP else 120
    engine = make(servers=count, slow=0.2, hang_after=hang_after)
    engine.load_weights(4, ModuleSource(policy))
    futures = [engine.submit(request(range(5 * i, 5 * i + 5), f"r{i}")) for i in range(8)]
    victim = servers(engine)[0]
    until(lambda: len(victim.in_flight) >= 20)
    old = victim.process.pid
    os.kill(old, number)
    engine.drain(60)
    assert [future.result(0) for future in futures] == expected
    until(lambda: victim.ready)
    assert victim.process.pid != old
    assert not psutil.pid_exists(old)
    told = engine.metrics()
    assert told["engine/restarts"] == 1
    assert told["engine/servers"] == count
    assert told["engine/resent"] >= 20
    lost, _ = events_until(engine, "is back")
    assert "server 0" in lost
    assert "(1 of 3)" in lost
    assert engine.take_events() == []
    assert engine.metrics()["engine/restarts"] == 0
    # the new one has the weights of version 4, which it was never started with
    check(sample(engine, range(40)), policy, 4)


def test_a_server_lost_before_its_work_began_gives_it_back():
    asked = []

    class Client:
        async def generate(self, body, *, seconds):
            asked.append(body["sampling_params"]["seed"])
            choice = {"token_ids": [9], "finish_reason": "length"}
            choice["logprobs"] = {"content": [{"token_id": 9, "logprob": -1.0}]}
            choice["weight_versions"] = [{"version": "run/0", "start": 0, "end": 1}]
            return {"choices": [choice]}

    async def scenario():
        server = Server("one", Client(), ready=True)
        stops = StopStrings(make_tokenizer())
        pool = ServerPool(asyncio.get_running_loop(), [server], stops, (), 8)
        pool.run = "run"
        future = pool.submit(request(range(4)))
        await asyncio.sleep(0)  # the work is handed out, and none of it has begun
        assert len(server.in_flight) == 4
        pool.mark_lost(server)
        await asyncio.sleep(0.01)
        assert not asked
        pool.mark_ready(server)
        return await asyncio.wait_for(asyncio.wrap_future(future), 10)

    assert len(asyncio.run(scenario())) == 4
    assert sorted(asked) == [0, 1, 2, 3]


def test_a_server_that_dies_again_and_again_ends_in_one_error(make):
    engine = make("dies after 3", restarts=2)
    future = engine.submit(request(range(64)))
    with pytest.raises(RunError, match=r"no vLLM server is left: server 0 was ended by SIGKILL"):
        engine.drain(60)
    with pytest.raises(RunError, match="no vLLM server is left"):
        future.result(0)
    with pytest.raises(RunError, match="no vLLM server is left"):
        engine.submit(request([1]))
    assert [line.count("started again") for line in engine.take_events()] == [1, 0, 1, 0, 0]


def test_the_living_do_the_work_of_one_that_is_given_up(make, tmp_path):
    engine = make("dies after 3", servers=2, restarts=0, once=tmp_path / "once")
    check(sample(engine, range(64)), Policy(), 0)
    until(lambda: engine.metrics()["engine/servers"] == 1)
    assert len(events_until(engine, "given up")) == 1
    policy = Policy(shift=0.3)
    engine.load_weights(1, ModuleSource(policy))
    check(sample(engine, range(64)), policy, 1)


def test_a_server_that_does_not_start_is_told_with_its_last_words(make, monkeypatch, tmp_path):
    (tmp_path / "fails").touch()
    monkeypatch.setenv("FAKE_START_FAILS", str(tmp_path / "fails"))
    with pytest.raises(MachineError, match="exit code 1 at its start: RuntimeError: no memory"):
        make(servers=2)


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        ("refuses weights", "did not arrive"),
        ("spoils weights", "other weights arrived than were sent"),
        ("keeps old weights", "server 0 and trainer disagree by"),
        ("keeps its cache", "did not reset its prefix cache"),
    ],
)
def test_t19_weights_that_did_not_take_are_an_error(make, breaks, words):
    engine = make(breaks)
    with pytest.raises(RunError, match=words):
        engine.load_weights(1, ModuleSource(Policy(shift=0.5)))
    with pytest.raises(RunError, match="out of order since"):
        engine.submit(request([1]))


def test_a_server_that_dies_while_it_takes_weights_comes_back_with_them(make, tmp_path):
    engine = make("dies of weights", servers=2, once=tmp_path / "once")
    policy = Policy(shift=0.3)
    engine.load_weights(1, ModuleSource(policy))
    until(lambda: engine.metrics()["engine/servers"] == 2)
    check(sample(engine, range(64)), policy, 1)


def test_t20_an_aborted_answer_is_sampled_again(make, tmp_path):
    expected = sample(make())
    engine = make("aborts once", once=tmp_path / "once")
    assert sample(engine) == expected
    assert engine.metrics()["engine/resent"] == 1
    with pytest.raises(RunError, match=r"request r: vLLM ended it by 'abort', 3 times"):
        sample(make("aborts"), [1])


def test_t26_what_a_living_server_cannot_do_is_not_tried_for_ever(make):
    engine = make("fails")
    with pytest.raises(RunError, match="an operator failed, 3 times"):
        sample(engine, [1])
    assert engine.metrics()["engine/restarts"] == 0


def test_what_is_unfinished_at_a_sync_goes_on_and_keeps_the_version_it_began_under(make):
    engine = make(slow=0.1, max_in_flight=8)
    a, b = Policy(), Policy(shift=0.3)
    engine.load_weights(3, ModuleSource(a))
    futures = [engine.submit(request([seed])) for seed in range(16)]
    until(lambda: len(servers(engine)[0].in_flight) == 8)
    time.sleep(0.3)
    engine.load_weights(4, ModuleSource(b))
    engine.drain(60)
    crossed, versions = 0, set()
    for (one,) in (future.result(0) for future in futures):
        under = [
            [abs(float(policy.logp[token]) - logp) < 1e-5 for policy in (a, b)]
            for token, logp in zip(one.token_ids, one.logprobs, strict=True)
        ]
        n = [*(pair[0] for pair in under), False].index(False)  # tokens of the old weights
        assert all(pair[1] for pair in under[n:])
        assert one.version == (3 if n else 4)
        versions.add(one.version)
        crossed += one.version == 3 and n < len(under)
    assert versions == {3, 4}
    assert crossed > 0


def test_what_is_aborted_is_cancelled_and_leaves_room(make):
    engine = make(slow=0.2, max_in_flight=4)
    assert engine.in_flight == {"drain", "abort", "keep"}
    engine.begin()
    futures = [engine.submit(request(range(3))) for _ in range(4)]
    engine.abort()
    assert all(future.cancelled() for future in futures)
    engine.drain(1)
    until(lambda: not servers(engine)[0].in_flight)
    check(sample(engine, range(4)), Policy(), 0)
    engine.abort()


def test_answers_of_versions_it_was_not_asked_under_are_not_taken():
    def version(*spans, length=4, versions=range(3, 5)):
        named = [dict(zip(("version", "start", "end"), span, strict=True)) for span in spans]
        return _spans(named, length, "run", versions)[0][0]

    assert version(("run/3", 0, 4)) == 3
    assert version(("run/3", 0, 1), ("run/4", 1, 4)) == 3
    for wrong in (
        [],
        [("run/2", 0, 4)],
        [("run/5", 0, 4)],
        [("other/3", 0, 4)],
        [("default", 0, 4)],
        [("run/4", 0, 1), ("run/3", 1, 4)],
        [("run/3", 0, 3)],
        [("run/3", 1, 4)],
        [("run/3", 0, 1), ("run/4", 2, 4)],
    ):
        with pytest.raises(OtherWeightsError):
            version(*wrong)


def test_a_drain_that_takes_too_long_gives_up_what_is_left(make):
    engine = make(slow=0.5)
    future = engine.submit(request(range(3)))
    with pytest.raises(RunError, match=r"not finished within 0\.5 s; 3 completions were left"):
        engine.drain(0.5)
    with pytest.raises(RunError, match="3 completions were left"):
        future.result(5)


def test_t21_requests_that_cannot_be_answered_are_refused_at_once(make):
    engine = make()
    with pytest.raises(RunError, match="the prompt has no tokens"):
        engine.submit(request([1], prompt=()))
    with pytest.raises(RunError, match="64 tokens leaves no room"):
        engine.submit(request([1], prompt=range(64)))


def test_a_completion_ends_where_the_engine_has_no_more_room(make):
    for answer in sample(make(), range(16), prompt=range(2, 60), max_tokens=500):
        ended = answer.token_ids[-1] == EOS
        assert answer.finish_reason == ("stop" if ended else "length")
        assert ended or len(answer.token_ids) == 64 - 58


def test_a_server_of_another_precision_is_refused(make, monkeypatch):
    monkeypatch.setenv("FAKE_DTYPE", "bfloat16")
    with pytest.raises(ConfigError, match="does not fit this run") as caught:
        make()
    assert "--dtype float32" in str(caught.value)


def test_close_ends_servers_and_open_requests_and_may_be_called_twice(make):
    engine = make(servers=2, slow=1)
    pids = [one.process.pid for one in servers(engine)]
    folder = servers(engine)[0].process.folder
    future = engine.submit(request([1]))
    engine.close()
    engine.close()
    with pytest.raises(RunError, match="closed"):
        future.result(5)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not folder.exists()


TRAINER = """
import sys, time
sys.path[:0] = {path!r}
from rlvr_core.engines.sync import ModuleSource
from rlvr_servers import process
from rlvr_servers.engine import VllmServerEngine
from tests.support.fake_servers import Policy, context, servers
process.SERVER_MODULE = "tests.support.fake_vllm"
engine = VllmServerEngine(VllmServerEngine.Config(servers=2, folder={folder!r}))
engine.start(context())
engine.load_weights(1, ModuleSource(Policy()))
print(*(one.process.pid for one in servers(engine)), flush=True)
time.sleep(600)
"""


def test_t32_servers_do_not_outlive_a_trainer_that_is_killed(make, tmp_path):
    script = TRAINER.format(path=[entry for entry in sys.path if entry], folder=str(tmp_path))
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in trainer.stdout.readline().split()]
    assert len(pids) == 2
    trainer.kill()
    trainer.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    # the copy of the weights is found by the next trainer, and goes
    (left,) = tmp_path.glob("rlvr-weights-*")
    engine = make(folder=str(tmp_path))
    engine.load_weights(1, ModuleSource(Policy()))
    assert not left.exists()
    assert len(list(tmp_path.glob("rlvr-weights-*"))) == 1
    engine.close()
    assert not list(tmp_path.glob("rlvr-weights-*"))


@pytest.mark.slow
def test_two_processes_share_servers_and_both_go_on_when_one_dies(make, tmp_path):
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = Path(__file__).with_name("server_ranks.py")
    done = subprocess.run(
        [sys.executable, *words, str(script), str(tmp_path), "0.05"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [one["started"] for one in found] == [2, 0]
    engine = make()
    for version in range(3):
        engine.load_weights(version, ModuleSource(Policy(shift=0.3 * version)))
        expected = [list(one.token_ids) for one in sample(engine, range(40))]
        both = [tokens for one in found for tokens in one["tokens"][str(version)]]
        assert both == expected


@contextlib.contextmanager
def running(port=0, within=lambda *command: command):
    """A server that somebody else runs."""
    command = [sys.executable, str(Path(fake_vllm.__file__)), "--port", str(port)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    command = list(within(*command))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def test_servers_of_others_are_used_and_left_running(make):
    with running() as (one, url), running() as (other, url_2):
        engine = make(urls=[url, url_2])
        check(sample(engine), Policy(), 0)
        policy = Policy(shift=0.3)
        engine.load_weights(1, ModuleSource(policy))
        check(sample(engine), policy, 1)
        engine.close()
        assert one.poll() is None
        assert other.poll() is None
        # the next run finds the weights of this one in them
        engine = make(urls=[url, url_2])
        with pytest.raises(RunError, match="holds the weights of an earlier run"):
            sample(engine)
        engine.load_weights(0, ModuleSource(Policy()))
        check(sample(engine), Policy(), 0)


def test_a_server_of_others_that_comes_back_is_given_the_weights_it_lacks(make):
    with running() as (process, url):
        engine = make(urls=[url])
        policy = Policy(shift=0.3)
        engine.load_weights(1, ModuleSource(policy))
        process.kill()
        process.wait()
        future = engine.submit(request(range(8)))
        with running(int(url.rpartition(":")[2])):
            engine.drain(60)
            check(future.result(0), policy, 1)
            told = engine.take_events()
            end = time.monotonic() + 120
            while len(told) < 2 and time.monotonic() < end:  # the answer may come first
                time.sleep(0.1)
                told += engine.take_events()
            assert "waiting for it" in told[0]
            assert "is back" in told[1]


def test_weights_that_somebody_else_gives_a_server_are_noticed(make):
    import httpx2

    with running() as (_, url):
        engine = make(urls=[url], deadline=5)
        httpx2.post(f"{url}/update_weight_version", json={"new_version": "theirs"})
        engine.submit(request([1]))
        with pytest.raises(RunError, match="holds weights 'theirs'"):
            engine.drain(60)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"urls": ["http://a"], "servers": 2}, "servers has no effect"),
        ({"urls": ["http://a", "http://a"]}, "names a server twice"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        VllmServerEngine.Config(**options)


def test_t31_engine_gpus_are_dealt_out_to_servers(monkeypatch):
    def gpus(**options):
        return gpus_of(VllmServerEngine.Config(**options))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("RLVR_ENGINE_GPUS", "4,5,6,7")
    assert gpus() == [["4"], ["5"], ["6"], ["7"]]
    assert gpus(tensor_parallel=2) == [["4", "5"], ["6", "7"]]
    assert gpus(servers=1, tensor_parallel=4) == [["4", "5", "6", "7"]]
    assert gpus(gpus=[1]) == [["1"]]
    with pytest.raises(MachineError, match="4 engine GPUs do not divide into 3 servers of 1"):
        gpus(servers=3)
    monkeypatch.setenv("RLVR_ENGINE_GPUS", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(MachineError, match="have no GPU of their own"):
        gpus()
    environment = vllm_serve.environment(["4", "5"])
    assert environment["CUDA_VISIBLE_DEVICES"] == "4,5"


def test_gpus_of_servers_are_places_within_those_that_the_run_was_given(monkeypatch):
    def gpus(*named):
        return gpus_of(VllmServerEngine.Config(gpus=named))

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-6")
    assert gpus(1, 2) == [["5"], ["GPU-6"]]
    assert gpus("GPU-6") == [["GPU-6"]]
    with pytest.raises(ConfigError, match="GPU 3 was asked for, and this run was given 3"):
        gpus(3)
    # a rank of rlvr launch --gpus 0, which was given all four
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    monkeypatch.setenv("RLVR_GIVEN_GPUS", "4,5,6,7")
    assert gpus(1, 3) == [["5"], ["7"]]
    monkeypatch.setenv("RLVR_GIVEN_GPUS", "all")
    assert gpus(1, 3) == [["1"], ["3"]]


def test_a_server_is_no_rank_of_the_run(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    environment = vllm_serve.environment([])
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} & set(environment)
