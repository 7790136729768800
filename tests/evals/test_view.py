"""An evaluation's folder as ``rlvr_core.evaluate`` returns it."""

import json

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.eval.view import EvaluationView


def task_folder(out, name="math_sums"):
    (out / name).mkdir(parents=True)
    (out / name / "spec.json").write_text("{}")


def summary(**metrics):
    return {
        "n_problems": 4,
        "model": {"path": "models/small"},
        "engine": {"use": "transformers"},
        "versions": {"python": "3"},
        "metrics": {name: {"value": value} for name, value in metrics.items()},
    }


def test_an_evaluation_is_read_back_from_its_folder(tmp_path):
    task_folder(tmp_path)
    tasks = {"math/sums": summary(accuracy=0.25, length=7.0), "math/more": summary(accuracy=None)}
    (tmp_path / "summary.json").write_text(json.dumps({"folder": "there", "tasks": tasks}))
    view = EvaluationView(tmp_path)
    assert (view.path, view.tasks) == (tmp_path, tasks)
    assert repr(view) == f"<EvaluationView {tmp_path}: 2 tasks>"
    # a table of numbers, with a row for each task
    assert set(view.metrics) == {"accuracy", "length"}
    assert view.metrics["accuracy"][0] == 0.25
    assert view.metrics["accuracy"][1] != view.metrics["accuracy"][1]  # NaN
    assert [row["task"] for row in view.metrics.rows] == ["math/sums", "math/more"]
    assert view.value("math/sums", "length") == 7.0
    assert view.value("math/more") is None


@pytest.mark.parametrize("text", [None, "{torn", "[]", '{"tasks": {}}'])
def test_an_evaluation_that_has_not_finished_has_no_tasks(tmp_path, text):
    task_folder(tmp_path)
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    view = EvaluationView(tmp_path)
    assert view.tasks == {}
    assert len(view.metrics) == 0
    assert list(view.rollouts()) == []


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no results of an evaluation"):
        EvaluationView(tmp_path)
