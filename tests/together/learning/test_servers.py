"""A tiny model is trained with an MCP server's tool, and by a server of OpenEnv."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

import pytest

from rlvr_core.record.jsonl import read_jsonl

HERE = Path(__file__).parent
CONFIG = """
run: {{name: served, seed: 3}}
model: {{path: "tiny:env/lookup"}}
data:
  sources:
    - {{use: env/lookup, with: {{split: train}}}}
environment:
  {environment}
  max_turns: 3
  timeout: 120
rewards: [{reward}]
sampler: {{use: core/shuffle, with: {{refill: 0}}}}
sampling: {{n: 8, max_tokens: 80, stop: ["</tool_call>"]}}
engine: core/transformers
loss: {{use: core/dapo, with: {{clip_low: 0.2, clip_high: 0.2}}}}
train:
  steps: 8
  prompts_per_step: 8
  lr: 1.0e-3
  optimizer: {{with: {{betas: [0.9, 0.95]}}}}
  warmup_steps: 2
checkpoint: {{every: 8}}
"""
FRAME = "\\n<tool_response>\\n{answer}\\n</tool_response>\\n"
SERVED = {
    "mcp": (
        'use: env/mcp\n  with: {{url: "http://127.0.0.1:{port}/mcp", tell: nothing, '
        'answer: "{frame}"}}',
        "{use: ./lookup_servers.py:right}",
    ),
    "openenv": (
        'use: env/openenv\n  with: {{url: "http://127.0.0.1:{port}", action: text, '
        "observation: text, reset: {{of: of}}, role: tool}}",
        "auto",
    ),
}


@pytest.fixture
def server(tmp_path):
    """Starts a server in a process of its own; returns its port."""
    running = []

    def start(kind):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        log = (tmp_path / f"{kind}.log").open("w")
        words = [sys.executable, str(HERE / "lookup_servers.py"), kind, str(port)]
        running.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT))
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and running[-1].poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.05)
        raise AssertionError((tmp_path / f"{kind}.log").read_text())

    yield start
    for one in running:
        one.kill()
        one.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVED)
def test_a_tiny_model_is_trained_with_a_server(kind, server, rlvr, tmp_path, cache_dir):
    pytest.importorskip({"mcp": "mcp", "openenv": "openenv"}[kind])
    port = server(kind)
    environment, reward = SERVED[kind]
    environment = environment.format(port=port, frame=FRAME)
    shutil.copy(HERE / "lookup_servers.py", tmp_path)
    config = CONFIG.format(environment=environment, reward=reward)
    (tmp_path / "config.yaml").write_text(config)
    rlvr("run", "config.yaml", "--display", "none", cwd=tmp_path, cache=cache_dir)
    shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache_dir))
    assert shown["ledger"]["balanced"] is True
    (run,) = (tmp_path / "runs").iterdir()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 8
    rewards = [step["reward/mean"] for step in steps]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.1, rewards
    assert max(step["parity/k3"] for step in steps if "parity/k3" in step) < 1e-7
    groups = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
    rows = [row for group in groups for row in group["completions"]]
    assert not {row["transcript"]["ended"] for row in rows} & {"error", "timeout"}
    asked = [row for row in rows if len(row["transcript"]["turns"]) == 3]
    assert asked
    for row in asked:
        said = row["transcript"]["turns"]
        assert [turn["role"] for turn in said] == ["assistant", "tool", "assistant"]
        first, tool, last = (turn["n_tokens"] for turn in said)
        assert row["loss_mask"] == [1] * first + [0] * tool + [1] * last
        assert said[1]["text"].startswith("\n<tool_response>\n")
