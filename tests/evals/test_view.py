"""An evaluation's folder as ``rlvr_core.evaluate`` returns it."""

import json

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.eval.view import EvaluationView
from rlvr_core.record.view import RunView


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


def test_an_evaluation_is_read_back_from_its_folder_as_a_run_is(tmp_path):
    task_folder(tmp_path)
    tasks = {"math/sums": summary(accuracy=0.25, length=7.0), "math/more": summary(accuracy=None)}
    (tmp_path / "summary.json").write_text(json.dumps({"folder": "there", "tasks": tasks}))
    found = EvaluationView(tmp_path)
    assert isinstance(found, RunView)
    assert (found.path, found.name, found.outcome) == (tmp_path, tmp_path.name, "finished")
    assert (found.error, found.reason, found.ledger, found.steps) == (None, None, None, 0)
    assert (found.checkpoints, found.notes, found.config) == ([], [], {})
    assert repr(found) == f"<EvaluationView {tmp_path}: finished, 2 tasks>"
    # a table of numbers, with a row for each task
    assert set(found.metrics) == {"accuracy", "length"}
    assert found.metrics["accuracy"][0] == 0.25
    assert found.metrics["accuracy"][1] != found.metrics["accuracy"][1]  # NaN
    assert [row["task"] for row in found.metrics.rows] == ["math/sums", "math/more"]
    assert found.evaluations[0] == {
        "task": "math/sums",
        "n": 4,
        "metrics": {"accuracy": 0.25, "length": 7.0},
    }
    assert found.value("math/sums", "length") == 7.0
    assert found.value("math/more") is None
    assert found.summary() == {"folder": str(tmp_path), "tasks": tasks}
    assert found.manifest["engine"] == {"use": "transformers"}
    with pytest.raises(ConfigError, match="the model it evaluated: models/small"):
        found.best()


def test_an_evaluation_that_has_not_finished_says_so(tmp_path):
    task_folder(tmp_path)
    for text in (None, "{torn", "[]", '{"tasks": {}}'):
        if text is not None:
            (tmp_path / "summary.json").write_text(text)
        found = EvaluationView(tmp_path)
        assert found.outcome == "unknown"
        assert "the same command goes on" in found.notes[0]
        assert len(found.metrics) == 0
        assert list(found.rollouts()) == []
        with pytest.raises(ConfigError, match="trains nothing"):
            found.best()


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no results of an evaluation"):
        EvaluationView(tmp_path)
