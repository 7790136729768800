"""Conversations with an engine that works in the background: versions, aborts, deadlines, ends."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from plugins.rlvr_env.tests.environments import turn_toys
from rlvr_core.api import (
    BackgroundEngine,
    EngineTraits,
    Generation,
    GenerationRequest,
    Problem,
    RunError,
    SamplingParams,
)
from rlvr_core.config.model import EnvironmentSection
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.run.learner import shares_model
from rlvr_core.workers.process import ComponentSpec
from rlvr_env.environments.background_turns import BackgroundTurns
from rlvr_env.environments.plan import EnvironmentPlan

PATIENCE = 120.0


@pytest.fixture(autouse=True)
def _toys(monkeypatch):
    """Toys can be imported in the environments' processes."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


class Engine:
    """One token a letter; answers when the test says so, under the version it began under."""

    in_flight = frozenset({"drain", "abort", "keep"})

    def __init__(self, *, continuous=False):
        self.traits = EngineTraits(continuous=continuous)
        self.changed = threading.Condition()
        self.queue, self.open, self.seen = [], [], []
        self.version = 0
        self.broken = None

    def start(self, context): ...
    def sleep(self): ...
    def wake(self): ...
    def close(self): ...

    def submit(self, request):
        if self.broken:
            raise self.broken
        future = Future()
        with self.changed:
            self.queue.append((request, future, self.version))
        return future

    def begin(self):
        with self.changed:
            queued, self.queue = self.queue, []
            self.open += queued
            if queued:
                self.seen.append([request.id for request, *_ in queued])
            self.changed.notify_all()

    def drain(self, timeout=None): ...

    def abort(self):
        with self.changed:
            gone, self.open, self.queue = self.open + self.queue, [], []
        for _, future, _ in gone:
            future.cancel()

    def load_weights(self, version, source):
        self.version = version

    def wait_for(self, n):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.open) >= n, PATIENCE)
            assert len(self.open) == n

    def answer(self, text, only=""):
        with self.changed:
            picked = [one for one in self.open if only in one[0].id]
            self.open = [one for one in self.open if only not in one[0].id]
        for request, future, version in picked:
            said = tuple(
                Generation(tuple(map(ord, text)), (-0.5,) * len(text), text, "stop", version)
                for _ in request.seeds
            )
            future.set_result(said)


class World:
    """Conversations of the toy environment ``name`` with an engine of the test's."""

    def __init__(self, name="Echo", config=None, *, continuous=False, timeout=300.0):
        cls = getattr(turn_toys, name)
        full = f"toy/{name}"
        spec = ComponentSpec(f"{turn_toys.__name__}:{name}", config or {})
        section = EnvironmentSection(use=full, workers=1, timeout=timeout, straggler_timeout=300.0)
        made = cls(cls.Config(**(config or {})))
        plan = EnvironmentPlan(section, {full: spec}, {}, {full: made}, full)
        self.engine = Engine(continuous=continuous)
        self.turns = BackgroundTurns(
            self.engine,
            plan,
            lambda problem, ids, said: tuple(ord(c) for m in said for c in m.content),
        )
        assert isinstance(self.turns, BackgroundEngine)
        self.turns.start(None)

    def ask(self, i=0, n=1, **spec):
        problem = Problem(f"p{i}", "q", "v", spec, "toy", environment="toy/x")
        return self.turns.submit(
            GenerationRequest(
                f"p{i}",
                (ord("q"),),
                SamplingParams(max_tokens=60),
                tuple(range(n)),
                problem=problem,
            )
        )


@pytest.fixture
def world():
    made = []

    def make(*args, **options):
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for one in made:
        pids = one.turns._pool.pids()
        one.turns.close()
        assert not one.turns._thread.is_alive()
        assert not one.turns._open
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_every_token_has_the_version_of_its_turn_and_the_first_turn_is_the_conversations(world):
    """Two syncs on the way: what the environment says is of the version it was said under."""
    one = world(config={"replies": 2})
    done = one.ask()
    one.turns.begin()
    one.engine.wait_for(1)
    one.turns.load_weights(1, None)  # while the first turn is being written
    one.engine.answer("ab")
    one.engine.wait_for(1)
    one.turns.load_weights(2, None)
    one.engine.answer("cd")
    one.engine.wait_for(1)
    one.engine.answer("P")
    (found,) = done.result(PATIENCE)
    assert "".join(map(chr, found.token_ids)) == "ab<1:ab>cd<2:cd>P"
    assert found.version == 0
    assert found.token_versions == (*[0] * 2, *[0] * 6, *[1] * 2, *[1] * 6, 2)
    # all turns under one version: it is said once
    again = one.ask()
    one.turns.begin()
    for text in ("a", "b", "P"):
        one.engine.wait_for(1)
        one.engine.answer(text)
    (found,) = again.result(PATIENCE)
    assert (found.version, found.token_versions) == (2, ())


def test_one_that_fails_before_its_first_turn_has_the_version_of_its_time(world):
    """Its group would otherwise look as old as the run, and be drawn again without end (T23)."""
    one = world("Faulty")
    one.turns.load_weights(5, None)
    done = one.ask(**{"in": "start", "how": "raise"})
    one.turns.begin()
    (found,) = done.result(PATIENCE)
    assert (found.finish_reason, found.version) == ("error", 5)


def test_what_is_begun_together_is_asked_together_round_by_round(world):
    one = world()
    asked = [one.ask(i) for i in range(4)]
    one.turns.begin()
    one.engine.wait_for(4)
    one.engine.answer("a", only="p0")
    one.engine.answer("a", only="p1")
    time.sleep(0.5)  # p0 and p1 are ready, and wait for the rest of their round
    one.engine.wait_for(2)
    one.engine.answer("a")
    one.engine.wait_for(4)
    one.engine.answer("P")
    for done in asked:
        done.result(PATIENCE)
    assert one.engine.seen == [[f"p{i}/0.{turn}" for i in range(4)] for turn in range(2)]


def test_an_engine_that_takes_up_requests_while_it_works_waits_for_no_round(world):
    one = world(continuous=True)
    asked = [one.ask(i) for i in range(2)]
    one.turns.begin()
    one.engine.wait_for(2)
    one.engine.answer("a", only="p0")
    one.engine.wait_for(2)  # p1's first turn and p0's second
    one.engine.answer("P", only="p0")
    asked[0].result(PATIENCE)
    assert not asked[1].done()


def test_t20_aborted_conversations_are_cancelled_closed_once_and_can_be_asked_again(
    world, tmp_path
):
    log = tmp_path / "log"
    one = world(config={"log": str(log)})
    asked = [one.ask(i, n=2) for i in range(2)]
    one.turns.begin()
    one.engine.wait_for(2)
    one.engine.answer("a", only="p0")  # p0 between its turns or in its second, p1 in its first
    queued = one.ask(2)
    one.turns.abort()
    for done in (*asked, queued):
        with pytest.raises(CancelledError):
            done.result(0)
    again = [one.ask(i, n=2) for i in range(3)]
    one.turns.begin()
    one.engine.wait_for(3)
    one.engine.answer("a")
    one.engine.wait_for(3)
    one.engine.answer("P")
    for done in again:
        assert [found.transcript.ended for found in done.result(PATIENCE)] == ["done"] * 2
    until = time.monotonic() + PATIENCE
    wanted = {"p0": 4, "p1": 4, "p2": 2}
    while time.monotonic() < until:
        lines = [line.split() for line in log.read_text().splitlines()]
        closed = Counter(id_ for what, id_, *_ in lines if what == "close")
        if closed == wanted:
            break
        time.sleep(0.05)
    assert closed == wanted
    assert Counter(id_ for what, id_, *_ in lines if what == "start") == wanted


def test_t21_a_wait_for_conversations_has_a_deadline_and_they_are_given_up(world):
    one = world()
    done = one.ask()
    with pytest.raises(RunError, match=r"conversations were not finished within 0\.5 s"):
        one.turns.drain(0.5)
    with pytest.raises(RunError, match="not finished"):
        done.result(0)


def test_t32_an_engine_that_is_gone_fails_conversations_between_their_turns(world):
    one = world()
    done = one.ask()
    one.turns.begin()
    one.engine.wait_for(1)
    one.engine.broken = RunError("the engine's process is gone")
    one.engine.answer("a")
    with pytest.raises(RunError, match="process is gone"):
        done.result(PATIENCE)


def test_a_run_asks_the_engine_inside_whether_it_shares_the_model():
    """What stands around an engine hides nothing of it."""
    engine = TransformersEngine(TransformersEngine.Config())
    plan = EnvironmentPlan(EnvironmentSection(), {}, {}, {})
    assert shares_model(BackgroundTurns(engine, plan, lambda ids: ids))
    assert shares_model(engine)
