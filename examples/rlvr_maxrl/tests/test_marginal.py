"""The estimator by hand, and in a run of the command line."""

import json
import os
from pathlib import Path

import pytest
import yaml

from rlvr_core.testing.fork_server import run_rlvr
from rlvr_core.testing.random_model import save_random_model
from rlvr_devkit.conformance.as_tests import component_conformance
from rlvr_maxrl import Marginal

test_marginal_conforms = component_conformance("advantage", Marginal)

PACKAGE = Path(__file__).parents[1]
REWARD = "def early(text, answer):\n    return sum(c < 'n' for c in text) / max(1, len(text))\n"


@pytest.fixture
def rlvr(tmp_path):
    """The rlvr command in a folder with a model and a configuration; the plugin is installed."""
    info = tmp_path / "site" / "rlvr_maxrl-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlvr-maxrl\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[rlvr]\nmaxrl = rlvr_maxrl\n")
    (tmp_path / "reward.py").write_text(REWARD)
    rows = [{"question": f"Say {i}.", "answer": "x"} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": "data.jsonl", "prompt": "question", "verifier": "./reward.py:early"}
    config = {
        "run": {"name": "marginal"},
        "model": {"path": str(save_random_model(tmp_path / "model"))},
        "data": {"sources": [{"use": "jsonl", "with": source}]},
        "sampling": {"n": 4, "max_tokens": 8},
        "engine": "transformers",
        "advantage": {"use": "maxrl/marginal", "with": {"scale": 2.0}},
        "train": {"steps": 2, "prompts_per_step": 2, "lr": 1e-3, "warmup_steps": 0},
        "guards": [{"use": "guards/preflight", "off": True}],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    path = os.pathsep.join([str(PACKAGE), str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])

    def call(*arguments):
        env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        return run_rlvr(*arguments, cwd=tmp_path, env=env)

    return call


def test_a_run_trains_with_it(rlvr, tmp_path):
    done = rlvr("run", "config.yaml")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").glob("marginal-*")
    groups = [json.loads(x) for x in (folder / "traces" / "rollouts.jsonl").open()]
    assert len(groups) >= 4
    for group in groups:
        rewards = [one["reward"] for one in group["completions"]]
        for i, one in enumerate(group["completions"]):
            expected = 2.0 * (max(rewards) - max(rewards[:i] + rewards[i + 1 :]))
            assert one["advantage"] == pytest.approx(expected)
    steps = [json.loads(x) for x in (folder / "metrics.jsonl").open()]
    assert all(0 < step["advantage/sole_best"] <= 0.25 for step in steps)


def test_a_wrong_option_is_the_plugins_error_at_start(rlvr):
    done = rlvr("run", "config.yaml", "--set", "advantage.with.scale=0")
    assert done.returncode == 3
    assert "maxrl/marginal" in done.stderr
    assert "scale 0 would train on nothing" in done.stderr
    assert "bug in rlvr" not in done.stderr
    few = rlvr("config", "check", "config.yaml", "--set", "sampling.n=1")
    assert few.returncode == 2
    assert "maxrl/marginal compares at least 2 completions" in few.stderr
