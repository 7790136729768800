"""A run read back from its folder by code: columns, rows, rollouts, checkpoints."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.view import RunView


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder.create(
        tmp_path, "demo", config_text="", resolved={"train": {"steps": 3, "lr": 0.5}}
    )
    manifest = Manifest.start(folder, name="demo", command=["rlvr", "run"], plugins={})
    with Recorder(folder) as recorder:
        recorder.metrics(0, 1, {"reward/mean": 0.25})
        recorder.metrics(1, 2, {"reward/mean": float("inf"), "mismatch/k3": 2e-6})
    manifest.finish("stopped", steps=2, reason="enough")
    return folder


def test_metrics_are_a_table_with_a_number_for_every_step(folder):
    metrics = RunView(folder.path).metrics
    assert metrics["step"] == [0.0, 1.0]
    assert metrics["version"] == [1.0, 2.0]
    assert metrics["reward/mean"] == [0.25, math.inf]  # JSON has no inf: it is put back
    first, second = metrics["mismatch/k3"]
    assert math.isnan(first)
    assert second == 2e-6
    assert set(metrics) == {"step", "version", "reward/mean", "mismatch/k3"}
    assert len(metrics) == 4
    assert metrics.rows[0] == {"step": 0, "version": 1, "reward/mean": 0.25}
    with pytest.raises(KeyError, match="reward/men"):
        metrics["reward/men"]


def test_what_a_run_was_and_how_it_ended(folder, tmp_path):
    for view in (
        RunView(folder.path),
        RunView.find("last", tmp_path),
        RunView.find("dem", tmp_path),
    ):
        assert (view.path, view.name) == (folder.path, "demo")
        assert (view.outcome, view.reason, view.error, view.steps) == ("stopped", "enough", None, 2)
        assert view.config == {"train": {"steps": 3, "lr": 0.5}}
        assert view.ledger is None
        assert view.evaluations == []
        assert list(view.rollouts()) == []
        assert view.notes == []
        assert view.summary()["planned_steps"] == 3
    assert repr(RunView(folder.path)) == f"<RunView {folder.path}: stopped, 2 steps>"


def test_a_view_keeps_what_it_has_read_and_a_new_one_reads_anew(folder):
    view = RunView(folder.path)
    assert view.steps == 2
    with folder.metrics.open("a") as file:
        file.write(json.dumps({"step": 2, "version": 3, "reward/mean": 1.0}) + "\n")
    assert view.metrics["step"] == [0.0, 1.0]
    assert RunView(folder.path).metrics["step"] == [0.0, 1.0, 2.0]


def test_the_best_checkpoint_is_the_pinned_one_or_else_the_newest(folder):
    view = RunView(folder.path)
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        view.best()
    store = CheckpointStore(folder.checkpoints, keep=3)

    def fill(place):
        (place / "weights").write_text("w")

    first = store.write(1, fill)
    second = store.write(2, fill)
    assert view.best() == second
    assert view.checkpoints == [second, first]
    third = store.write(3, fill, best=True)
    store.write(4, fill)
    assert view.best() == third
    pointer = folder.checkpoints / "best"
    pointer.unlink()
    pointer.write_text(f"{third.name}\n")  # as on a file system without links
    assert view.best() == third


def test_looking_at_a_run_loads_no_torch(folder):
    code = (
        "import sys; from rlvr_core.record.view import RunView\n"
        f"RunView({str(folder.path)!r}).summary()\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
