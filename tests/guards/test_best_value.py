"""Guard ``reported``: the best value of a checkpoint is the best that evaluations had."""

import json
from types import SimpleNamespace

import pytest

from rlvr_core.api import EvalFinished, EvalReport, Metric, RunError
from rlvr_core.builtin.invariants.best import falls_by
from rlvr_core.builtin.invariants.reported import Reported
from rlvr_core.config.model import RunConfig

CONFIG = {"model": {"path": "m"}, "data": {"sources": ["a"]}, "train": {"steps": 9}}
KEPT = {"checkpoint": {"keep_best": "mine/task:accuracy"}}


def guard(changes, reports=()):
    task = type("Task", (), {"reports": reports})()
    evaluations = SimpleNamespace(tasks=[SimpleNamespace(name="mine/task", task=task)])
    return Reported(RunConfig.model_validate(CONFIG | changes), evaluations=evaluations)


def evaluate(made, *values, metric="accuracy", every=2, task="mine/task"):
    """Evaluations before the first step, after two, after four."""
    for number, value in enumerate(values):
        report = EvalReport({} if value is None else {metric: value}, 5)
        made.evaluated(EvalFinished(every * number, task, report))


def saved(made, folder, **told):
    """What the guard says of a checkpoint; empty if nothing."""
    made.state_dict()
    (folder / "trainer").mkdir(exist_ok=True)
    (folder / "trainer" / "state.json").write_text(json.dumps(told))
    try:
        made.checkpoint_written(folder)
    except RunError as error:
        return str(error)
    return ""


def best(value, step):
    return {"step": step, "value": value, "metric": "mine/task:accuracy"}


def test_the_best_after_the_first_step_is_kept(tmp_path):
    """The model of the start is no checkpoint; of equal values the earlier one stays."""
    made = guard(KEPT)
    assert saved(made, tmp_path, best=None) == ""
    evaluate(made, 0.9, 0.3, 0.5, None, float("nan"), 0.5, 0.4)
    assert saved(made, tmp_path, best=best(0.5, 4)) == ""


@pytest.mark.parametrize("told", [best(0.3, 2), best(0.9, 0), best(0.5, 10), None])
def test_another_one(tmp_path, told):
    made = guard(KEPT)
    evaluate(made, 0.9, 0.3, 0.5, None, None, 0.5)
    found = saved(made, tmp_path, best=told)
    assert "guard reported: in the checkpoint" in found
    assert "more is better: it was 0.5 after 4 steps" in found


def test_what_falls(tmp_path):
    down = (Metric("cost", "What it costs.", "coins", better="down"),)
    made = guard({"checkpoint": {"keep_best": "mine/task:cost"}}, down)
    evaluate(made, 1.0, 7.0, 5.0, 6.0, metric="cost")
    evaluate(made, 1.0, 1.0, metric="cost", task="other/task")
    assert saved(made, tmp_path, best=best(5.0, 4)) == ""
    assert "7 after 2 steps, and less is better: it was 5" in saved(
        made, tmp_path, best=best(7.0, 2)
    )


def test_early_stopping_counts_gains_above_the_least(tmp_path):
    """Of every second step, the first evaluation included: 0.4, then 0.55, not 0.6."""
    stop = {"metric": "mine/task:accuracy", "min_delta": 0.1}
    made = guard({"eval": {"tasks": ["mine/task"], "every": 2, "early_stop": stop}})
    evaluate(made, 0.4, 0.45, 0.55, 0.6)
    made.evaluated(EvalFinished(7, "mine/task", EvalReport({"accuracy": 1.0}, 5)))
    assert saved(made, tmp_path, early_stop={"best": 0.55, "best_step": 4}) == ""
    found = saved(made, tmp_path, early_stop={"best": 0.6, "best_step": 6})
    assert "it was 0.55 after 4 steps" in found


def test_it_goes_on_after_a_resumption(tmp_path):
    made = guard(KEPT)
    evaluate(made, 0.9, 0.8)
    again = guard(KEPT)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    again.evaluated(EvalFinished(4, "mine/task", EvalReport({"accuracy": 0.6}, 5)))
    assert saved(again, tmp_path, best=best(0.8, 2)) == ""
    assert "it was 0.8" in saved(again, tmp_path, best=best(0.6, 4))
    # by another metric, or in a checkpoint of before, nothing is known of what was
    for state in (made.state_dict(), {"steps": 1, "ledger": None}):
        other = guard({"checkpoint": {"keep_best": "mine/task:score"}})
        other.load_state_dict(state)
        assert saved(other, tmp_path, best=best(0.1, 2)) == ""


def test_directions():
    family = (Metric("cost/<part>", "Of a part.", "coins", better="down"),)
    assert falls_by("cost/a", type("Task", (), {"reports": family}), None) is None
    assert falls_by("truncated", None, None) is True
    assert falls_by("pass@4", None, None) is False
    assert falls_by("own", None, "minimize") is True
    assert falls_by("own", None, None) is False
