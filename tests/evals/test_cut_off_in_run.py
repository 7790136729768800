"""Evaluations inside a run whose answers are cut off are named where people look."""

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlvr_core.api import Completion, EvalReport, Group, Judged, Problem, SamplingParams
from rlvr_core.eval.in_run import evaluate


@pytest.fixture
def evaluated(lab, model_dir, caplog):
    """Runs with an eval task that gives an answer so many tokens."""

    def run(tokens):
        tasks = [{"use": "toy/letters", "with": {"max_tokens": tokens, "count": 8}}]
        with caplog.at_level(logging.WARNING):
            return lab.run(model_dir, eval={"tasks": tasks, "every": 1})

    return run


def test_a_share_of_answers_that_were_cut_off_is_a_figure_and_no_warning(evaluated, caplog):
    """One token is the cap of nearly every answer, and the config sets it."""
    folder = evaluated(1)
    lines = [json.loads(line) for line in (folder / "evals" / "index.jsonl").open()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    for line in lines:
        rows = [json.loads(row) for row in (folder / "evals" / line["file"]).open()]
        answers = [one for row in rows for one in row.get("completions", [row])]
        share = sum(one["finish_reason"] == "length" for one in answers) / len(answers)
        assert line["basis"]["cut_off"] == pytest.approx(share)
        assert share > 0.5
    assert not [one for one in caplog.records if "cut off" in one.getMessage()]


def test_answers_that_ended_leave_no_trace():
    """Of four answers none, then one ended at the cap; what the task rests on is kept."""

    class Task:
        n, sampling = 2, SamplingParams(temperature=0.0, max_tokens=3)

        def problems(self):
            return [Problem("a", "q", "v", {}, "d"), Problem("b", "q", "v", {}, "d")]

        def score(self, groups):
            return EvalReport({}, len(groups), {"version": "1"})

    def sampled(*reasons):
        answers = [replace(Completion.from_text("x"), finish_reason=one) for one in reasons]
        members = [Judged(one, {}, 0.0, False) for one in answers]
        groups = [Group(Task().problems()[at], tuple(members[2 * at :][:2]), 0) for at in (0, 1)]
        generator = SimpleNamespace(
            generate=lambda draws, *_, **__: [SimpleNamespace(group=one) for one in groups]
        )
        return evaluate("t", Task(), generator, version=0, step=0).report.basis

    assert sampled("stop", "stop", "stop", "stop") == {"version": "1"}
    assert sampled("stop", "length", "stop", "stop") == {"version": "1", "cut_off": 0.25}
