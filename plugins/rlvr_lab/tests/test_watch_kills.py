"""Watchers that are killed, that compete, and whose checkpoints the run removes: real processes."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr_core.api import RunError
from rlvr_core.eval.model_ref import find_model, path_in_run
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.record.manifest import _process
from rlvr_core.record.rundir import RunFolder
from rlvr_lab.held import run_of
from rlvr_lab.watch import Watcher

ACCURACY = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 4, "method": "wilson"}
TASK = {"metrics": {"accuracy": ACCURACY}, "task_metrics": {}, "spoilt": False}
SUMMARY = json.dumps({"tasks": {"toy/letters": TASK}})

EVALUATE = """
import pathlib, sys, time
checkpoint, out, folder = map(pathlib.Path, sys.argv[1:4])
with (folder / "started").open("a") as file:
    file.write(f"{out.name} {__import__('os').getpid()}\\n")
while (folder / "wait").exists():
    time.sleep(0.01)
text = (checkpoint / "weights").read_text()
out.mkdir(exist_ok=True)
(out / "weights").write_text(text)
(out / "summary.json").write_text(sys.argv[4])
"""
"""An evaluation that waits as long as there is a file, then reads the checkpoint."""

WATCH = """
import sys
from pathlib import Path
from rlvr_lab.watch import Watcher
from rlvr_core.record.rundir import RunFolder
script, run, out, folder, summary = sys.argv[1:]
from rlvr_core.record.files import lock_folder
Path(out).mkdir(parents=True, exist_ok=True)
lock = lock_folder(Path(out), "wait")
command = lambda job: [
    sys.executable, script, str(job.checkpoint), str(job.out), folder, summary
]
say = lambda text: print(text, flush=True)
Watcher([RunFolder(Path(run))], Path(out), command, [None], say).watch(0.02)
"""


class Site:
    """A run whose checkpoints hold nothing, and watchers of it in processes of their own."""

    def __init__(self, folder, keep=1):
        self.folder = folder
        self.run = folder / "runs" / "a-20260101-000000"
        self.out = folder / "out"
        self.store = CheckpointStore(self.run / "checkpoints", keep)
        self.script = folder / "evaluate.py"
        (self.run / "traces").mkdir(parents=True)
        self.script.write_text(EVALUATE)
        self.outcome("running")

    def outcome(self, outcome):
        record = {"outcome": outcome, "process": _process()}
        (self.run / "run.json").write_text(json.dumps(record))

    def save(self, step):
        """Write a checkpoint, as a run does it, and remove old ones."""
        self.store.write(step, lambda path: (path / "weights").write_text(f"weights {step}"))

    @contextlib.contextmanager
    def waiting(self):
        """Hold evaluations back within the block."""
        (self.folder / "wait").touch()
        yield
        (self.folder / "wait").unlink()

    def watcher(self, out=None):
        """A watcher in a process of its own, which tells what it does on standard output."""
        words = [self.script, self.run, out or self.out, self.folder, SUMMARY]
        return subprocess.Popen(
            [sys.executable, "-c", WATCH, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def started(self):
        """Step and process of each evaluation that was begun."""
        path = self.folder / "started"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(name.removeprefix("step")), int(pid)) for name, pid in map(str.split, lines)]

    def rows(self, out=None):
        rows = json.loads(((out or self.out) / "table.json").read_text())
        return [(row["step"], row["metric"]) for row in rows]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def until(true, seconds=60):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(process, code=0):
    """What a watcher said until its end."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == code, said
    return said


def test_t79_an_evaluation_ends_with_its_killed_watcher_and_the_next_one_does_it_again(site):
    site.save(1)
    with site.waiting():
        first = site.watcher()
        until(site.started)
        first.send_signal(signal.SIGKILL)
        first.wait()
        ((_, pid),) = site.started()
        until(lambda: not alive(pid))
        site.save(2)  # removes 1, which the killed one had seen
        site.outcome("finished")
        second = site.watcher()
        until(lambda: len(site.started()) == 2)
    said = ended(second)  # with one attempt: what was killed is no failed attempt
    assert "failed" not in said
    assert site.rows() == [(1, "accuracy"), (2, "accuracy")]


def test_two_watchers_at_once_see_what_rotation_removes_meanwhile(site, tmp_path):
    site.save(1)
    with site.waiting():
        one, other = site.watcher(), site.watcher(tmp_path / "other")
        until(lambda: len(site.started()) == 2)
        refused = ended(site.watcher(), code=1)
        assert "another process is writing in this folder" in refused
        site.save(2)
        until(lambda: len(list(site.run.glob(".held-*/step000002"))) == 2)
        site.save(3)
        until(lambda: len(list(site.run.glob(".held-*/step000003"))) == 2)
        site.outcome("finished")
    for process, out in ((one, site.out), (other, tmp_path / "other")):
        ended(process)
        assert site.rows(out) == [(1, "accuracy"), (2, "accuracy"), (3, "accuracy")]
        folder = out / site.run.name
        texts = [(folder / f"step{step:06d}" / "weights").read_text() for step in (1, 2, 3)]
        assert texts == ["weights 1", "weights 2", "weights 3"]
    assert not list(site.run.glob(".held-*"))  # nothing is kept on disk for longer


def test_what_cannot_be_evaluated_stays_held_and_is_no_hole(site):
    site.save(1)
    site.outcome("finished")
    fails = [sys.executable, "-c", "raise SystemExit('no luck')"]
    with pytest.raises(RunError, match="could not be evaluated: no luck"):
        Watcher([RunFolder(site.run)], site.out, lambda job: fails, [None], print).watch(0.02)
    site.save(2)
    (held,) = site.run.glob(".held-*/step000001")
    assert (held / "weights").read_text() == "weights 1"
    ended(site.watcher())
    assert site.rows() == [(1, "accuracy"), (2, "accuracy")]


def test_a_file_system_without_hard_links_has_what_is_there_evaluated(site, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    site.save(1)
    site.outcome("finished")
    command = lambda job: [  # noqa: E731
        *(sys.executable, str(site.script), str(job.checkpoint), str(job.out)),
        *(str(site.folder), SUMMARY),
    ]
    Watcher([RunFolder(site.run)], site.out, command, [None], print).watch(0.02)
    assert site.rows() == [(1, "accuracy")]
    assert not list(site.run.glob(".held-*"))


def test_a_held_checkpoint_is_known_as_its_runs(site):
    site.save(1)
    held = site.run / ".held-0123abcd" / "step000001"
    held.parent.mkdir()
    held.mkdir()
    for path in (site.run / "checkpoints" / "step000001").iterdir():
        (held / path.name).hardlink_to(path)
    assert run_of(held).path == site.run.resolve()
    (held / "config.json").write_text("{}")
    ref = find_model(str(held), step=None, runs_dir="runs")
    assert (ref.run.name, ref.step) == (site.run.name, 1)
    assert path_in_run(str(held)) == str(site.run / "checkpoints" / "step000001")
