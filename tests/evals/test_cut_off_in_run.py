"""Evaluations inside a run whose answers are cut off are named where people look."""

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlvr_core.api import Completion, EvalReport, Group, Judged, Problem, SamplingParams
from rlvr_core.builtin.evals.in_run import NamedTask, evaluate


@pytest.fixture
def evaluated(lab, model_dir, caplog):
    """Runs with an eval task that gives an answer so many tokens."""

    def run(tokens):
        tasks = [{"use": "lab/letters", "with": {"max_tokens": tokens, "count": 8}}]
        with caplog.at_level(logging.WARNING):
            return lab.run(model_dir, eval={"tasks": tasks, "every": 1})

    return run


def test_a_share_of_answers_that_were_cut_off_is_said_once_and_shown(lab, evaluated, caplog):
    """One token is the cap of nearly every answer; three evaluations say it once."""
    folder = evaluated(1)
    lines = [json.loads(line) for line in (folder / "evals" / "index.jsonl").open()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    shares = []
    for line in lines:
        rows = [json.loads(row) for row in (folder / "evals" / line["file"]).open()]
        answers = [one for row in rows for one in row.get("completions", [row])]
        shares.append(sum(one["finish_reason"] == "length" for one in answers) / len(answers))
    assert min(shares) > 0.5

    said = [one.getMessage() for one in caplog.records if "cut off" in one.getMessage()]
    assert len(said) == 1
    assert f"evaluation lab/letters: {100 * shares[0]:.1f}% of the answers were" in said[0]
    assert "cut off at 1 tokens" in said[0]
    assert "raise max_tokens" in said[0]

    found = lab.json("show", folder)
    (finding,) = (one for one in found["findings"] if "cut off" in one["metric"])
    assert finding["metric"] == "lab/letters: cut off"
    assert finding["steps"] == [0, 1, 2]
    assert finding["values"] == pytest.approx(shares)
    (note,) = (one for one in found["notes"] if "cut off" in one)
    assert f"up to {max(shares):.1%} of the answers" in note
    assert "cut off" in lab.rlvr("show", folder).stdout


@pytest.mark.parametrize(("share", "shown"), [(0.0, 0), (0.02, 0), (0.021, 1)])
def test_a_share_that_rlvr_eval_accepts_is_no_finding(lab, evaluated, share, shown):
    """`max_truncated` of `rlvr eval` is 2 %."""
    folder = evaluated(1)
    index = folder / "evals" / "index.jsonl"
    lines = [json.loads(line) for line in index.open()]
    for line in lines:
        line["basis"] = {"cut_off": share}
    index.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = lab.json("show", folder)
    assert len([one for one in found["notes"] if "cut off" in one]) == shown
    assert len([one for one in found["findings"] if "cut off" in one["metric"]]) == shown


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
        return evaluate(NamedTask("t", Task()), generator, version=0, step=0).report.basis

    assert sampled("stop", "stop", "stop", "stop") == {"version": "1"}
    assert sampled("stop", "length", "stop", "stop") == {"version": "1", "cut_off": 0.25}
