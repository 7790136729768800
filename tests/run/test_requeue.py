"""A batch job that Slurm preempts and puts back into the queue: its own script, twice, by bash.

There is no Slurm here. What stands in for it does what slurmctld and slurmstepd do: the task leads
a process group; to preempt it, the group gets SIGCONT and SIGTERM, and the grace time to end; then
the same script begins again with the same job's number.
"""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.support.run_records import lines

pytestmark = pytest.mark.slow

STEPS = 40

SRUN = """#!{python}
import glob, os, signal, subprocess, sys, time
words = [word for word in sys.argv[1:] if word != "--kill-on-bad-exit=1"]
task = subprocess.Popen(words, process_group=0, env=os.environ | {{"SLURM_NODEID": "0"}})
if os.environ["SLURM_RESTART_COUNT"] == "0":
    steps = 0
    while steps < 3 and task.poll() is None:
        found = glob.glob(os.environ["RLVR_DIR"] + "/*/metrics.jsonl")
        steps = len(open(found[0]).readlines()) if found else 0
        time.sleep(0.01)
    for number in (signal.SIGCONT, signal.SIGTERM):
        os.killpg(task.pid, number)
sys.exit(abs(task.wait(120)))
"""


@pytest.fixture
def cluster(tmp_path):
    """The commands that the script calls, in front of those of the machine."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text("#!/bin/sh\necho head\n")
    (tools / "srun").write_text(SRUN.format(python=sys.executable))
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x"}


def test_t94_a_preempted_job_goes_on_where_it_was_when_its_script_runs_again(
    lab, tmp_path, cluster
):
    lab.write(
        train={"steps": STEPS, "lr": 1e-3, "warmup_steps": 1}, checkpoint={"every": 0, "keep": 9}
    )
    words = ["launch", "config.yaml", "--backend", "slurm", "--processes", "1"]
    plan = json.loads(lab.rlvr(*words, "--dry-run", "--json").stdout)["plan"]
    script = tmp_path / "slurm_script"  # as slurmstepd runs it, from a file
    script.write_text(plan["script"])

    def begins(restarts):
        return subprocess.run(
            ["bash", str(script)],
            env=lab.env() | cluster | {"SLURM_RESTART_COUNT": str(restarts)},
            cwd="/",  # the script itself goes to where the job was submitted
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    first = begins(0)
    (run,) = (lab.folder / "runs" / "slurm-7").iterdir()
    was = json.loads((run / "run.json").read_text())
    assert was["outcome"] == "interrupted", first.stdout + first.stderr
    assert first.returncode == 130
    assert 3 <= was["steps"] < STEPS
    assert (run / "checkpoints" / f"step{was['steps']:06d}" / "COMPLETE").is_file()

    second = begins(1)
    assert second.returncode == 0, second.stdout + second.stderr
    assert [*(lab.folder / "runs" / "slurm-7").iterdir()] == [run]  # the same run, and no other
    record = json.loads((run / "run.json").read_text())
    assert record["outcome"] == "finished"
    assert [again["step"] for again in record["resumed"]] == [was["steps"]]
    assert [line["step"] for line in lines(run / "metrics.jsonl")] == list(range(STEPS))
    more = ["--runs-dir", str(run.parent), "--json"]
    assert json.loads(lab.rlvr("show", run.name, *more).stdout)["ledger"]["balanced"] is True

    lab.rlvr("run", "config.yaml", "--display", "none")
    (straight,) = (one for one in lab.runs() if one.name != "slurm-7")

    def drawn(folder):
        return [
            (group["draw_index"], [one["token_ids"] for one in group["completions"]])
            for group in lines(folder / "traces" / "rollouts.jsonl")
        ]

    assert drawn(run) == drawn(straight)
    step = f"checkpoints/step{STEPS:06d}/model.safetensors"
    ours, theirs = load_file(run / step), load_file(straight / step)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
