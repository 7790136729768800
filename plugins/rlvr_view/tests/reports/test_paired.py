"""Paired tests of the evaluations of runs."""

import pytest

from plugins.rlvr_view.tests.reports.made_runs import evaluate, make_run
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.view import RunView
from rlvr_view.report.paired import evaluation_points, paired_evaluations


def test_the_last_evaluation_of_a_run_against_its_first(runs):
    (found,) = paired_evaluations([RunView(make_run(runs))])
    assert (found["before"]["step"], found["after"]["step"]) == (0, 8)
    assert (found["n"], found["gained"], found["lost"]) == (10, 6, 0)
    assert found["difference"]["value"] == pytest.approx(0.6)
    assert found["p"] == found["p_holm"] == pytest.approx(2 / 2**6)  # McNemar: 6 of 6


def test_runs_are_tested_against_the_first_one(runs):
    first = make_run(runs, "one", last=9)
    others = [make_run(runs, name, last=last) for name, last in (("two", 3), ("three", 8))]
    found = paired_evaluations([RunView(one) for one in (first, *others)])
    assert [(one["before"]["run"], one["after"]["run"]) for one in found] == [(0, 1), (0, 2)]
    assert [one["p"] for one in found] == [pytest.approx(2 / 2**6), 1.0]
    assert [one["p_holm"] for one in found] == [pytest.approx(2 * 2 / 2**6), 1.0]
    assert found[1]["difference"]["value"] == pytest.approx(-0.1)


def test_problems_that_were_asked_otherwise_are_not_compared(runs):
    one, two = (make_run(runs, name) for name in ("one", "two"))
    with Recorder(two) as recorder:
        evaluate(recorder, 9, "sums/heldout", 5, prompt="Add 2 and 2.")
    (found,) = paired_evaluations([RunView(one), RunView(two)])
    assert found["refused"] == "the problems were asked in other words"
    assert found["p_holm"] is None


def test_only_problems_of_both_are_compared(runs):
    one, two = (make_run(runs, name) for name in ("one", "two"))
    with Recorder(two) as recorder:
        evaluate(recorder, 9, "sums/heldout", 5, of=5)
    (found,) = paired_evaluations([RunView(one), RunView(two)])
    assert (found["n"], found["left_out"]) == (5, 5)
    assert (found["gained"], found["lost"], found["p"]) == (0, 0, 1.0)


def test_an_evaluation_whose_file_is_gone_is_shown_and_not_tested(runs):
    folder = make_run(runs)
    for path in folder.evals.glob("*step000008*"):
        path.unlink()
    view = RunView(folder)
    assert [
        (evaluation_point["metrics"]["accuracy"], evaluation_point["low"] is None)
        for evaluation_point in evaluation_points(view)
    ] == [
        (0.3, False),
        (0.9, True),
    ]
    assert "judged as often in both" in paired_evaluations([view])[0]["refused"]
