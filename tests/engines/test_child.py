"""An engine in a process of its own: the same answers, new weights on demand, a clean end."""

from __future__ import annotations

import copy
import importlib.util
import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import replace

import psutil
import pytest
import torch

from rlvr_core.api import (
    BackgroundEngine,
    EngineContext,
    Interruptible,
    MachineError,
    RunError,
    ScoreRequest,
)
from rlvr_core.config.model import LoraSection
from rlvr_core.engines.child.child import in_child
from rlvr_core.engines.child.shared_weights import ReceivedSource
from rlvr_core.engines.scripted import ScriptedEngine
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.engines.vllm.engine import VllmEngine
from rlvr_core.engines.vllm.probe import trainer_logprobs
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import matrices
from rlvr_core.run.learner import shares_model
from tests.support.embedded import (
    Adapting,
    Complaining,
    Own,
    check_logprobs,
    exact_logits,
    generate,
    make_model,
    make_tokenizer,
    request,
    start,
)

PATIENCE = 120.0
LONG = 230


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(tokenizer)


@pytest.fixture(scope="module")
def context(model, tokenizer):
    return EngineContext("", model, tokenizer, torch.float32, 256, 0)


@pytest.fixture(scope="module")
def child(context):
    engine = in_child(TransformersEngine(TransformersEngine.Config()), PATIENCE)
    engine.start(context)
    yield engine
    engine.close()


@pytest.fixture
def fresh(child, model):
    """The child with the model's first weights, as version 0."""
    child.load_weights(0, ModuleSource(model))
    return child


def other(model):
    torch.manual_seed(1)
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return changed


def wait_until(condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_it_gives_what_the_engine_gives_in_this_process_bit_for_bit(fresh, model, tokenizer):
    assert isinstance(fresh, BackgroundEngine)
    asked = [request((5, 6, 7 + i), n=3, seed=i, max_tokens=20) for i in range(4)]
    ours = generate(start(model, tokenizer), *asked)
    assert generate(fresh, *asked) == ours


def test_new_weights_arrive_and_are_labelled(fresh, model, tokenizer):
    changed = other(model)
    fresh.load_weights(7, ModuleSource(changed))
    asked = request((5, 6, 7), n=2, max_tokens=12)
    ((first, second),) = generate(fresh, asked)
    assert {first.version, second.version} == {7}
    ((mine, _),) = generate(start(changed, tokenizer), asked)
    assert first.token_ids == mine.token_ids
    scored = ScoreRequest((5, 6, 7), first.token_ids)
    assert fresh.score([scored], 60) == start(changed, tokenizer).score([scored], 60)


def test_abort_cancels_everything_unfinished_and_work_goes_on(fresh):
    futures = [fresh.submit(request((5, 6, 7), n=64, seed=i, max_tokens=LONG)) for i in range(2)]
    fresh.begin()
    queued = fresh.submit(request((5, 6, 7), max_tokens=2))
    fresh.abort()
    for future in (*futures, queued):
        assert future.done()
        if not future.cancelled():  # it may just have been finished
            assert future.result()[0].finish_reason in ("stop", "length")
    assert queued.cancelled()
    with pytest.raises(CancelledError):
        queued.result()
    fresh.drain(PATIENCE)
    ((answer,),) = generate(fresh, request((5, 6, 7), max_tokens=2))
    assert len(answer.token_ids) == 2


def test_keep_goes_on_with_new_weights_and_says_which_token_has_which(fresh, model, tokenizer):
    """Log-probs are those of the weights each token says it has, on the cache it has."""
    changed = other(model)
    mixed = []
    for attempt in range(8):  # weights may come before it has begun, or after it is done
        fresh.load_weights(0, ModuleSource(model))
        future = fresh.submit(request((5, 6, 7), n=48, max_tokens=LONG))
        fresh.begin()
        time.sleep(0.02 * attempt)
        fresh.load_weights(1, ModuleSource(changed))
        answers = future.result(PATIENCE)
        assert {answer.version for answer in answers} in ({0}, {1})
        mixed = [answer for answer in answers if answer.token_versions]
        if mixed:
            break
    assert mixed
    assert {answer.version for answer in answers} == {0}
    for answer in mixed[:4]:
        versions = answer.token_versions
        assert len(versions) == len(answer.token_ids)
        assert list(versions) == sorted(versions)
        first = versions.count(0)
        logp = exact_logits(model, (5, 6, 7), answer.token_ids).log_softmax(-1)
        old = logp.gather(1, torch.tensor(answer.token_ids)[:, None])[:first, 0].float()
        assert old.tolist() == pytest.approx(list(answer.logprobs[:first]), abs=1e-3)
    ((after,),) = generate(fresh, request((5, 6, 7), max_tokens=4))
    assert (after.version, after.token_versions) == (1, ())


class Gathered:
    """Weights of a policy of which no process has a whole copy, as FSDP's: what is asked of it."""

    sharded = True

    def __init__(self, model):
        self._model = model
        self.asked = []

    @property
    def module(self):
        raise AssertionError("there is no whole copy")

    def tensors(self):
        self.asked.append("tensors")
        return ModuleSource(self._model).tensors()

    def logprobs(self, prompt_ids, token_ids):
        self.asked.append("logprobs")
        return trainer_logprobs(self._model, prompt_ids, token_ids, torch.float32)


@pytest.mark.slow
def test_an_engine_with_weights_of_its_own_needs_no_whole_copy_of_a_sharded_policy(
    context, model, tmp_path, monkeypatch
):
    model.save_pretrained(tmp_path)
    engine = in_child(Own(Own.Config()), PATIENCE)
    engine.start(replace(context, model_path=str(tmp_path)))
    try:
        source = Gathered(changed := other(model))
        engine.load_weights(1, source)
        # at first their size is asked for as well
        assert source.asked == ["tensors", "tensors", "logprobs"]
        ((answer,),) = generate(engine, request((5, 6, 7), max_tokens=8))
        check_logprobs(changed, (5, 6, 7), answer, 1e-3)
        # unfinished here, perhaps not in another process: all compute the probe together
        source = Gathered(model)
        with monkeypatch.context() as patched:
            patched.setattr(engine.channel, "unfinished", lambda: [Future()])
            engine.load_weights(2, source)
        assert source.asked == ["tensors", "logprobs"]
        wrong = Gathered(changed)
        wrong.tensors = lambda: iter(())  # nothing is copied
        with pytest.raises(RunError, match="disagree by"):
            engine.load_weights(3, wrong)
    finally:
        engine.close()


@pytest.mark.slow
def test_an_engine_that_takes_adapters_gets_nothing_else(context, model, tmp_path):
    model.save_pretrained(tmp_path)
    adapted = copy.deepcopy(model)
    section = LoraSection(rank=4, alpha=8)
    lora.attach(adapted, section, seed=1, compute=torch.float32, path="x", revision=None)
    engine = in_child(Adapting(Adapting.Config()), PATIENCE)
    assert engine.in_flight == {"drain", "abort"}
    engine.start(replace(context, model=adapted, model_path=str(tmp_path), adapter_rank=4))
    try:
        for version in (1, 2):
            torch.manual_seed(version)
            with torch.no_grad():
                for matrix in matrices(adapted).values():
                    matrix.copy_(0.3 * torch.randn_like(matrix))
            engine.load_weights(version, ModuleSource(adapted))
            ((answer,),) = generate(engine, request((5, 6, 7), max_tokens=8))
            assert answer.version == version
            check_logprobs(adapted, (5, 6, 7), answer, 1e-3)
    finally:
        engine.close()


def test_a_probe_waits_for_itself_alone(fresh, model, monkeypatch):
    """What another thread begins meanwhile may take as long as it likes."""
    unfinished = iter([[]])
    monkeypatch.setattr(fresh.channel, "unfinished", lambda: next(unfinished, [Future()]))
    monkeypatch.setattr(fresh, "_deadline", 30.0)
    fresh.load_weights(1, ModuleSource(other(model)))
    assert next(unfinished, None) is None


@pytest.mark.parametrize(
    ("engine", "shares"),
    [(TransformersEngine(TransformersEngine.Config()), True), (Own(Own.Config()), False)],
    ids=["transformers", "own"],
)
def test_a_whole_copy_of_a_sharded_policy_is_made_where_it_is_needed(engine, shares):
    """Wherever the engine is."""
    beside = in_child(engine, PATIENCE)
    assert [shares_model(one) for one in (engine, beside)] == [shares] * 2


@pytest.mark.slow
def test_t19_t30_weights_that_do_not_arrive_are_an_error(context, model, monkeypatch):
    engine = in_child(TransformersEngine(TransformersEngine.Config()), PATIENCE)
    monkeypatch.setattr(ReceivedSource, "refresh", lambda self: None)
    engine.start(context)
    try:
        engine._weights_of = lambda source: (tuple, None)  # nothing is copied
        with pytest.raises(RunError, match="disagree by"):
            engine.load_weights(1, ModuleSource(other(model)))
    finally:
        engine.close()


def test_t29_t32_a_sync_has_a_deadline_and_a_killed_process_is_one_clear_error(context, model):
    engine = in_child(ScriptedEngine(ScriptedEngine.Config(answers={"": ["5"]}, delay=600)), 0.2)
    assert engine.in_flight == {"drain"}
    engine.start(context)
    future = engine.submit(request((5, 6)))
    engine.begin()

    def sync_again_and_again():  # it answers until it has begun with the request
        while True:
            engine.load_weights(1, ModuleSource(model))

    with pytest.raises(RunError, match=r"did not answer 'load_weights' within 0\.2 s"):
        sync_again_and_again()
    with pytest.raises(RunError, match=r"not finished within 0\.2 s; 1 requests were left"):
        engine.drain(0.2)
    process = psutil.Process(engine.channel.pid)
    os.kill(engine.channel.pid, signal.SIGKILL)
    with pytest.raises(RunError, match="process is gone: SIGKILL"):
        future.result(PATIENCE)
    with pytest.raises(RunError, match="process is gone: SIGKILL"):
        engine.submit(request((5, 6)))
    engine.close()
    engine.close()
    assert not process.is_running()


def test_a_notice_that_every_process_of_a_machine_gets_is_the_trainers_to_heed(fresh):
    """Slurm sends SIGTERM to all it runs, and the trainer needs its engine to end its step."""
    for notice in (signal.SIGTERM, signal.SIGINT):
        os.kill(fresh.channel.pid, notice)
        assert len(generate(fresh, request((5, 6, 7), n=3))[0]) == 3


def test_t29_a_stopped_process_holds_nobody_up_who_sends_to_it(context, model):
    """Requests that no socket has room for: sending returns, and every wait has its deadline."""
    engine = in_child(ScriptedEngine(ScriptedEngine.Config(answers={"": ["5"]})), 0.2)
    engine.start(context)
    try:
        os.kill(engine.channel.pid, signal.SIGSTOP)
        future = engine.submit(request(range(1_000_000)))
        sending = threading.Thread(target=engine.begin, daemon=True)
        sending.start()
        sending.join(PATIENCE)
        assert not sending.is_alive()
        with pytest.raises(RunError, match=r"not finished within 0\.2 s; 1 requests were left"):
            engine.drain(0.2)
        with pytest.raises(RunError, match=r"did not answer 'load_weights' within 0\.2 s"):
            engine.load_weights(1, ModuleSource(model))
        os.kill(engine.channel.pid, signal.SIGCONT)
        assert len(future.result(PATIENCE)) == 1  # nothing of it was lost
        os.kill(engine.channel.pid, signal.SIGSTOP)
        engine.submit(request(range(1_000_000)))
        engine.begin()
    finally:
        process = psutil.Process(engine.channel.pid)
        engine.close()
    assert not process.is_running()


def test_a_message_that_cannot_be_read_is_told_at_once(context):
    engine = in_child(Complaining(Complaining.Config(answers={"": ["5"]})), PATIENCE)
    engine.start(context)
    future = engine.submit(request((5, 6)))
    engine.begin()
    with pytest.raises(RunError, match=r"said cannot be read: TypeError: .*'two'"):
        future.result(PATIENCE)
    with pytest.raises(RunError, match="said cannot be read"):
        engine.submit(request((5, 6)))
    engine.close()


def test_an_engine_that_does_not_start_there_says_why(context):
    engine = in_child(ScriptedEngine(ScriptedEngine.Config(answers={"": ["5"]}, logprob=None)), 60)
    engine._copy_of = lambda model: None
    with pytest.raises(MachineError, match="cannot compute log-probs without a model"):
        engine.start(context)
    engine.close()


def test_an_engine_that_cannot_be_moved_is_refused(context):
    engine = in_child(ScriptedEngine(ScriptedEngine.Config(answers={"": ["5"]})), 60)
    engine._engine._queue = [lambda: None]
    with pytest.raises(MachineError, match="cannot be put into a process of its own"):
        engine.start(context)
    engine.close()


@pytest.mark.slow
def test_the_process_goes_when_the_trainer_is_gone(tmp_path):
    """kill -9 of the trainer leaves no process behind (T32)."""
    import subprocess

    script = tmp_path / "trainer.py"
    script.write_text(
        "import time, torch\n"
        "from tests.support.embedded import make_model, make_tokenizer\n"
        "from rlvr_core.engines.child.child import in_child\n"
        "from rlvr_core.engines.transformers import TransformersEngine\n"
        "from rlvr_core.api import EngineContext\n"
        "t = make_tokenizer(); m = make_model(t)\n"
        "e = in_child(TransformersEngine(TransformersEngine.Config()), 60)\n"
        "e.start(EngineContext('', m, t, torch.float32, 256, 0))\n"
        "print(e.channel.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    trainer = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    engine = psutil.Process(int(trainer.stdout.readline()))
    trainer.kill()
    trainer.wait()
    wait_until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllm_in_a_process_of_its_own(tmp_path):
    """New weights are probed; abort cancels. Runs keep requests: run/test_asynchronous.py."""
    from tests.support.vllm_models import make_model as big
    from tests.support.vllm_models import make_tokenizer as words

    tokenizer = words()
    model = big(tokenizer, tied=True, seed=0).cpu()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = in_child(VllmEngine(VllmEngine.Config(kv_cache_mb=64)), PATIENCE)
    assert isinstance(engine._engine, Interruptible)
    engine.start(EngineContext(str(tmp_path), model, tokenizer, torch.float32, 192, 0))
    try:
        before = generate(engine, request(range(10, 90), n=2, max_tokens=8))[0]
        changed = other(model)
        engine.load_weights(1, ModuleSource(changed))  # raises if the probe disagrees
        after = generate(engine, request(range(10, 90), n=2, max_tokens=8))[0]
        assert {one.version for one in after} == {1}
        assert after[0].logprobs != before[0].logprobs
        check_logprobs(changed, range(10, 90), after[0], 1e-3)

        future = engine.submit(request(range(10, 90), n=16, max_tokens=100))
        engine.begin()
        engine.abort()
        assert future.done()
    finally:
        engine.close()
