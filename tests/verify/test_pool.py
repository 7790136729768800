import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from rlvr_core.api import Completion, Problem, Verdict
from rlvr_core.verify.pool import VerifierPool, VerifierSpec

BAD = "tests.support.verify.bad_verifiers"


def make_pool(*classes, workers=2, timeout=5.0, memory_mb=512):
    specs = {name: VerifierSpec(f"{BAD}:{name}", {}) for name in classes}
    return VerifierPool(specs, workers=workers, timeout=timeout, memory_mb=memory_mb)


def problem(**spec):
    return Problem("p1", "?", "none", spec, "toy")


def judge(pool, name, *texts, **spec):
    completions = [Completion.from_text(text) for text in texts]
    rows = pool.submit_group(problem(**spec), completions, [name]).result(60)
    return [row[name] for row in rows]


def submit(pool, asked, text, name):
    """Have one text judged by one verifier."""
    return pool.submit_group(asked, [Completion.from_text(text)], [name])


def verdict(future, seconds=60):
    """The one verdict of ``submit``."""
    (row,) = future.result(seconds)
    (found,) = row.values()
    return found


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_verdicts_come_in_order_of_completions_and_names():
    with make_pool("Good", "Takes") as pool:
        completions = [Completion.from_text(text) for text in ("0.2", "0", "0.1", "0.0")]
        rows = pool.submit_group(problem(answer="0.1"), completions, ["Takes", "Good"]).result(60)
        assert [list(row) for row in rows] == [["Takes", "Good"]] * 4
        assert [row["Good"].score for row in rows] == [0.0, 0.0, 1.0, 0.0]
        assert rows[2]["Good"] == Verdict(1.0, passed=True, extracted="0.1")
        alone = submit(pool, problem(answer="x"), "x", "Good")
        assert verdict(alone).passed is True


def test_nothing_to_judge_is_an_answer():
    with make_pool("Good") as pool:
        assert pool.submit_group(problem(), [], ["Good"]).result(0) == []
        assert pool.submit_group(problem(), [Completion.from_text("")], []).result(0) == [{}]


def test_t51_hung_worker_is_replaced_and_costs_only_itself():
    with make_pool("Sleeps", workers=1, timeout=0.5) as pool:
        judge(pool, "Sleeps", "warm")
        before = pool.pids()
        verdicts = judge(pool, "Sleeps", "a", "hang", "b", "hang", "c")
        assert [v.status for v in verdicts] == ["ok", "timeout", "ok", "timeout", "ok"]
        assert [v.score for v in verdicts] == [1.0, None, 1.0, None, 1.0]
        assert "0.5 s" in verdicts[1].detail
        assert wait_until(lambda: not any(psutil.pid_exists(pid) for pid in before))
        stats = pool.stats()["Sleeps"]
        assert (stats.calls, stats.timeouts, stats.errors) == (6, 2, 0)


@pytest.mark.parametrize(
    ("bad", "status"),
    [("hang", "timeout"), ("exit", "error"), ("raise", "error"), ("change", "ok")],
)
def test_a_bad_completion_costs_only_itself_in_a_call_with_others(bad, status):
    with make_pool("Quick", workers=1, timeout=0.5) as pool:
        judge(pool, "Quick", *["warm"] * 60, answer="as given")
        texts = [f"{n}" for n in range(21)]
        texts[10] = bad
        verdicts = judge(pool, "Quick", *texts, answer="as given")
        good = [verdict for at, verdict in enumerate(verdicts) if at != 10]
        assert {(v.score, v.status, v.passed, v.detail) for v in good} == {(1.0, "ok", True, "")}
        assert [v.extracted for v in good] == [text for text in texts if text != bad]
        assert verdicts[10].status == status
        stats = pool.stats()["Quick"]
        assert stats.calls == 81
        assert stats.timeouts + stats.errors == (status != "ok")


def test_of_several_in_one_call_only_the_busy_one_is_judged_again(tmp_path):
    """Every other verdict is counted once; the busy one is asked for until it is not busy."""
    with make_pool("BusyAtFirst", workers=1) as pool:
        warm = tmp_path / "warm"
        judge(pool, "BusyAtFirst", *["warm"] * 60, busy=0, file=str(warm))
        tries = tmp_path / "tries"
        verdicts = judge(pool, "BusyAtFirst", *["x"] * 8, busy=1, file=str(tries))
        assert [v.status for v in verdicts] == ["ok"] * 8
        assert len(tries.read_text()) == 9


@pytest.mark.parametrize("at", [0, 31, 199])
def test_t51_the_hung_verdict_is_found_among_quick_ones_that_were_not_reported_yet(at):
    with make_pool("Sleeps", workers=1, timeout=0.5) as pool:
        judge(pool, "Sleeps", *["warm"] * 100)
        texts = ["quick"] * 200
        texts[at] = "hang"
        verdicts = judge(pool, "Sleeps", *texts)
        assert [i for i, v in enumerate(verdicts) if v.status != "ok"] == [at]
        assert verdicts[at].status == "timeout"
        stats = pool.stats()["Sleeps"]
        assert (stats.timeouts, stats.errors) == (1, 0)


def test_t51_hang_in_c_code_does_not_stall_the_others():
    with make_pool("HangsInC", "Good", workers=2, timeout=0.4) as pool:
        judge(pool, "HangsInC", "warm", "up")
        hung = [submit(pool, problem(), "hang", "HangsInC") for _ in range(20)]
        began = time.monotonic()
        assert {verdict(future).status for future in hung} == {"timeout"}
        # 20 deadlines over 2 workers are 4 s; the rest is starting 20 processes.
        assert time.monotonic() - began < 60
        began = time.monotonic()
        verdicts = judge(pool, "Good", *["x"] * 500, answer="x")
        assert all(v.passed for v in verdicts)
        assert time.monotonic() - began < 10
        assert len(pool.pids()) == 2


def test_t51_the_clock_starts_when_the_verdict_begins_not_when_it_queues():
    with make_pool("Takes", workers=1, timeout=0.5) as pool:
        verdicts = judge(pool, "Takes", *["0.2"] * 6)
        assert [v.status for v in verdicts] == ["ok"] * 6


def test_t53_catastrophic_backtracking_is_a_timeout():
    with make_pool("Backtracks", workers=1, timeout=0.5) as pool:
        verdicts = judge(pool, "Backtracks", "aaa", "a" * 60 + "b", "ab")
        assert [(v.status, v.score) for v in verdicts] == [
            ("ok", 1.0),
            ("timeout", None),
            ("ok", 0.0),
        ]


@pytest.mark.parametrize(
    ("text", "cause"), [("segfault", "SIGSEGV"), ("exit", "exit code 7"), ("kill", "SIGKILL")]
)
def test_t70_dead_worker_is_replaced(text, cause):
    with make_pool("Dies", workers=1) as pool:
        verdicts = judge(pool, "Dies", "a", text, "b", text, "c")
        assert [v.status for v in verdicts] == ["ok", "error", "ok", "error", "ok"]
        assert verdicts[1].detail == f"worker died: {cause}"
        assert len(pool.pids()) == 1


def test_t70_an_idle_worker_that_dies_is_replaced():
    with make_pool("Good", workers=1) as pool:
        judge(pool, "Good", "x", answer="x")
        (pid,) = pool.pids()
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: pool.pids() not in ([], [pid]))
        assert judge(pool, "Good", "x", answer="x")[0].passed


def test_t70_a_verdict_whose_worker_was_worn_out_gets_a_fresh_one():
    with make_pool("DiesOnce", workers=1) as pool:
        assert [v.status for v in judge(pool, "DiesOnce", "first", "second")] == ["ok", "ok"]


def test_memory_eater_is_an_error_and_the_pool_goes_on():
    with make_pool("EatsMemory", workers=1, memory_mb=200) as pool:
        verdicts = judge(pool, "EatsMemory", "a", "eat", "b")
        assert [v.status for v in verdicts] == ["ok", "error", "ok"]
        assert verdicts[1].detail == "out of memory"


def test_memory_leaked_by_earlier_verdicts_does_not_fail_a_later_one():
    with make_pool("Leaks", workers=1, memory_mb=200) as pool:
        assert [v.status for v in judge(pool, "Leaks", *"abcdefgh")] == ["ok"] * 8


@pytest.mark.parametrize(("busy", "status"), [(0, "ok"), (3, "ok"), (4, "busy")])
def test_a_verdict_on_a_busy_machine_is_judged_again_and_never_a_score(tmp_path, busy, status):
    with make_pool("BusyAtFirst") as pool:
        (verdict,) = judge(pool, "BusyAtFirst", "x", file=str(tmp_path / "tries"), busy=busy)
        assert (verdict.status, verdict.score) == (status, 1.0 if status == "ok" else None)
        assert (tmp_path / "tries").read_text() == "." * min(busy + 1, 4)
        assert pool.stats()["BusyAtFirst"].timeouts == (status == "busy")


def test_exceptions_are_errors_with_type_and_message():
    with make_pool("Raises") as pool:
        plain, leaving, mute = judge(pool, "Raises", "thing", "system exit", "unspeakable")
        assert (plain.status, plain.detail) == ("error", "ValueError: no such thing")
        assert (leaving.status, leaving.detail) == ("error", "SystemExit: 3")
        assert (mute.status, mute.detail[:17]) == ("error", "UnspeakableError:")


def test_printing_megabytes_reaches_nobody_and_blocks_nothing(capfd):
    with make_pool("Prints") as pool:
        assert [v.score for v in judge(pool, "Prints", "a", "b")] == [1.0, 1.0]
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_garbage_is_an_error():
    says = {
        "number": "returned float, not a Verdict",
        "none": "returned NoneType, not a Verdict",
        "nan": "score is nan",
        "inf": "score is inf",
        "part": "part a is nan",
        "text": "score is str, not a number",
        "passed": "passed is 'yes'",
        "status": "status 'fine'",
    }
    with make_pool("Garbage", workers=1) as pool:
        verdicts = judge(pool, "Garbage", *says)
    assert [verdict.status for verdict in verdicts] == ["error"] * len(says)
    for verdict, expected in zip(verdicts, says.values(), strict=True):
        assert expected in verdict.detail


def test_odd_and_huge_texts_survive_the_trip_in_bounds():
    with make_pool("Garbage", workers=1) as pool:
        odd, huge = judge(pool, "Garbage", "odd", "huge")
        assert odd.extracted == "\ud800\0"
        assert len(huge.extracted) < 30_000
        assert len(huge.detail) < 1_000


def test_every_call_gets_its_own_problem():
    with make_pool("Alters", workers=1) as pool:
        assert [v.score for v in judge(pool, "Alters", *"abcd", seen=[])] == [1.0] * 4


@pytest.mark.parametrize("bad", ["raise", "hang"])
def test_t51_a_group_call_that_fails_is_judged_one_by_one(bad):
    with make_pool("Grouped", timeout=0.5) as pool:
        verdicts = judge(pool, "Grouped", "a", bad, "b")
        expected = "timeout" if bad == "hang" else "ok"
        assert [v.status for v in verdicts] == ["ok", expected, "ok"]
        assert pool.stats()["Grouped"].calls == 3


def test_a_verifier_that_cannot_be_constructed_spoils_only_its_own_verdicts():
    with make_pool("CannotBeBuilt", "DiesWhileBuilt", "Good") as pool:
        (verdict,) = judge(pool, "CannotBeBuilt", "x")
        assert verdict.detail == "cannot be constructed: OSError: no word list"
        (verdict,) = judge(pool, "DiesWhileBuilt", "x")
        assert verdict.detail == "cannot be constructed: exit code 5"
        assert judge(pool, "Good", "x", answer="x")[0].passed


def test_workers_do_not_import_torch_nor_the_main_module():
    with make_pool("Modules") as pool:
        modules = set(judge(pool, "Modules", "x")[0].extracted.split())
    assert "rlvr_core" in modules
    assert not modules & {"torch", "transformers", "vllm", "numpy", "pytest"}


def test_no_process_is_left_after_close_nor_a_grandchild(tmp_path):
    others = set(psutil.Process().children(recursive=True))  # of other tests
    note = tmp_path / "pid"
    pool = make_pool("Forks", timeout=1.0)
    future = submit(pool, problem(), str(note), "Forks")
    assert verdict(future).status == "timeout"
    grandchild = int(note.read_text())
    assert wait_until(lambda: not psutil.pid_exists(grandchild))
    pids = pool.pids()
    pool.close()
    pool.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert set(psutil.Process().children(recursive=True)) <= others


def test_an_unknown_verifier_is_the_callers_fault():
    with make_pool("Good") as pool, pytest.raises(KeyError, match="Nope"):
        submit(pool, problem(), "x", "Nope")


PARENT = """
import signal, sys, threading, time
from rlvr_core.api import Completion, Problem
from rlvr_core.verify.pool import VerifierPool, VerifierSpec

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it ignored
specs = {"HangsInC": VerifierSpec("tests.support.verify.bad_verifiers:HangsInC", {})}
pool = VerifierPool(specs, workers=3, timeout=600, memory_mb=512)
problem = Problem("p", "?", "v", {}, "toy")
pool.submit_group(problem, [Completion.from_text("warm")], ["HangsInC"]).result()
pool.submit_group(problem, [Completion.from_text("hang")], ["HangsInC"])
time.sleep(0.5)
print(*pool.pids(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_die_with_the_parent_even_when_hung(how):
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    assert all(psutil.pid_exists(pid) for pid in pids)
    parent.send_signal(how)
    parent.wait(20)
    parent.stdout.close()
    assert wait_until(lambda: not any(_running(pid) for pid in pids))


def _running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_survive_the_interrupt_of_a_terminal():
    with make_pool("Takes", workers=1) as pool:
        judge(pool, "Takes", "0")
        future = submit(pool, problem(), "0.3", "Takes")
        time.sleep(0.1)
        os.kill(pool.pids()[0], signal.SIGINT)
        assert verdict(future).status == "ok"


def test_stats_count_time_and_percentiles():
    with make_pool("Takes", "Raises") as pool:
        judge(pool, "Takes", "0.3", *["0.01"] * 9)
        judge(pool, "Raises", "a", "b")
        stats = pool.stats()
        assert stats["Takes"].calls == 10
        assert 0.39 <= stats["Takes"].seconds < 3
        assert 0.01 <= stats["Takes"].p50 < 0.3 <= stats["Takes"].p99
        assert (stats["Raises"].calls, stats["Raises"].errors) == (2, 2)


def test_t24_many_threads_may_submit_more_than_there_are_workers():
    with make_pool("Good") as pool:
        found: dict[int, list[Verdict]] = {}

        def work(number):
            found[number] = judge(pool, "Good", *[str(n) for n in range(50)], answer=str(number))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for number in range(8):
            assert [v.passed for v in found[number]] == [n == number for n in range(50)]
