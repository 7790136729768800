"""``rlvr tiny-model`` makes a model, reports on it, and replaces none unasked."""

import json

import pytest
from click.testing import CliRunner

from rlvr_core.api import ConfigError
from rlvr_devkit.tiny_command import tiny_model

pytest.importorskip("rlvr_math")


def test_command_reports_and_refuses(tmp_path):
    run = CliRunner().invoke
    arguments = [str(tmp_path / "m"), "--task", "math/arithmetic", "--steps", "2"]
    done = run(tiny_model, [*arguments, "--seed", "5", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["seed"], report["steps"]) == (5, 2)
    assert isinstance(run(tiny_model, arguments).exception, ConfigError)
    assert run(tiny_model, [*arguments, "--force"]).exit_code == 0
