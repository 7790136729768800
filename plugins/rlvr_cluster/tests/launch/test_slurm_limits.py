"""A job at its time limit puts itself back into the queue."""

import os
import subprocess
import time

import pytest

from rlvr_cluster.jobs.slurm import SlurmLauncher
from rlvr_core.api import LaunchRequest

REQUEST = LaunchRequest(("run", "config.yaml"), "demo")

SRUN = """#!/bin/bash
if [[ -n "$CHECKPOINT" ]]; then
  mkdir -p "$RLVR_DIR/demo/checkpoints/step000003"
  touch "$RLVR_DIR/demo/checkpoints/step000003/COMPLETE"
fi
exit "$CODE"
"""
SCONTROL = """#!/bin/bash
if [[ "$1" == requeue ]]; then echo "requeue $2" >> asked; else echo head; fi
"""


def attempt(
    folder, *, requeues=2, code=130, left=100, checkpoint=True, restarts="0", earlier=False
):
    """Run the script with ``left`` seconds to the time limit; return what it did."""
    launcher = SlurmLauncher(SlurmLauncher.Config(processes=1, requeues=requeues, grace=120))
    script = launcher.plan(REQUEST).details["script"]
    ends = "N/A" if left is None else time.strftime("%FT%T", time.localtime(time.time() + left))
    tools = {"srun": SRUN, "scontrol": SCONTROL, "squeue": f"#!/bin/bash\necho {ends}\n"}
    for name, text in tools.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    if earlier:
        old = folder / "runs/slurm-7/demo/checkpoints/step000001/COMPLETE"
        old.parent.mkdir(parents=True)
        old.touch()
        os.utime(old, (1, 1))
    more = {"SLURM_RESTART_COUNT": restarts} if restarts else {}
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        env={"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x",
             "CODE": str(code), "CHECKPOINT": "1" if checkpoint else ""} | more,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    asked = folder / "asked"
    return asked.read_text() if asked.exists() else "", done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_job_at_its_time_limit_goes_back_into_the_queue(folder):
    asked, said = attempt(folder)
    assert asked == "requeue 7\n"
    assert "back into the queue, 1 of 2" in said


def test_a_job_that_slurm_has_never_restarted_goes_back_too(folder):
    assert attempt(folder, restarts="")[0] == "requeue 7\n"


@pytest.mark.parametrize(
    "how",
    [
        {"code": 0},  # it has finished
        {"code": 6},  # it failed
        {"requeues": 0},
        {"restarts": "2"},  # twice was asked for
        {"left": 3600},  # somebody stopped it, or it failed
        {"left": None},  # there is no limit
        {"checkpoint": False},
        {"checkpoint": False, "earlier": True},  # it would do the same for ever
    ],
    ids=str,
)
def test_nothing_else_goes_back(folder, how):
    asked, said = attempt(folder, **how)
    assert asked == ""
    assert ("without a new checkpoint" in said) is (how.get("checkpoint") is False)
