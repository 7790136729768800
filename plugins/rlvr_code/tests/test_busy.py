"""Limits are processor seconds: a busy machine costs no right program its reward."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import types

import pytest

from rlvr_code.judge.outcome import ended
from rlvr_code.sandbox import Limits, Sandbox, meter
from rlvr_code.sandbox.limits import Result
from rlvr_code.sandbox.meter import PATIENCE, BusyError, Timer, Usage
from rlvr_code.verifiers import Call, Mbpp, Stdin
from rlvr_core.api import Completion, Problem
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.verdicts import VerifierSpec

SPECS = {
    "Mbpp": {"test_list": ["assert f(1) == 2"]},
    "Call": {"fn_name": "f", "inputs": [[1]], "outputs": [2]},
    "Stdin": {"inputs": ["1\n"], "outputs": ["2\n"]},
}
COMPUTES = """
import time
def f(x):
    end = time.process_time() + {}
    while time.process_time() < end: pass
    return x + 1
"""


def spin():
    """Take a processor for good."""
    while True:
        pass


@contextlib.contextmanager
def hogs(count):
    """Processes that leave nothing of the machine idle."""
    made = [multiprocessing.get_context("fork").Process(target=spin) for _ in range(count)]
    for one in made:
        one.start()
    try:
        yield
    finally:
        for one in made:
            one.kill()
            one.join()


def response(kind, code):
    return Completion.from_text(f"```python\n{code}\n{'print(f(1))' * (kind == 'Stdin')}\n```")


@pytest.mark.parametrize("kind", SPECS)
def test_right_programs_pass_on_a_busy_machine(kind):
    """Each needs half of its limit, and gets a small share of a processor.

    One that got too little of it may have no score, but only after ten seconds by the clock.
    """
    problem = Problem("p", "", "code/x", SPECS[kind], "code/busy")
    spec = VerifierSpec(f"rlvr_code.verifiers:{kind}", {"case_seconds": 1.0})
    with hogs(6), VerifierPool({"v": spec}, workers=4, timeout=60.0, memory_mb=2048) as pool:
        completions = [response(kind, COMPUTES.format(0.5))] * 8
        began = time.monotonic()
        rows = pool.submit_group(problem, completions, ["v"]).result(600)
        seconds = time.monotonic() - began
    verdicts = [(row["v"].score, row["v"].status) for row in rows]
    assert set(verdicts) <= {(1.0, "ok"), (None, "busy")}, rows
    assert verdicts.count((None, "busy")) <= 4 * seconds / PATIENCE, rows  # of 4 workers


@pytest.mark.parametrize(
    ("code", "load"),
    [
        ("import time\ndef f(x): time.sleep(10**8)", 4),
        ("import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)", 4),
        (COMPUTES.format(60), 0),
    ],
)
def test_programs_that_wait_or_compute_for_ever_end_as_wrong_on_any_machine(code, load):
    for verifier, kind in ((Mbpp, "Mbpp"), (Call, "Call"), (Stdin, "Stdin")):
        judge = verifier(verifier.Config(case_seconds=0.5, total_seconds=2.0))
        problem = Problem("p", "", "code/x", SPECS[kind], "code/busy")
        with hogs(load):
            verdict = judge.verify(problem, response(kind, code))
        judge.close()
        assert (verdict.score, verdict.status) == (0.0, "ok"), verdict
        assert "limit" in verdict.detail


class Clocks:
    """Clocks of a program, set by hand."""

    def __init__(self, monkeypatch):
        self.now, self.cpu, self.waited, self.runs = 0.0, 0.0, 0.0, False
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(meter, "Family", lambda servers: Counted(self))

    def pass_by(self, *, running=0.0, waiting=0.0, sleeping=0.0):
        self.now += running + waiting + sleeping
        self.cpu += running
        if self.waited is not None:
            self.waited += waiting


class Counted:
    """What these clocks show from now on, in the place of a ``Family``."""

    def __init__(self, clocks):
        self.clocks, self.cpu, self.waited = clocks, clocks.cpu, clocks.waited or 0.0

    def look(self):
        told = self.clocks.waited
        waited = None if told is None else told - self.waited
        return Usage(self.clocks.cpu - self.cpu, waited)

    def ready(self):
        return self.clocks.runs


def test_what_counts_against_the_limits(monkeypatch):
    clocks = Clocks(monkeypatch)
    timer = Timer(2.0, 5.0)
    timer.begin("a server")
    clocks.pass_by(running=1.5, waiting=10.0)
    assert timer.left() == pytest.approx(0.5)  # of processor time
    clocks.pass_by(running=0.5)
    assert timer.left() == 0.0
    timer.begin("a server")  # 3 s are left of all 5
    clocks.pass_by(sleeping=3.9)
    assert timer.left() == pytest.approx(0.1)  # 2 s of the processor may take 4 s by the clock
    clocks.pass_by(sleeping=0.1)
    assert timer.left() == 0.0
    timer.begin("a server")
    clocks.pass_by(running=1.9)
    timer.begin("a server")
    clocks.pass_by(running=1.1)
    assert timer.left() == 0.0  # 2.0 + 1.9 + 1.1
    timer.end()
    assert timer.over


def test_a_program_that_only_waits_for_the_machine_is_not_judged(monkeypatch):
    clocks = Clocks(monkeypatch)
    timer = Timer(2.0, 5.0)
    timer.begin("a server")
    clocks.pass_by(running=0.5, waiting=19.0)
    assert timer.left() > 0
    clocks.pass_by(waiting=1.0)
    with pytest.raises(BusyError):
        timer.left()


def test_what_is_ready_to_run_does_not_sleep_whatever_the_kernel_has_counted(monkeypatch):
    """A wait is counted when it is over: 19 s of one are not known yet."""
    clocks = Clocks(monkeypatch)
    timer = Timer(2.0, 5.0)
    timer.begin("a server")
    clocks.pass_by(running=0.5, sleeping=19.0)  # as the counts have it
    clocks.runs = True
    assert timer.left() == 0.05
    clocks.pass_by(sleeping=0.5)
    with pytest.raises(BusyError):
        timer.left()
    clocks.runs = False
    assert timer.left() == 0.0


def test_the_time_in_which_everything_stands_still_is_nobodys(monkeypatch):
    clocks = Clocks(monkeypatch)
    timer = Timer(2.0, 5.0)

    def late(servers, *_):
        clocks.pass_by(sleeping=60.0)
        return list(servers), [], []

    monkeypatch.setattr(meter.select, "select", late)
    server = types.SimpleNamespace(pending=False)
    timer.begin(server)
    assert timer.ready() == [server]  # it was to be looked at after a second
    assert timer.left() == 1.0  # of a limit of four seconds by the clock, one has gone by
    clocks.pass_by(sleeping=2.75)
    assert timer.left() == pytest.approx(0.25)
    clocks.pass_by(sleeping=0.25)
    assert timer.left() == 0.0


def test_an_answer_that_is_here_was_in_time_but_only_one(monkeypatch):
    """This process was kept from looking; the program's processor time still counts."""
    clocks, server = Clocks(monkeypatch), types.SimpleNamespace(pending=True)
    timer = Timer(1.0, 5.0)
    timer.begin(server)
    clocks.pass_by(running=0.5, sleeping=4.0)
    assert timer.ready() == [server]
    assert timer.ready() == []
    timer.begin(server)
    clocks.pass_by(running=1.0, sleeping=4.0)
    assert timer.ready() == []


def test_a_program_that_the_sandbox_had_to_end_is_not_judged():
    """The judge ends a program long before, unless it was kept from it."""
    with pytest.raises(BusyError):
        ended(Result("", "", -9, "wall", 15.0))
    assert ended(Result("", "", -9, "killed", 2.0)) == "time limit"


@pytest.mark.parametrize("busy", [False, True])
def test_where_the_kernel_does_not_tell_the_machine_is_asked(monkeypatch, busy):
    """In containers: the clock's limit is the program's doing only if there is room to run."""
    clocks = Clocks(monkeypatch)
    clocks.waited = None
    monkeypatch.setattr(meter, "_busy", lambda: busy)
    timer = Timer(2.0, 5.0)
    timer.begin("a server")
    clocks.now = 4.1
    if busy:
        with pytest.raises(BusyError):
            timer.left()
    else:
        assert timer.left() == 0.0


def test_a_busy_machine_is_a_verdict_without_a_score(monkeypatch):
    def refuse(self):
        raise BusyError("6 processes wait")

    judge = Mbpp(Mbpp.Config())
    monkeypatch.setattr(Timer, "left", refuse)
    verdict = judge.verify(
        Problem("p", "", "code/x", SPECS["Mbpp"], "code/busy"),
        response("Mbpp", "def f(x): return 2"),
    )
    judge.close()
    assert (verdict.score, verdict.status) == (None, "busy")
    assert "6 processes wait" in verdict.detail


def test_pieces_of_a_session_do_not_pay_for_the_machine():
    with hogs(6), Sandbox() as box, box.session(limits=Limits(wall_seconds=120.0)) as session:
        code = "import time\nend = time.process_time() + 0.8\nwhile time.process_time() < end: pass"
        assert session.run(code, seconds=1.6).ok
        assert session.run("import time\ntime.sleep(60)", seconds=0.5).reason == "wall"
