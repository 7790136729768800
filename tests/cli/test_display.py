import io
import json
import math
import threading
from pathlib import Path

import pytest
from rich.console import Console

from rlvr_core.api import (
    EvalFinished,
    EvalReport,
    RunStarted,
    StepFinished,
)
from rlvr_core.api.progress import counting, progress, work_going_on
from rlvr_core.terminal.display import JsonDisplay, Plain, make_display
from rlvr_core.terminal.facts import step_facts
from rlvr_core.terminal.live import Live
from rlvr_core.terminal.pace import Pace, Waits, span

METRICS = {
    "reward/mean": 0.4213,
    "reward/std": 0.49,
    "pass_rate": 0.5,
    "kl/mean": 0.00123,
    "length/mean": 11.26,
    "groups/drawn": 8,
    "groups/all_passed": 1,
    "groups/all_failed": 2,
    "groups/equal": 0,
    "groups/zero_variance": 4,
    "verify/error_rate": 0.0,
    "step_skipped": 0.0,
}
TIMING = {"train": 0.5, "tokens_per_second": 1843.4}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def drive(display):
    display.plan(["run [bold]demo[/bold]", "8 prompts a step"])
    display.phase("loading the model")
    display.eval_finished(EvalFinished(0, "math/sums", EvalReport({"accuracy": 0.25}, 64)))
    display.step_finished(StepFinished(0, 0, METRICS, TIMING))
    display.phase("rollout")
    display.message("hostile \x1b[2J")
    odd = {"pass_rate": 1.0, "verify/error_rate": 0.1, "step_skipped": 1.0}
    display.step_finished(StepFinished(1, 1, odd))
    display.finish(["done"])
    display.finish(["done"])


@pytest.mark.parametrize(
    ("kind", "stream", "expected"),
    [
        (None, io.StringIO, Plain),
        (None, Terminal, Live),
        ("plain", Terminal, Plain),
        ("live", io.StringIO, Live),
        ("jsonl", Terminal, JsonDisplay),
    ],
)
def test_kinds(kind, stream, expected, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_display(kind, 5, stream())) is expected


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_display(None, 5, Terminal())) is Plain


def test_t97_plain_prints_one_line_a_step():
    stream = io.StringIO()
    drive(make_display("plain", 120, stream))
    assert stream.getvalue().splitlines() == [
        "run [bold]demo[/bold]",
        "8 prompts a step",
        "loading the model ...",
        "evaluation after 0 steps: math/sums  accuracy 0.25  (64 problems)",
        "step   1/120  reward 0.421 ±0.49  pass 50.0%  KL 0.0012  length 11.3  zero-variance 4/8"
        "  1843 tok/s",
        "hostile \\x1b[2J",
        "step   2/120  pass 100.0%  verifier errors 10.0%  skipped: gradient not finite",
        "done",
    ]


def test_a_step_that_made_fewer_updates_than_asked_says_so():
    made = {"updates/applied": 5.0, "updates/skipped": 1.0}
    assert step_facts(made | {"updates/missing": 2.0}, {}) == [
        "6 of 8 updates: too few groups",
        "1 updates skipped: gradient not finite",
    ]
    assert (
        step_facts({"updates/applied": 8.0, "updates/skipped": 0.0, "updates/missing": 0.0}, {})
        == []
    )


@pytest.mark.parametrize(
    ("mean", "std", "shown"),
    [
        (0.4213, 0.49, "reward 0.421 ±0.49"),
        (-999.5, 12.0, "reward -999.500 ±12.00"),
        (1e6, 5e5, "reward 1,000,000 ±500,000"),
        (-1234.56, 0.0, "reward -1,235 ±0.00"),
        (3.2e30, 1.5e12, "reward 3.200e+30 ±1.50e+12"),
        (math.inf, math.nan, "reward inf ±nan"),
    ],
)
def test_rewards_of_any_size_can_be_read(mean, std, shown):
    assert step_facts({"reward/mean": mean, "reward/std": std}, {}) == [shown]


def test_jsonl_is_one_object_an_event():
    stream = io.StringIO()
    display = make_display("jsonl", 5, stream)
    drive(display)
    display.step_finished(StepFinished(2, 2, {"loss": math.nan}))
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [e["event"] for e in events] == [
        "start", "phase", "evaluation", "step", "phase", "message", "step", "finish", "step",
    ]  # fmt: skip
    assert events[2] == {
        "event": "evaluation", "step": 0, "task": "math/sums", "metrics": {"accuracy": 0.25},
        "n": 64,
    }  # fmt: skip
    assert events[3]["metrics"]["reward/mean"] == 0.4213
    assert events[8]["metrics"]["loss"] is None


def test_live_shows_the_bar_and_the_numbers(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "110")
    stream = Terminal()
    drive(make_display("live", 2, stream))
    shown = stream.getvalue()
    for told in (
        "run [bold]demo[/bold]",
        "2/2",
        "pass 100.0%",
        "accuracy 0.25",
        "hostile \\x1b[2J",
    ):
        assert told in shown
    assert shown.rstrip().endswith("done")
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor comes back


def test_no_color(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    drive(make_display("live", 2, stream))
    assert Console(file=stream).no_color
    assert "\x1b[3" not in stream.getvalue()  # no foreground colours


@pytest.mark.parametrize("kind", ["plain", "jsonl", "live"])
def test_a_reader_that_has_gone_does_not_stop_a_run(kind):
    drive(make_display(kind, 2, Gone()))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_the_time_left_is_counted_from_the_newest_steps_of_this_process():
    clock = Clock()
    pace = Pace(clock, 100)
    clock.now += 7
    pace.reach(40)  # resumed: the steps before were another process's
    assert (pace.elapsed, pace.left) == (7, None)
    for step in range(41, 44):
        clock.now += 60
        pace.reach(step)
    assert pace.left == 57 * 60
    clock.now += 20
    assert (pace.elapsed, pace.left) == (207, 57 * 60 - 20)
    clock.now += 1e6
    assert pace.left == 0
    pace = Pace(clock, 30)
    pace.reach(0)
    for step in range(1, 21):  # ten slow ones and ten fast ones: those count
        clock.now += 50 if step <= 10 else 2
        pace.reach(step)
    assert pace.left == 10 * 2
    assert [span(one) for one in (0.4, 59.4, 61, 3661)] == ["0 s", "59 s", "1:01 min", "1:01:01 h"]


def test_a_long_wait_says_how_long_and_how_long_the_last_of_its_kind_took():
    clock = Clock()
    waits = Waits(clock)
    assert waits.text == ""
    waits.begin("generation of 256 completions")
    assert waits.text == "generation of 256 completions ..."
    clock.now += 8
    assert waits.text == "generation of 256 completions ... 8 s"
    waits.begin("train")
    clock.now += 1
    assert waits.text == "train ..."
    waits.begin("generation of 24 completions")
    clock.now += 3
    waits.begin("generation of 24 completions")  # said again: it goes on
    assert waits.text == "generation of 24 completions ... 3 s of about 8 s"


def test_a_wait_says_how_much_of_its_work_is_done():
    clock = Clock()
    waits = Waits(clock)
    waits.begin("evaluation math/sums")
    with progress("problems", lambda: 3, 20), progress("completions", lambda: 1234, 2000):
        clock.now += 8
        assert waits.text == ("evaluation math/sums ... 1,234/2,000 completions, 3/20 problems 8 s")
    rows = counting("rows", "abc")
    assert next(rows) == "a"
    assert waits.text == "evaluation math/sums ... 0 rows 8 s"
    assert next(rows) == "b"
    assert waits.text == "evaluation math/sums ... 1 rows 8 s"
    rows.close()
    assert waits.text == "evaluation math/sums ... 8 s"
    with pytest.raises(ZeroDivisionError), progress("groups", lambda: 1):
        raise ZeroDivisionError
    assert work_going_on() == ()


def test_a_log_hears_again_of_what_takes_long():
    told = threading.Event()

    class Log(io.StringIO):
        def write(self, text):
            if "still" in text:
                told.set()
            return super().write(text)

    log = Log()
    display = Plain(log, 3, long=0.05)
    display.plan(["run demo"])
    with progress("completions", lambda: 12, 64):
        display.phase("rollout")
        assert told.wait(30)
    display.finish(["done"])
    lines = log.getvalue().splitlines()
    assert lines[:3] == ["run demo", "rollout ...", "still rollout ... 12/64 completions"]
    assert lines[-1] == "done"
    assert not [one for one in threading.enumerate() if one.name == "rlvr-ticks"]


def test_live_shows_what_is_awaited_before_the_plan_and_tells_elapsed_from_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    clock, stream = Clock(), Terminal()
    display = Live(stream, 0, clock)

    def drawn():
        console = Console(file=io.StringIO(), width=80)
        console.print(display.drawn())
        return [line.rstrip() for line in console.file.getvalue().splitlines()]

    display.phase("reading the configuration")
    clock.now += 5
    assert drawn() == ["reading the configuration ... 5 s"]
    display.plan(["run demo"])
    display.run_started(RunStarted(Path("runs/demo"), {"train": {"steps": 12}}, 0))
    assert "0/12 elapsed 5 s, left unknown yet" in drawn()[0]
    clock.now += 30
    display.step_finished(StepFinished(0, 0, METRICS, TIMING))
    clock.now += 10
    assert "1/12 elapsed 45 s, left about 5:20 min" in drawn()[0]
    assert "reward 0.421" in drawn()[1]
    display.finish([])
    # the lines before the plan are gone from the screen, not left above it
    assert stream.getvalue().index("\x1b[2K") < stream.getvalue().index("run demo")


def test_what_comes_before_the_plan_is_no_line_of_a_log():
    plain, events = io.StringIO(), io.StringIO()
    for kind, stream in (("plain", plain), ("jsonl", events)):
        display = make_display(kind, 0, stream)
        display.phase("reading the configuration")
        display.plan(["run demo"])
        display.run_started(RunStarted(Path("runs/demo"), {"train": {"steps": 12}}, 0))
        display.step_finished(StepFinished(0, 0, {"pass_rate": 1.0}))
    assert plain.getvalue().splitlines() == ["run demo", "step  1/12  pass 100.0%"]
    assert json.loads(events.getvalue().splitlines()[0])["event"] == "start"


def test_a_command_shows_on_a_terminal_what_it_waits_for_and_takes_it_away(monkeypatch):
    from rlvr_core.terminal.live import waiting as service_waiting

    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with service_waiting("the model") as waiting:
        waiting("task: 3 of 8 problems answered")
    shown = stream.getvalue()
    assert "the model ..." in shown
    assert shown.rstrip("\r\n").endswith("\x1b[2K"), "the line is gone"
    for kind, term in ((io.StringIO, "xterm"), (Terminal, "dumb")):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setattr("sys.stderr", kind())
        with service_waiting("the model") as waiting:
            assert waiting is None
