"""What tests read of the folders of runs, and runs that they kill."""

import hashlib
import json
import time

import psutil
import pytest
import torch
from safetensors.torch import load_file

from rlvr_core.parallel.fsdp.shards import read_shards

WHOLE = {"sync/read_back", "loss/backward"}
"""What is measured of a policy that a process has whole."""


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps_of(run):
    """Number of steps that a run has recorded."""
    path = run / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def digest(run):
    """Hashes of what a run leaves: numbers, completions, and the tensors of its last checkpoint."""
    names = ("metrics.jsonl", "traces/rollouts.jsonl")
    last = max((run / "checkpoints").glob("step*"))
    files = [*(run / name for name in names), *sorted(last.rglob("*.safetensors"))]
    return {
        str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def balanced(lab, run):
    """What ``rlvr show`` says of a run, whose ledger balances."""
    shown = json.loads(lab.rlvr("show", str(run), "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    return shown


def completions(run, *more):
    """Each group's place, and the tokens, fate, reward and ``more`` of its completions."""
    fields = ("token_ids", "fate", "reward", *more)
    return [
        (group["draw_index"], [[c[name] for name in fields] for c in group["completions"]])
        for group in lines(run / "traces" / "rollouts.jsonl")
    ]


def killed_after(lab, steps, *resume):
    """Start or resume the lab's run, and kill -9 it once it has recorded so many steps."""
    before = len(lab.runs()) - bool(resume)
    process = lab.started("run", "config.yaml", *resume, "--display", "none")
    until = time.monotonic() + 200
    try:
        while max(map(steps_of, lab.runs()[before:]), default=0) < steps:
            assert process.poll() is None, "it has ended by itself"
            assert time.monotonic() < until
            time.sleep(0.001)
    finally:
        process.kill()
        process.communicate()
    return lab.runs()[-1]


def killed_and_resumed(lab, steps=3):
    """The run of the lab's config, killed after so many steps and resumed; its folder."""
    run = killed_after(lab, steps)
    lab.rlvr("run", "--resume", run.name, "--display", "none")
    return run


def launch(lab, *arguments, check=0):
    """Run in two processes; the folder."""
    lab.rlvr("launch", *arguments, "--processes", "2", "--display", "none", check=check)
    return lab.runs()[-1]


class Launched:
    """A long run of two processes that has a checkpoint."""

    def __init__(self, lab, **sections):
        lab.write(**sections)
        self.process = lab.started("launch", "config.yaml", "--processes", "2", "--display", "none")
        until = time.monotonic() + 200
        while not any(any(run.glob("checkpoints/step*/COMPLETE")) for run in lab.runs()):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        (self.run,) = lab.runs()
        launcher = psutil.Process(self.process.pid)
        self.ranks = {int(child.environ()["RANK"]): child for child in launcher.children()}
        self.everyone = launcher.children(recursive=True)

    def end(self):
        """Exit code, what was told and how it ended, once no process is left."""
        _, told = self.process.communicate(timeout=200)
        _, alive = psutil.wait_procs(self.everyone, timeout=60)
        assert not alive
        assert "Traceback" not in told
        return self.process.returncode, told, json.loads((self.run / "run.json").read_text())


def saved(checkpoint):
    """Weights and moments of a checkpoint, whole or in shards."""
    trainer = checkpoint / "trainer"
    if (moments := trainer / "optimizer.safetensors").is_file():
        return load_file(checkpoint / "model.safetensors"), load_file(moments)
    return read_shards(trainer, "master", {}), read_shards(trainer, "optimizer", {})


def same_metrics(one, two):
    """Two runs have the same metrics, up to rounding."""
    ours, theirs = lines(one / "metrics.jsonl"), lines(two / "metrics.jsonl")
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        # a sharded policy would have to be gathered once more for these
        assert mine.keys() ^ other.keys() <= WHOLE
        mine, other = ({k: v for k, v in x.items() if k not in WHOLE} for x in (mine, other))
        assert mine == pytest.approx(other, rel=1e-4, abs=1e-5)


def same_weights(one, two, step):
    """Two runs have the same weights and moments after a step, up to rounding."""
    first, second = (saved(run / "checkpoints" / step) for run in (one, two))
    for ours, theirs in zip(first, second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
