"""A config and a sweep of it that need no model until something is trained."""

import pytest
import yaml

from rlvr_core.plugins.host import load_host
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder

BASE = {
    "run": {"name": "base", "seed": 5},
    "model": {"path": "model"},
    "data": {
        "sources": [
            {
                "use": "core/jsonl",
                "with": {
                    "path": "data.jsonl",
                    "prompt": "question",
                    "id": "id",
                    "verifier": "core/exact",
                },
            }
        ]
    },
    "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    "sampling": {"n": 4, "max_tokens": 6},
    "engine": "transformers",
    "loss": {"use": "dapo"},
    "train": {"steps": 4, "prompts_per_step": 2, "lr": 1e-3, "warmup_steps": 1},
    "guards": [{"use": "guards/preflight", "off": True}],
    "checkpoint": {"every": 4},
}
SWEEP = {
    "name": "tries",
    "config": "base.yaml",
    "parameters": {"train.lr": [1e-3, 1e-4], "sampling.n": [2, 4]},
    "metric": "reward/mean",
}


@pytest.fixture(scope="session")
def host():
    return load_host({"RLVR_PLUGINS": ""})


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the sweep with some keys changed, in a folder that becomes the working one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))

    def written(**keys):
        path = tmp_path / "sweep.yaml"
        content = {key: value for key, value in (SWEEP | keys).items() if value is not None}
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return written


@pytest.fixture
def record():
    """Leave the folder of a run with these rewards, as a run leaves it."""

    def recorded(run, rewards, outcome="finished", error=None):
        run.prepare()
        folder = RunFolder.create(
            run.folder, "x", config_text="", resolved=dict(run.config), now=1_800_000_000
        )
        manifest = Manifest.start(folder, name="x", command=["rlvr", "run"], plugins={})
        with Recorder(folder) as recorder:
            for step, reward in enumerate(rewards):
                recorder.metrics(step, step, {"reward/mean": reward})
        manifest.finish(outcome, steps=len(rewards), error=error)
        return folder

    return recorded
