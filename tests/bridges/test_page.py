"""The examples of docs/bridges.md are run, or read as what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rlvr_core.builtin.lora.command import export_
from rlvr_core.host.host import load_host

PAGE = (Path(__file__).parents[2] / "docs" / "bridges.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def run(code):
    names = {}
    exec(compile(code, "docs/bridges.md", "exec"), names)
    return names


def test_the_examples_run():
    trl, lm_eval, environment = PYTHON
    run(trl)
    judge = run(lm_eval)["process_results"]
    assert judge({"target": "4"}, ["4"]) == {"exact": 1.0, "exact_unscored": 0.0}
    pytest.importorskip("rlvr_math")
    env = run(environment)["load_environment"](count=2)
    assert len(env.get_dataset()) == 2


def test_the_configs_name_what_there_is():
    (config,) = YAML
    assert "process_results: !function my_metric.process_results" in PAGE
    found = yaml.safe_load(config)
    (source,) = found["data"]["sources"]
    entry = load_host().entry("dataset", source["use"])
    entry.load().Config(**source["with"])
    environment = load_host().entry("environment", source["use"]).load()
    environment.Config(**found["environment"]["with"])


def test_the_commands_have_the_options_that_are_shown():
    said = CliRunner().invoke(export_, ["--help"]).output
    shown = {
        flag
        for line in PAGE.splitlines()
        if "rlvr export" in line
        for flag in re.findall(r"--[a-z-]+", line)
    }
    assert shown == {"--push", "--dry-run", "--private", "--gguf", "--dtype"}
    assert all(flag in said for flag in shown)
