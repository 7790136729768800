"""A verifier as the metric of a task, in the harness itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr_core.api import DataError
from rlvr_env.bridges.lm_eval import lm_eval_metric

TASK = Path(__file__).with_name("task.yaml.part").read_text()
METRIC = """
from rlvr_env.bridges.lm_eval import lm_eval_metric

process_results = lm_eval_metric("core/exact", name="exact", columns={"answer": "sum"})
"""


def test_the_harness_averages_what_the_verifier_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Adds(LM):
        """Adds single digits, and gives up on larger numbers."""

        def generate_until(self, requests, disable_tqdm=False):
            terms = [request.args[0].removesuffix("=").split("+") for request in requests]
            return [
                str(sum(map(int, two))) if all(len(n) == 1 for n in two) else "many"
                for two in terms
            ]

        def loglikelihood(self, requests, disable_tqdm=False):
            raise AssertionError("the task generates")

        loglikelihood_rolling = loglikelihood

    rows = [("1+2=", "3"), ("4+4=", "8"), ("20+3=", "23"), ("9+1=", "10")]
    lines = [json.dumps({"question": q, "sum": s}) for q, s in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    (tmp_path / "sums.yaml").write_text(TASK.replace("FOLDER", str(tmp_path)))
    (tmp_path / "sums_metric.py").write_text(METRIC)
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = simple_evaluate(Adds(), tasks=["sums"], task_manager=manager, bootstrap_iters=10)
    assert found["results"]["sums"]["exact,none"] == 0.75
    assert found["results"]["sums"]["exact_unscored,none"] == 0.0
    assert [one["exact"] for one in found["samples"]["sums"]] == [1.0, 1.0, 0.0, 1.0]


def test_what_has_no_score_is_counted_and_not_averaged(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def mine(text):\n    if text == 'bad': raise ValueError\n    return len(text) / 4\n"
    )
    judge = lm_eval_metric(f"{tmp_path / 'mine.py'}:mine", name="size")
    assert judge({}, ["ab"]) == {"size": 0.5, "size_unscored": 0.0}
    assert judge({}, ["bad"]) == {"size_unscored": 1.0}
    assert judge({}, [["abcd", "bad", "ab"]]) == {"size": 0.75, "size_unscored": 1 / 3}


def test_a_document_without_the_field_is_an_error_that_names_it():
    with pytest.raises(DataError, match=r"answer(?s:.*)it has: question"):
        lm_eval_metric("core/exact")({"question": "1+1="}, ["2"])
