"""The pool itself, as verifiers use it (calls may be made twice) and as environments do."""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, deque

import psutil
import pytest

from rlvr_core.api import RunError
from rlvr_core.workers.pool import PoolCall, ProcessPool
from rlvr_core.workers.process import ComponentSpec

COMPONENTS = "tests.support.workers.pool_components"
USES = {
    "verifiers": {"repeatable": True, "memory_mb": 2048},
    "environments": {"lazy": True},
}


@pytest.fixture(params=USES)
def use(request):
    return USES[request.param]


class Made:
    """Makes calls and waits for what becomes of them."""

    def __init__(self, pool):
        self.pool = pool
        self.results = {}
        self.order = []
        self.changed = threading.Condition()

    def submit(self, *calls, limit=30.0, name="tool"):
        numbers = range(len(self.results), len(self.results) + len(calls))
        self.results.update(dict.fromkeys(numbers))
        self.pool.submit(
            PoolCall(name, tuple(map(str.encode, call)), limit, self._done(number))
            for number, call in zip(numbers, calls, strict=True)
        )
        return numbers

    def _done(self, number):
        def done(answer, fault, seconds):
            del seconds
            with self.changed:
                assert self.results[number] is None, "one result a call"
                self.results[number] = (answer, fault)
                self.order.append(number)
                self.changed.notify_all()

        return done

    def wait(self, numbers, seconds=60.0):
        with self.changed:
            assert self.changed.wait_for(
                lambda: all(self.results[number] for number in numbers), seconds
            )
        return [self.results[number] for number in numbers]

    def __call__(self, *calls, **options):
        return self.wait(self.submit(*calls, **options))


def open_pool(use, *, workers=2, target="Tool", note="", **more):
    specs = {"tool": ComponentSpec(f"{COMPONENTS}:{target}", {"note": str(note)})}
    return ProcessPool(
        "pool of tools",
        specs,
        f"{COMPONENTS}:handle",
        workers=workers,
        **use,
    )


@pytest.fixture
def made(use):
    pool = open_pool(use)
    yield Made(pool)
    pool.close()


def test_ten_thousand_calls_of_microseconds(made):
    found = made(*[("echo", str(n)) for n in range(10_000)])
    assert found == [({"text": str(n)}, None) for n in range(10_000)]


def test_a_huge_answer_comes_whole_and_holds_up_nobody(made):
    huge, small = made(("huge", "64"), ("echo", "a"))
    assert huge == ("x" * (64 << 20), None)
    assert small == ({"text": "a"}, None)


def test_an_exception_and_what_is_no_json_are_faults_of_the_call_alone(made):
    raised, unwritable, fine = made(("raises", "no"), ("unwritable", ""), ("echo", "a"))
    assert (raised[1].kind, raised[1].detail) == ("raised", "ValueError: no")
    assert unwritable[1].kind == "raised"
    assert "not JSON serializable" in unwritable[1].detail
    assert fine == ({"text": "a"}, None)


RUBBISH = ["rubbish", "5", '"ab"', "[1", '["done", [[0, 0, 1, null], [0, 0, 1, null]]]', "[[], 1]"]


@pytest.mark.parametrize("text", RUBBISH)
def test_a_worker_that_writes_to_its_connection_is_replaced(text):
    pool = open_pool({}, workers=1)
    made = Made(pool)
    made(("echo", "warm"))
    before = pool.pids()
    ((answer, fault),) = made(("rubbish", text))
    assert answer is None
    assert fault.kind == "died"
    assert "wrote to the pool's connection" in fault.detail
    assert made(("echo", "a")) == [({"text": "a"}, None)]
    assert pool.pids() != before
    pool.close()


def test_a_copy_of_a_worker_that_comes_back_from_a_call_answers_nothing(made):
    found = made(*[("fork", ""), ("echo", "a")] * 20)
    assert found == [("forked", None), ({"text": "a"}, None)] * 20


def test_calls_behind_a_slow_one_go_to_other_workers_and_are_made_once(use, tmp_path):
    note = tmp_path / "note"
    pool = open_pool(use, note=note)
    made = Made(pool)
    made(*[("echo", "")] * 400)  # calls are known to be quick: many are sent at once
    slow, *quick = made.submit(("note_and_sleep", "slow"), *[("note", str(n)) for n in range(40)])
    made.wait([slow, *quick])
    assert made.order[-1] == slow
    assert sorted(note.read_text().split()) == sorted(["slow", *map(str, range(40))])
    pool.close()


def test_a_call_that_may_have_changed_the_world_is_never_made_twice(tmp_path):
    note = tmp_path / "note"
    pool = open_pool(USES["environments"], workers=1, note=note)
    made = Made(pool)
    found = made(*[("note", str(n)) for n in range(20)], ("note_and_die", "x"), ("note", "y"))
    assert [answer for answer, _ in found] == [*map(str, range(20)), None, "y"]
    assert (found[20][1].kind, found[20][1].detail) == ("died", "SIGKILL")
    assert note.read_text().split() == [*map(str, range(20)), "x", "y"]
    pool.close()


def test_a_call_that_may_be_made_twice_gets_a_fresh_worker_once(tmp_path):
    note = tmp_path / "note"
    pool = open_pool(USES["verifiers"], workers=1, note=note)
    made = Made(pool)
    made(("echo", "warm"))
    ((answer, fault),) = made(("note_and_die", "x"))
    assert (answer, fault.kind, fault.detail) == (None, "died", "SIGKILL")
    assert note.read_text().split() == ["x", "x"]
    pool.close()


def test_a_worker_that_is_slow_to_take_its_next_call_loses_all_and_is_used_again(tmp_path, use):
    """Nothing has begun, so nothing can be late, and the worker is no worse for it."""
    pool = open_pool(use, workers=1, note=tmp_path / "calls")
    made = Made(pool)
    made(("echo", "warm"))
    before = pool.pids()
    calls = made(("slow_to_take_calls", ""), *[("note", str(n)) for n in range(20)], limit=1.0)
    assert [answer for answer, _ in calls[1:]] == [str(n) for n in range(20)]
    assert sorted(map(int, (tmp_path / "calls").read_text().split())) == [*range(20)]
    assert made(("echo", "a")) == [({"text": "a"}, None)]
    assert pool.pids() == before
    pool.close()


def test_two_pools_at_once_have_nothing_to_do_with_each_other(use):
    first, second = open_pool(use), open_pool(use)
    one, two = Made(first), Made(second)
    one(("echo", "a"), ("echo", "b"))
    two(("echo", "a"))
    assert not set(first.pids()) & set(second.pids())
    waiting = two.submit(("hang", ""), limit=60.0)
    second.close()
    assert two.wait(waiting)[0][1].kind == "closed"
    assert one(("echo", "c")) == [({"text": "c"}, None)]
    first.close()


def test_closing_ends_what_is_pending_and_what_that_submits(use):
    pool = open_pool(use)
    made = Made(pool)
    made(("echo", "warm"))
    faults = []

    def again(answer, fault, seconds):
        del answer, seconds
        faults.append(fault)
        if len(faults) < 8:
            pool.submit([PoolCall("tool", (b"echo", b""), 1.0, again)])

    pool.submit(PoolCall("tool", (b"hang", b""), 60.0, again) for _ in range(5))
    pool.close()
    pool.close()
    assert len(faults) == 12
    assert {(one.kind, one.detail) for one in faults} == {
        ("closed", "the pool of tools was closed")
    }
    assert pool.pids() == []
    with pytest.raises(RunError, match="the pool of tools is closed"):
        pool.submit([])


def test_a_pool_may_be_closed_by_what_it_calls(made):
    closed = threading.Event()

    def close(answer, fault, seconds):
        del answer, fault, seconds
        made.pool.close()
        closed.set()

    made.pool.submit([PoolCall("tool", (b"echo", b""), 30.0, close)])
    assert closed.wait(60)


def test_a_component_that_dies_once_when_it_is_constructed_is_tried_again(use, tmp_path):
    pool = open_pool(use, target="DiesAtFirst", note=tmp_path / "been", workers=1)
    assert Made(pool)(("echo", "a")) == [({"text": "a"}, None)]
    pool.close()


def test_workers_that_do_not_start_fail_each_call(use, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    pool = open_pool(use)
    for _, fault in Made(pool)(("echo", "a"), ("echo", "b")):
        assert (fault.kind, fault.detail) == ("start", "exit code 1")
    pool.close()


def test_a_stopped_worker_holds_up_nobody_however_much_it_is_sent(use, tmp_path, monkeypatch):
    pool = open_pool(use, note=tmp_path / "note")
    made = Made(pool)
    made(("note_and_sleep", ""), ("note_and_sleep", ""))  # both workers are up
    monkeypatch.setattr("rlvr_core.workers.pool.START_LIMIT", 15.0)
    stopped, _ = pool.pids()
    os.kill(stopped, signal.SIGSTOP)
    found = made(*[("echo", "x" * (2 << 20))] * 8)
    assert [len(answer["text"]) for answer, _ in found] == [2 << 20] * 8
    pool.close()
    assert not psutil.pid_exists(stopped)


SEEDS = range(20) if os.environ.get("RLVR_TEST_ALL") else range(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_befalls_the_workers_each_call_has_one_end_and_the_pool_goes_on(
    seed, use, tmp_path
):
    """Workers stopped, continued and killed at random moments, as a busy machine might."""
    draw = random.Random(seed)
    pool = open_pool(use, note=tmp_path / "calls")
    made = Made(pool)
    made(("echo", "warm"))
    over = threading.Event()

    def befall():
        while not over.is_set():
            for pid in pool.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if draw.random() < 0.04 else signal.SIGSTOP)
                    time.sleep(draw.choice([0.0, 0.002, 0.15, 0.3]))
                    os.kill(pid, signal.SIGCONT)
            time.sleep(draw.choice([0.0, 0.01, 0.1]))

    thread = threading.Thread(target=befall)
    thread.start()
    try:
        asked = []
        for number in range(600):
            kind = draw.random()
            if kind < 0.6:
                asked.append(("echo", str(number)))
            elif kind < 0.8:
                asked.append(("note", str(number)))
            else:
                asked.append(("sleep", str(draw.choice([1, 5, 30, 120]))))
        numbers = []
        for start in range(0, 600, 60):
            numbers += made.submit(*asked[start : start + 60], limit=draw.choice([0.5, 5.0]))
            time.sleep(draw.choice([0.0, 0.2]))
        results = made.wait(numbers, 120.0)
    finally:
        over.set()
        thread.join()
    for (what, text), (answer, fault) in zip(asked, results, strict=True):
        if fault is None:
            assert answer == ({"text": text} if what == "echo" else text)
        else:
            assert fault.kind in ("died", "timeout")
    assert sum(fault is not None for _, fault in results) < 200
    written = Counter((tmp_path / "calls").read_text().split())
    if "repeatable" not in use:
        assert max(written.values()) == 1
    assert made(*[("echo", "a")] * 200) == [({"text": "a"}, None)] * 200
    pool.close()


class SlowToFill(deque):
    """A queue into which calls come when the pool has taken all others and waits for news."""

    def extend(self, calls):
        while self:
            time.sleep(0.01)
        time.sleep(1.0)
        super().extend(calls)


def test_a_call_that_comes_as_the_queue_runs_empty_is_made(use):
    pool = open_pool(use, workers=1)
    pool._queue = SlowToFill()
    made = Made(pool)
    try:
        made(("sleep", "500"))  # so it expects such calls, and hands out one at a time
        first = made.submit(("sleep", "500"), ("sleep", "500"))
        time.sleep(0.1)  # one of them is queued
        assert made(("echo", "late"), limit=10.0) == [({"text": "late"}, None)]
        made.wait(first)
    finally:
        pool.close()
