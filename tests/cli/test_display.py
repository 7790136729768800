import io
import json
import math

import pytest
from rich.console import Console

from rlvr_core.api import EvalFinished, EvalReport, StepFinished
from rlvr_core.builtin.displays.display import (
    JsonLines,
    Live,
    Plain,
    make_display,
    step_facts,
)
from rlvr_core.cli import run as of_kind
from rlvr_core.cli.run import Silent
from rlvr_core.host.host import load_host

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
        ("jsonl", Terminal, JsonLines),
    ],
)
def test_kinds(kind, stream, expected, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_display(kind, 5, stream())) is expected


def test_a_display_by_name_is_that_of_the_room():
    host = load_host({})
    assert type(of_kind.make_display("none", 5, host)) is Silent
    assert type(of_kind.make_display("plain", 5, host)) is Plain


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_display(None, 5, Terminal())) is Plain


def test_streams_by_default(capsys):
    drive(make_display("plain", 5))
    drive(make_display("jsonl", 5))
    drive(Silent())
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert err.startswith("run ")


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
