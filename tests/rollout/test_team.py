"""Generation beside training in several processes: who gets what, and what ends how."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from multiprocessing.connection import Connection

import pytest

from rlvr_core.api import (
    Draw,
    MachineError,
    Problem,
    RunError,
    SamplingParams,
)
from rlvr_core.engines.child.link import Link, link_up
from rlvr_core.parallel.ranks import LostError
from rlvr_core.rollout.ahead.distributed import BalancedGenerator, Peer, Worker
from rlvr_core.rollout.collect import Generator
from tests.support.rollouts import PATIENCE, HeldEngine, generator_of

PARAMS = SamplingParams(max_tokens=5)


def pair():
    one, two = socket.socketpair()
    return Link(Connection(one.detach())), Link(Connection(two.detach()))


class Team:
    """Rank 0 and ``n`` helpers, each with an engine of the test's."""

    def __init__(self, n=1):
        self.engines = [HeldEngine() for _ in range(n + 1)]
        links = [pair() for _ in range(n)]
        self.helpers = [
            Worker(generator_of(engine), theirs, rank)
            for rank, (engine, (_, theirs)) in enumerate(
                zip(self.engines[1:], links, strict=True), start=1
            )
        ]
        alone = generator_of(self.engines[0])
        parts = {name: getattr(alone, name) for name in Generator.__slots__}
        self.peers = [Peer(ours) for ours, _ in links]
        self.generator = BalancedGenerator(**parts, peers=self.peers)

    def begin(self, *draws, version=3):
        return [self.generator.begin(draw, PARAMS, version=version) for draw in draws]


def draws(n, each=4):
    return [Draw(Problem(f"p{i}", str(i), "v", {}, "toy"), each, i) for i in range(n)]


def test_t18_draws_go_round_and_their_seeds_do_not_tell_where():
    team, alone = Team(2), HeldEngine()
    for engine in team.engines:
        engine.version = 2
    begun = team.begin(*draws(6))
    team.generator.launch()
    for engine in team.engines:
        engine.wait_for(2)
        while engine.launched == 0:
            time.sleep(0.01)
    names = [engine.wait_for(2) for engine in team.engines]
    assert names == [["p0", "p3"], ["p1", "p4"], ["p2", "p5"]]
    single = generator_of(alone)
    for draw in draws(6):
        single.begin(draw, PARAMS, version=3)
    wanted = {request.id: request for request in alone.requests}
    assert {r.id: r for engine in team.engines for r in engine.requests} == wanted
    for engine in team.engines:
        engine.answer(text="P")
    for answered, judged in begun:
        assert [v["v"].score for v in judged.result(PATIENCE)] == [1.0] * 4
        assert [one.version for one in answered.completions] == [2] * 4


def test_a_slow_process_gets_less():
    team = Team()
    team.begin(*draws(2))
    team.engines[1].wait_for(1)
    team.engines[0].answer()  # process 0 is done, process 1 is not
    team.begin(*draws(4)[2:3])
    team.engines[0].wait_for(1)
    team.engines[1].wait_for(1)


def test_t20_an_abort_cancels_everywhere_before_it_returns():
    team = Team()
    begun = team.begin(*draws(4))
    team.engines[1].wait_for(2)
    team.generator.abort()
    assert [engine.aborted for engine in team.engines] == [2, 2]
    for _, judged in begun:
        with pytest.raises(CancelledError):
            judged.result(0)


def test_t29_a_process_that_does_not_abort_is_waited_for_until_the_deadline():
    ours, theirs = pair()  # nobody listens there, as in a process that was stopped
    alone = generator_of(HeldEngine(), deadline=1.0)
    parts = {name: getattr(alone, name) for name in Generator.__slots__}
    generator = BalancedGenerator(**parts, peers=[Peer(ours)])
    with pytest.raises(RunError, match="were not aborted within 1 s by all processes"):
        generator.abort()
    theirs.close()


def test_t32_what_a_lost_process_had_fails_and_it_is_asked_for_nothing_more():
    ours, theirs = pair()
    team = Team(0)
    generator = BalancedGenerator(
        **{name: getattr(team.generator, name) for name in Generator.__slots__},
        peers=[Peer(ours)],
    )
    here, there = (generator.begin(draw, PARAMS, version=1)[1] for draw in draws(2))
    theirs.start(lambda message: None, lambda error: None)
    theirs.close()
    with pytest.raises(LostError):
        there.result(PATIENCE)
    assert not here.done()
    (_, more) = generator.begin(draws(3)[2], PARAMS, version=1)
    with pytest.raises(LostError):
        more.result(PATIENCE)


@pytest.mark.parametrize("blow", ["generation", "launch", "submit"])
def test_t32_a_fault_of_a_process_is_told_with_its_number(blow, monkeypatch):
    team = Team()
    engine = team.engines[1]
    if blow == "launch":
        engine.fault = MachineError("its disk is on fire", where="engine")
    if blow == "submit":
        monkeypatch.setattr(engine, "submit", lambda _: 1 / 0)
    (_, judged) = team.begin(*draws(2))[1]
    team.generator.launch()
    if blow == "generation":
        engine.wait_for(1)
        engine.fail(RunError("the engine's process is gone", where="word"))
    with pytest.raises((RunError, MachineError)) as error:
        judged.result(PATIENCE)
    told = {
        "generation": "the engine's process is gone\n  at word, process 1",
        "launch": "its disk is on fire\n  at engine, process 1",
        "submit": "ZeroDivisionError: division by zero\n  at process 1",
    }[blow]
    assert told in str(error.value)
    assert error.value.exit_code == (4 if blow == "launch" else 1)


def test_t29_what_a_process_cannot_read_ends_the_link_and_nobody_waits_for_its_answer():
    """As when the other machine has another release."""
    ours, theirs = pair()
    gone = threading.Event()
    ours.start(lambda message: None, lambda error: gone.set())
    theirs.start(lambda message: None, lambda error: None)
    ours._connection.send_bytes(b"no pickle")
    assert gone.wait(5)


class Ranks:
    """Two processes as two threads."""

    world = 2

    def __init__(self, index, told):
        self.index, self._told = index, told

    def on_main(self, act):
        if self.index == 0:
            self._told.set_result(act())
        return self._told.result(PATIENCE)


def test_processes_find_each_other_and_strangers_are_not_listened_to(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    told = Future()
    heard = []

    def stranger():
        port, secret = told.result(PATIENCE)
        for said in (b"", b"short", secrets.token_bytes(len(secret)) + bytes(4)):
            with socket.create_connection(("127.0.0.1", port)) as way:
                way.sendall(said)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(link_up, Ranks(0, told), PATIENCE)
        stranger()
        second = pool.submit(link_up, Ranks(1, told), PATIENCE)
        links = first.result(PATIENCE), second.result(PATIENCE)
    assert [list(found) for found in links] == [[1], [0]]
    arrived = threading.Event()
    links[0][1].start(lambda message: (heard.append(message), arrived.set()), lambda error: None)
    links[1][0].start(lambda message: None, lambda error: None)
    links[1][0].send("hello", 1)
    assert arrived.wait(PATIENCE)
    assert heard == [("hello", 1)]
    for rank, other in ((0, 1), (1, 0)):
        links[rank][other].close()


def test_a_process_that_never_comes_is_missed(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(MachineError, match="cannot be linked"):
        link_up(Ranks(0, Future()), 0.3)
