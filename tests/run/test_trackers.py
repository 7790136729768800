"""Trackers: every step once, a resumption included; a broken one does not end a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rlvr_core.api import MachineError, NoConfig, PluginError, RunStarted, StepFinished
from rlvr_core.record.trackers import common
from rlvr_core.record.trackers.tensorboard import TensorBoard
from rlvr_core.record.trackers.tracking import Tracking
from rlvr_core.record.trackers.wandb import Wandb

SECRET = "sesame-open-4711"

PLAY = """
import sys
from pathlib import Path
from rlvr_core.api import TrackedRun
from rlvr_core.record.trackers.wandb import Wandb
folder, begin, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tracker = Wandb(Wandb.Config(mode="offline"))
tracker.start(TrackedRun(folder, folder.name, {"train": {"steps": 5}}), begin)
for step in range(begin, end):
    tracker.metrics(step, {"reward/mean": step / 2, "bad": float("nan")})
tracker.close()
"""


def logged(path):
    """The records of an offline file: a header of 7 bytes, then LevelDB's log in blocks."""
    data, record, at = path.read_bytes(), b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_wandb_offline_has_every_step_once_and_no_command_line(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto import wandb_internal_pb2 as records

    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MY_API_KEY", SECRET)
    run = tmp_path / "run-1"
    run.mkdir()
    for begin, end in ((0, 3), (2, 5)):  # killed after step 2, resumed from a checkpoint before it
        words = [sys.executable, "-c", PLAY, str(run), str(begin), str(end), SECRET]
        subprocess.run(words, check=True, capture_output=True)
    seen, ids = [], set()
    for path in sorted(run.rglob("*.wandb")):
        for data in logged(path):
            record = records.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
            for item in record.history.item:
                key = item.key or "/".join(item.nested_key)
                if key == "reward/mean":
                    seen.append((record.history.step.num, json.loads(item.value_json)))
                assert key != "bad"
    assert sorted(seen) == [(step, step / 2) for step in range(5)]
    assert ids == {"run-1"}
    files = [path for path in run.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (lambda: TensorBoard(NoConfig()), "tensorboard"),
        (lambda: Wandb(Wandb.Config()), "wandb"),
    ],
)
def test_a_missing_package_is_said_with_its_extra(monkeypatch, make, extra):
    monkeypatch.setattr(common, "find_spec", lambda name: None)
    with pytest.raises(MachineError) as caught:
        make()
    assert f"pip install 'rlvr-core[{extra}]'" in caught.value.complaints[0].remedy[0]


class Broken:
    def __init__(self, where):
        self.where, self.calls = where, []

    def start(self, run, step):
        self._do("start")

    def metrics(self, step, values):
        self._do(("metrics", step))

    def close(self):
        self._do("close")

    def _do(self, what):
        self.calls.append(what)
        if what == self.where:
            raise OSError("no route to host")


def test_one_that_fails_on_the_way_is_reported_once_and_the_others_go_on(tmp_path):
    bad, good, said = Broken(("metrics", 1)), Broken(None), []
    trackers = Tracking({"x/bad": bad, "x/good": good}, said.append)
    trackers.run_started(RunStarted(tmp_path, {}, 0))
    for step in range(3):
        trackers.step_finished(StepFinished(step, step, {"loss": 1.0}))
    trackers.close()
    steps = [("metrics", 0), ("metrics", 1), ("metrics", 2)]
    assert good.calls == ["start", *steps, "close"]
    assert bad.calls == ["start", *steps[:2]]
    (line,) = said
    assert "tracker 'x/bad' failed: OSError: no route to host" in line


def test_one_that_cannot_start_stops_the_run(tmp_path):
    trackers = Tracking({"x/bad": Broken("start")}, print)
    with pytest.raises(PluginError, match="tracker 'x/bad' could not start: OSError"):
        trackers.run_started(RunStarted(tmp_path, {}, 0))


def test_an_optimizer_and_a_tracker_of_others_are_used_in_a_run(lab, monkeypatch):
    examples = Path(__file__).parents[2] / "examples"
    path = [examples / "rlvr_lion", examples / "rlvr_csv_tracker", os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, path)))
    train = {"steps": 2, "lr": 1e-3, "warmup_steps": 0, "optimizer": "rlvr_lion:Lion"}
    table = {"use": "rlvr_csv_tracker:Table", "with": {"columns": ["lr"]}}
    run = lab.run(train=train, track=[table])
    assert (run / "metrics.csv").read_text().splitlines() == ["step,lr", "0,0.001", "1,0.001"]
    state = load_file(next((run / "checkpoints").glob("step*2")) / "trainer/optimizer.safetensors")
    assert {name.rpartition("|")[2] for name in state} == {"momentum"}
