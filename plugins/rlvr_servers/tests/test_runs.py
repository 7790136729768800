"""Runs on vLLM servers that processes share, that outlive them, that die."""

import contextlib
import importlib.util
import json
import time
from pathlib import Path

import psutil
import pytest
import torch

from rlvr_core.testing.random_model import save_random_model

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

SERVER = "rlvr_servers.main"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until_idle(process, but):
    """Until all a command can do is wait for processes that the test has stopped.

    For a second no thread of it computes, or would if it had a processor: other work on the
    machine makes this longer, not wrong.
    """
    until = time.monotonic() + 400
    stopped = {one.pid for one in but}
    calm = 0
    while calm < 20:
        family = [process.pid, *(c.pid for c in psutil.Process(process.pid).children(True))]
        calm = 0 if any(computes(pid) for pid in family if pid not in stopped) else calm + 1
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < until, "it does not come to rest"
        time.sleep(0.05)


def computes(pid):
    """Whether a thread of a process has work to do, or is at the disk."""
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return bool(states & {"R", "D"})


def distance(folder, group):
    """Mean |recorded log-prob - that of a checkpoint's own forward| over a group's tokens."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt, parts = group["prompt_ids"], []
    for one in group["completions"]:
        ids = torch.tensor([[*prompt, *one["token_ids"]]])
        with torch.no_grad():
            logp = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        exact = logp.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        parts.append((exact - torch.tensor(one["logprobs"])).abs())
    return torch.cat(parts).mean().item()


def test_t32_servers_generate_while_training_runs_and_one_is_killed_in_the_middle(lab, tmp_path):
    """Step N trains on what the weights of step N - 1 sampled, a restarted server's too."""
    steps = 6
    path = str(save_random_model(tmp_path / "wider", head_dim=32))
    lab.write(
        model={"path": path},
        engine={"use": "vllm-server", "with": {"servers": 1, "kv_cache_mb": 64}},
        train={"steps": steps, "lr": 1e-2, "warmup_steps": 1, "max_staleness": 1},
        sampling={"n": 4, "max_tokens": 100},
        checkpoint={"every": 1, "keep": 9},
    )
    process = lab.started("run", "config.yaml", "--display", "plain", together=True)
    until = time.monotonic() + 400

    def taken():
        assert process.poll() is None, process.stdout.read()[-4000:]
        assert time.monotonic() < until
        return max((len(lines(run / "metrics.jsonl")) for run in lab.runs()), default=0)

    while taken() < 2:
        time.sleep(0.01)
    (server,) = lab.descendants(process, SERVER)
    family = [server, *server.children(recursive=True)]
    for one in family:
        one.suspend()
    wait_until_idle(process, family)
    server.kill()
    told, _ = process.communicate(timeout=500)
    assert process.returncode == 0, told[-4000:]
    assert "was ended by SIGKILL; it is started again (1 of 3)" in told

    (run,) = lab.runs()
    metrics = lines(run / "metrics.jsonl")
    assert [line["staleness/max"] for line in metrics] == [0, 1, 1, 1, 1, 1]
    assert sum(line["engine/restarts"] for line in metrics) == 1
    assert sum(line["engine/resent"] for line in metrics) > 0
    shown = json.loads(lab.rlvr("show", run.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    trained = [line["ledger/trained"] for line in metrics]
    assert shown["staleness"] == {"0": trained[0], "1": sum(trained[1:])}
    groups = lines(run / "traces" / "rollouts.jsonl")
    indices = [group["draw_index"] for group in groups]
    assert len(indices) == len(set(indices))
    assert all(len(group["completions"]) == 4 for group in groups)
    for step in range(2, steps):  # by an oracle: the weights of the step before, and no others
        group = next(one for one in groups if one["step"] == step)
        assert group["sampled_version"] == step - 1
        saved = {n: run / "checkpoints" / f"step{n:06d}" for n in (step - 1, step)}
        assert distance(saved[step - 1], group) < 1e-4
        assert distance(saved[step], group) > 1e-3
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
