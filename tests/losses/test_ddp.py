"""One process and two give the same step.

Launched by torchrun: ``accelerate launch --cpu --num_processes 2`` quietly runs a single process,
so the world size is asserted.
"""

import os
import subprocess
import sys
from dataclasses import fields

import torch

from rlvr_core.algorithm.policy import PolicyLoss
from rlvr_core.plugins.host import load_host

OPTIONS = {
    "beta": 0.1,
    "importance_correction": {"mode": "sequence_truncate", "cap": 1.3},
    "entropy_bonus": 0.2,
    "top_entropy": 0.5,
}
BY_TOKEN = OPTIONS | {"importance_correction": {"mode": "token_truncate", "cap": 1.3}}
WORKER = ("-m", "tests.support.losses.ddp_worker")


def test_two_gloo_processes_give_the_step_of_one(make_batch, count, tmp_path):
    batch = make_batch(8, 6)
    registry = load_host().registry
    policy = [e for e in registry.of("loss") if issubclass(e.load(), PolicyLoss)]
    entries = {entry.leaf: entry for entry in policy}
    assert entries.keys() >= {"grpo", "dapo", "dr_grpo", "gspo"}
    options = {name: BY_TOKEN if name == "vespo" else OPTIONS for name in entries}
    torch.save(
        {
            "batch": {
                field.name: tensor.detach()
                for field in fields(batch)
                if (tensor := getattr(batch, field.name)) is not None
            },
            "targets": {name: entry.target for name, entry in entries.items()},
            "options": options,
        },
        tmp_path / "in.pt",
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    launched = subprocess.run(
        [sys.executable, *torchrun, *WORKER, tmp_path / "in.pt", tmp_path / "out.pt"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert launched.returncode == 0, launched.stderr[-3000:]
    results = torch.load(tmp_path / "out.pt", weights_only=True)
    assert results.pop("world") == 2
    for name, entry in entries.items():
        cls = entry.load()
        alone = cls(cls.Config(**options[name]))(batch, count(batch))
        (grad,) = torch.autograd.grad(alone.loss, batch.logp_BT)
        result = results[name]
        torch.testing.assert_close(result["loss"], alone.loss.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(result["grad"], grad, rtol=0, atol=1e-12)
