"""Trackers of other tools: every step once, a resumption included."""

import sqlite3

import pytest

from rlvr_core.api import MachineError, TrackedRun
from rlvr_core.record.trackers import common
from rlvr_lab.trackers.mlflow import MLflow
from rlvr_lab.trackers.trackio import Trackio


def test_mlflow_has_every_step_once(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = f"file:{tmp_path}/store"
    run = TrackedRun(tmp_path, "run-1", {"train": {"steps": 5}})
    for begin, end in ((0, 3), (2, 5)):
        tracker = MLflow(MLflow.Config(uri=uri))
        tracker.start(run, begin)
        for step in range(begin, end):
            tracker.metrics(step, {"reward/toy/a#2": step / 2, "bad": float("inf")})
        tracker.close()
    client = MlflowClient(tracking_uri=uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "rlvr"]
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "reward/toy/a_2")
    assert [(m.step, m.value) for m in history] == [(step, step / 2) for step in range(5)]
    assert found.data.params == {"train.steps": "5"}
    assert found.data.tags["mlflow.runName"] == "run-1"
    assert found.info.status == "FINISHED"


def test_trackio_has_every_step_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = TrackedRun(tmp_path, "run-1", {"seed": 1})
    utils = pytest.importorskip("trackio.utils", reason="trackio is not installed")
    for begin, end in ((0, 3), (2, 5)):
        tracker = Trackio(Trackio.Config(project="lab"))
        tracker.start(run, begin)
        for step in range(begin, end):
            tracker.metrics(step, {"reward/mean": step / 2, "bad": float("nan")})
        tracker.close()
    # where trackio keeps its databases was settled when it was imported, maybe by another test
    with sqlite3.connect(utils.TRACKIO_DIR / "lab.db") as database:
        rows = list(database.execute("SELECT run_name, step FROM metrics ORDER BY step"))
    assert rows == [("run-1", step) for step in range(5)]


@pytest.mark.parametrize(("tracker", "extra"), [(MLflow, "mlflow"), (Trackio, "trackio")])
def test_a_missing_package_is_said_with_its_extra(monkeypatch, tracker, extra):
    monkeypatch.setattr(common, "find_spec", lambda name: None)
    with pytest.raises(MachineError) as caught:
        tracker(tracker.Config())
    assert f"pip install 'rlvr-lab[{extra}]'" in caught.value.complaints[0].remedy[0]
