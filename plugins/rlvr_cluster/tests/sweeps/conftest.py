"""A config and a sweep of it that need no model until something is trained."""

from pathlib import Path

import pytest
import yaml

from rlvr_core.plugins.host import load_host
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder

BASE = yaml.safe_load(Path(__file__).with_name("base.yaml").read_text())
SWEEP = yaml.safe_load(Path(__file__).with_name("sweep.yaml").read_text())


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
