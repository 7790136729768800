"""Guard ``reported``: an evaluation's figures are those of its recorded completions."""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlvr_core.api import (
    Completion,
    EvalFinished,
    EvalReport,
    Group,
    Judged,
    Problem,
    RunError,
    RunStarted,
)
from rlvr_core.builtin.invariants.reported import Reported
from rlvr_core.config.model import RunConfig
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder

CONFIG = RunConfig.model_validate(
    {"model": {"path": "m"}, "data": {"sources": ["a"]}, "train": {"steps": 1}}
)


def group(name, *passed):
    completion = Completion((1,), (2,), (-1.0,), (True,), "x", "stop", 0)
    members = tuple(Judged(completion, {}, float(bool(one)), one) for one in passed)
    return SimpleNamespace(
        prompt_text="?", group=Group(Problem(name, "?", "v", {}, "d"), members, 0)
    )


SAMPLED = [group("p", True, False), group("q", True, None), group("r", False, False)]
"""Of five completions with an outcome two passed."""


@pytest.fixture
def evaluated(tmp_path):
    """Records an evaluation and returns the guard's error, or nothing."""
    recorder = Recorder(RunFolder(tmp_path))
    guard = Reported(CONFIG)
    guard.run_started(RunStarted(tmp_path, CONFIG.model_dump(), 0, resumed=False))

    def call(metrics, n=3, task="core/dataset", told=None, change=None):
        recorder.evaluation(4, 4, task, 0.0, EvalReport(metrics, n), SAMPLED)
        if change is not None:
            (file,) = (tmp_path / "evals").glob("*-step000004.jsonl")
            change(file)
        recorder.sync()
        try:
            guard.evaluated(EvalFinished(4, task, EvalReport(told or metrics, n)))
        except RunError as error:
            return str(error)
        return ""

    yield call
    recorder.close()


def test_what_is_so_is_quiet(evaluated):
    assert evaluated({"accuracy": 0.4}) == ""
    assert evaluated({"accuracy": 0.4, "called": float("nan")}) == ""


def test_another_accuracy(evaluated):
    words = "core/dataset after 4 steps says an accuracy of 0.5, and its 6 completions make 0.4"
    assert words in evaluated({"accuracy": 0.5})
    assert "says an accuracy of None" in evaluated({})


def test_another_number_of_problems(evaluated):
    assert "says 4 problems, and its file has completions of 3" in evaluated({"accuracy": 0.4}, 4)


def test_a_line_of_another_figure(evaluated):
    found = evaluated({"accuracy": 0.4}, told={"accuracy": 0.6})
    assert "is recorded with accuracy 0.4, and it was 0.6" in found


def test_completions_of_another_outcome(evaluated):
    def turned(file):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        rows[1]["passed"] = True
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert "its 6 completions make 0.6" in evaluated({"accuracy": 0.4}, change=turned)


def test_a_plugins_task_may_have_an_accuracy_of_its_own(evaluated):
    assert evaluated({"accuracy": 0.5}, task="mine/task") == ""
    assert "is recorded with" in evaluated(
        {"accuracy": 0.5}, task="mine/task", told={"accuracy": 0.6}
    )


def test_it_comes_to_the_guard_through_the_runs_events(evaluated):
    from rlvr_core.builtin.invariants.invariants import Invariants
    from rlvr_core.run.events import Guards

    seen = []
    check = SimpleNamespace(id="x", evaluated=seen.append)
    trainer = SimpleNamespace(ranks=SimpleNamespace(main=True))
    event = EvalFinished(4, "core/dataset", EvalReport({}, 0))
    Guards({"x": Invariants(trainer, [check], None)}).eval_finished(event)
    elsewhere = SimpleNamespace(ranks=SimpleNamespace(main=False))
    # evaluations are checked in each process, and what is recorded of them in that which writes
    Guards({"x": Invariants(elsewhere, [check], None)}).eval_finished(replace(event, step=5))
    assert seen == [event, replace(event, step=5)]


@pytest.mark.parametrize("main", [True, False])
def test_what_is_recorded_is_read_by_the_process_that_writes_it(tmp_path, main):
    guard = Reported(CONFIG, main=main)
    guard._run_dir = tmp_path
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "index.jsonl").write_text("")
    event = EvalFinished(4, "core/dataset", EvalReport({}, 0))
    with pytest.raises(RunError, match=r"is not in evals") if main else nullcontext():
        guard.evaluated(event)
