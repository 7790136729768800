"""What the folder of a run that begins or goes on must hold, by folders made by hand."""

import hashlib
import json
import re
from types import SimpleNamespace

import pytest

from rlvr_core.api import RunError, RunStarted
from rlvr_core.builtin.invariants.resume import Resume
from rlvr_core.builtin.invariants.run_folder import contradicted, missing_steps, not_kept

CONFIG = {"run": {"seed": 1, "dir": None}, "train": {"steps": 8, "lr": 1e-6, "betas": [0.9, 0.95]}}


def checkpoint(folder, step):
    made = folder / "checkpoints" / f"step{step:06d}"
    made.mkdir(parents=True)
    (made / "model").write_bytes(b"weights of %d" % step)
    digest = hashlib.sha256(b"weights of %d" % step).hexdigest()
    files = {"model": {"size": 12, "sha256": digest}}
    (made / "COMPLETE").write_text(json.dumps({"format": 1, "step": step, "files": files}))
    pointer = folder / "checkpoints" / "latest"
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(made.name)
    return made


def lines(path, steps):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in steps))


def manifest(folder, **changes):
    told = {"outcome": "running", "resumed": [{"step": 2}, {"step": 4}]} | changes
    (folder / "run.json").write_text(json.dumps(told))


@pytest.fixture
def folder(tmp_path):
    """The folder of a run of eight steps that goes on for the second time, after four."""
    for step in (2, 4):
        checkpoint(tmp_path, step)
    lines(tmp_path / "metrics.jsonl", range(4))
    lines(tmp_path / "traces" / "rollouts.jsonl", [0, 0, 1, 2, 3, 3])
    manifest(tmp_path)
    (tmp_path / "resolved.yaml").write_text(
        "run: {seed: 1, dir: null}\ntrain: {steps: 8, lr: 1.0e-06, betas: [0.9, 0.95]}\n"
    )
    return tmp_path


def after(folder, step=4, *, resumed=True, config=CONFIG):
    return RunStarted(folder, config, step, resumed)


def test_a_run_that_goes_on_where_it_was(folder):
    assert contradicted(after(folder)) == ""
    assert missing_steps(after(folder)) == []


def test_a_new_run(tmp_path):
    manifest(tmp_path, resumed=[])
    assert contradicted(after(tmp_path, 0, resumed=False)) == ""


def test_a_trainer_without_a_run(tmp_path):
    assert contradicted(after(tmp_path, 4)) == ""
    assert missing_steps(after(tmp_path)) == []


@pytest.mark.parametrize(
    ("change", "step", "resumed", "words"),
    [
        (lambda at: None, 2, True, "after 2 steps, and its folder has a whole checkpoint of 4"),
        (lambda at: None, 0, False, "after 0 steps, and its folder has a whole checkpoint of 4"),
        (lambda at: None, 5, True, "of which its folder has no checkpoint"),
        (lambda at: lines(at / "metrics.jsonl", range(6)), 4, True, "step 5, which is still"),
        (lambda at: lines(at / "metrics.jsonl", [0, 1, 1, 2]), 4, True, "a step twice: 4 lines"),
        (
            lambda at: lines(at / "traces" / "rollouts.jsonl", [3, 4]),
            4,
            True,
            "has groups of step 5, after 4",
        ),
        (lambda at: manifest(at, outcome="finished"), 4, True, r"has ended \(finished\)"),
        (lambda at: manifest(at, resumed=[{"step": 2}]), 4, True, "the last is after 2 steps"),
        (lambda at: manifest(at, resumed=[]), 4, True, "it has none"),
    ],
)
def test_each_contradiction(folder, change, step, resumed, words):
    change(folder)
    assert re.search(words, contradicted(after(folder, step, resumed=resumed)))


def test_a_config_that_is_not_recorded(folder):
    other = {"run": CONFIG["run"], "train": CONFIG["train"] | {"steps": 16}}
    said = contradicted(after(folder, config=other))
    assert said == "resolved.yaml has train.steps: 8, and the run has 16"


def test_a_secret_is_recorded_otherwise(folder):
    (folder / "resolved.yaml").write_text(
        "run: {seed: 1, dir: <redacted>}\ntrain: {steps: 8, lr: 1.0e-06, betas: [0.9, 0.95]}\n"
    )
    secret = {"run": {"seed": 1, "dir": "s3://key:secret@x"}, "train": CONFIG["train"]}
    assert contradicted(after(folder, config=secret)) == ""


def test_a_newer_checkpoint_that_is_damaged_is_passed_over(folder):
    damaged = checkpoint(folder, 6)
    (damaged / "model").write_bytes(b"weights of 7")
    assert contradicted(after(folder)) == ""
    (damaged / "model").unlink()
    assert contradicted(after(folder)) == ""


def test_lines_that_somebody_took_away_are_a_note(folder, capsys):
    lines(folder / "metrics.jsonl", [0, 3])
    assert contradicted(after(folder)) == ""
    assert missing_steps(after(folder)) == [1, 2]
    guard = Resume(SimpleNamespace(ranks=SimpleNamespace(main=True)), None)
    guard._compare_folder(after(folder))
    assert "no line of 2 of the 4 steps before this one, such as step 2" in capsys.readouterr().err


def test_the_guard_stops_the_run(folder):
    guard = Resume(SimpleNamespace(ranks=SimpleNamespace(main=True)), None)
    guard._compare_folder(after(folder))
    with pytest.raises(RunError, match="guard resume: the run's folder is not that of a run at"):
        guard._compare_folder(after(folder, 2))


def test_the_checkpoint_before_is_there(folder):
    assert not_kept(folder / "checkpoints", 4) == ""
    assert "latest names step000004" in not_kept(folder / "checkpoints", 2)
    (folder / "checkpoints" / "latest").unlink()
    assert "latest names nothing" in not_kept(folder / "checkpoints", 4)
    (folder / "checkpoints" / "latest").write_text("step000004\n")  # where there are no links
    assert not_kept(folder / "checkpoints", 4) == ""
    (folder / "checkpoints" / "step000004" / "COMPLETE").unlink()
    assert "the checkpoint of step 4, the newest, is gone" in not_kept(folder / "checkpoints", 4)


def test_a_checkpoint_that_vanished_is_noticed_at_the_next(folder):
    guard = Resume(SimpleNamespace(ranks=SimpleNamespace(main=True), model=None), None)
    for step in (4, 6):
        guard._taken = {"step": step}
        guard.checkpoint_written(folder / "checkpoints" / f".tmp-step{step:06d}-7")
    guard._taken = {"step": 8}
    with pytest.raises(RunError, match="the checkpoint of step 6, the newest, is gone"):
        guard.checkpoint_written(folder / "checkpoints" / ".tmp-step000008-7")
