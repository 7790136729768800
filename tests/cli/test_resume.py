"""Which run `rlvr run --resume` goes on with."""

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.cli.run import what_to_run
from rlvr_core.plugins.host import load_host

RESOLVED = """\
model: {path: x}
data: {sources: [{use: core/jsonl, with: {path: a, prompt: q, verifier: core/exact}}]}
train: {steps: 1}
"""


@pytest.fixture
def host():
    return load_host({"RLVR_PLUGINS": ""})


def test_without_a_config_runs_are_looked_for_where_run_dir_is_set(tmp_path, monkeypatch, host):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere" / "toy-20250102-030405"
    folder.mkdir(parents=True)
    (folder / "resolved.yaml").write_text(RESOLVED)
    overrides = ("train.steps=2", "run.dir=elsewhere")
    resolved, found = what_to_run(None, overrides, "last", host)
    assert found.path.samefile(folder)
    assert resolved.config.train.steps == 2
    with pytest.raises(ConfigError) as caught:
        what_to_run(None, (), "last", host)
    assert "'runs'" in str(caught.value)
    assert "--set run.dir=DIR" in str(caught.value)
    with pytest.raises(ConfigError, match=r"--set run\.dir=DIR says where"):
        what_to_run(None, (), "toy", host)
