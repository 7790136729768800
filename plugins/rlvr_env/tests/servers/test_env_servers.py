"""Environments in servers: answers as those of the same environment here, and what is lost."""

import asyncio
import contextlib
import json
import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest
from websockets.sync.client import connect

from rlvr_core.api import (
    Done,
    EngineTraits,
    Generation,
    GenerationRequest,
    MachineError,
    Message,
    NoConfig,
    Observation,
    Problem,
    Reply,
    SamplingParams,
    Verdict,
)
from rlvr_core.api.traits import EnvironmentTraits
from rlvr_core.config.model import EnvironmentSection
from rlvr_core.plugins.host import load_host
from rlvr_env.environments.plan import EnvironmentPlan
from rlvr_env.servers.remote import Remote, ServerFailedError
from rlvr_env.servers.server import EnvironmentServer


class Counter:
    """Counts turns to three in a state that cannot be pickled; odd things on request."""

    Config = NoConfig

    def __init__(self, config=None):
        self.open = 0
        self.barrier = threading.Barrier(8)

    def present(self, problem):
        return replace(problem, prompt="count!", stop=("#",))

    def start(self, problem, seed):
        self.open += 1
        return {"seed": seed, "lock": threading.Lock(), "n": 0}

    def step(self, state, reply):
        state["n"] += 1
        if reply.text == "raise":
            raise KeyError("missing")
        if reply.text == "hang":
            time.sleep(1.5)
        if reply.text == "together":
            self.barrier.wait(20)
        if state["n"] == 3:
            return Done(Verdict(0.5, passed=False, detail=f"seed {state['seed']}"))
        return Observation((Message("tool", f"{state['n']}"),), {"calls": 1})

    def cut(self, state, ended):
        return Verdict(0.25, passed=False, detail=f"{ended} after {state['n']}")

    def close(self, state):
        self.open -= 1


class Forgiving(Counter):
    """Tells the model of errors."""

    traits = EnvironmentTraits(on_error="observe", role="user", error_text="sorry: {error}")


class Served:
    """A server in a thread."""

    def __init__(self, environment, **limits):
        self.environment = environment
        limits = {"timeout": 1.0, "most": 16} | limits
        server = EnvironmentServer(environment, "test/counter", **limits)
        self.loop = asyncio.new_event_loop()
        bound: Future[int] = Future()
        self.task = self.loop.create_task(server.run("127.0.0.1", 0, bound.set_result))
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.url = f"ws://127.0.0.1:{bound.result(30)}"

    def _run(self):
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(self.task)

    def close(self):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(30)


@pytest.fixture
def served():
    made = []

    def serve(environment, **limits):
        made.append(Served(environment, **limits))
        return made[-1]

    yield serve
    for one in made:
        one.close()


class Says:
    """An engine that says given texts, one per turn, as one token each."""

    traits = EngineTraits(continuous=True)

    def __init__(self, *texts):
        self.texts = texts
        self.prompts = []

    def start(self, context):
        pass

    def submit(self, request):
        self.prompts.append(request.prompt_ids)
        turn = int(request.id.rpartition(".")[2])
        text = self.texts[turn]
        future = Future()
        made = Generation((100 + turn,), (-0.5,), text, "stop", 0)
        future.set_result((made,) * len(request.seeds))
        return future

    def drain(self, timeout=None):
        pass

    def close(self):
        pass


PROBLEM = Problem("p", (Message("user", "hi"),), "env/environment", {"a": [1]}, "d")


def played(url, engine, n=1, **section):
    host = load_host()
    section = {"use": "env/remote", "with": {"url": url}, "straggler_timeout": 0, **section}
    plan = EnvironmentPlan.build(EnvironmentSection.model_validate(section), [PROBLEM], host)
    player = plan.play(engine, lambda problem, ids, said: (7,) * len(said), background=False)
    try:
        request = GenerationRequest(
            "r", (1, 2), SamplingParams(max_tokens=50), tuple(range(n)), (), PROBLEM, 11
        )
        future = player.submit(request)
        player.drain(60)
        return future.result()
    finally:
        player.close()


def gone(environment):
    deadline = time.monotonic() + 30
    while environment.open and time.monotonic() < deadline:
        time.sleep(0.01)
    return environment.open == 0


def test_a_conversation_at_a_server_is_one_like_any_other(served):
    at = served(Counter())
    engine = Says("a", "b", "c")
    (one,) = played(at.url, engine)
    assert one.token_ids == (100, 7, 101, 7, 102)
    assert one.loss_mask == (True, False, True, False, True)
    assert one.transcript.ended == "done"
    assert one.transcript.verdict == Verdict(0.5, passed=False, detail="seed 11")
    assert one.transcript.counts == {"calls": 2}
    assert engine.prompts == [(1, 2), (1, 2, 100, 7), (1, 2, 100, 7, 101, 7)]
    assert gone(at.environment)


def test_conversations_of_a_group_are_answered_at_the_same_time(served):
    # each call waits until all eight are being made: one after another would never end
    at = served(Counter(), timeout=30.0)
    found = played(at.url, Says("together", "b", "c"), n=8)
    assert [one.transcript.ended for one in found] == ["done"] * 8


@pytest.mark.parametrize(
    ("text", "ended", "detail"),
    [("raise", "error", "says raised: KeyError: 'missing'"), ("hang", "timeout", "took longer")],
)
def test_what_fails_at_the_server_is_no_reward(served, text, ended, detail):
    at = served(Counter(), timeout=0.2)
    (one,) = played(at.url, Says("a", text))
    assert one.transcript.ended == ended
    assert detail in one.transcript.detail
    assert one.transcript.verdict is None
    assert gone(at.environment)


def test_an_error_that_the_environment_tells_the_model_is_told(served):
    at = served(Forgiving())
    (one,) = played(at.url, Says("raise", "b", "c"))
    assert one.transcript.turns[1].text == "sorry: KeyError: 'missing'"
    assert one.transcript.counts == {"failed_calls": 1, "calls": 1}


def test_a_server_judges_what_was_cut_off(served):
    at = served(Counter())
    (one,) = played(at.url, Says("a", "b"), max_turns=2)
    assert one.transcript.verdict == Verdict(0.25, passed=False, detail="max_turns after 2")


def test_a_server_that_ends_loses_its_conversations_and_no_reward_is_made_up(served):
    at = served(Counter())

    async def play():
        remote = Remote(Remote.Config(url=at.url))
        connection = await remote.start(PROBLEM, 1)
        said = await remote.step(connection, Reply("a", 0, 5))
        assert said.messages == (Message("tool", "1"),)
        at.loop.call_soon_threadsafe(at.task.cancel)

        async def go_on():
            while True:
                await remote.step(connection, Reply("a", 1, 4))

        with pytest.raises(ServerFailedError, match="was lost, and the conversation with it"):
            await go_on()

    asyncio.run(play())
    at.thread.join(30)
    remote = Remote(Remote.Config(url=at.url))
    with pytest.raises(MachineError, match="cannot be reached"):
        remote.present(PROBLEM)


def test_a_lost_conversation_cannot_be_taken_up_again(served):
    at = served(Counter(), most=1)
    with connect(at.url) as wire, connect(at.url) as other:

        def ask(wire, **frame):
            wire.send(json.dumps(frame))
            return json.loads(wire.recv(30))

        plain = {"id": "p", "prompt": "x", "verifier": "v", "spec": {}, "dataset": "d"}
        plain |= {"stop": [], "tools": []}
        assert ask(wire, type="resume", conversation=0)["status"] == "lost"
        assert ask(wire, type="step", text="a", turn=0, turns_left=1)["status"] == "lost"
        assert ask(wire, type="open", problem=plain, seed=1) == {
            "type": "opened",
            "conversation": 0,
        }
        assert ask(wire, type="open", problem=plain, seed=1)["status"] == "protocol"
        assert ask(other, type="open", problem=plain, seed=1)["status"] == "full"
        fault = ask(wire, type="step", text="a")
        assert (fault["status"], fault["detail"]) == (
            "protocol",
            "step needs the field 'turn', a int",
        )
        assert ask(wire, type="nonsense")["status"] == "protocol"
        assert ask(wire, type="close") == {"type": "closed"}
        assert ask(other, type="open", problem=plain, seed=1)["type"] == "opened"
