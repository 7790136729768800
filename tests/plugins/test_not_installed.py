"""A command, component or section of a first-party distribution that is absent is named with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr_core.api import PluginError
from rlvr_core.cli.main import main
from rlvr_core.plugins import discovery
from rlvr_core.plugins.first_party import COMMANDS, COMPONENTS, FIRST_PARTY
from rlvr_core.plugins.host import load_host

CONFIG = """\
model: {path: "tiny:math/arithmetic"}
data:
  sources:
    - use: core/jsonl
      with: {path: rows.jsonl, prompt: prompt, spec: {answer: answer}}
rewards: [{use: USE}]
train: {steps: 1}
"""


def comes_with(plugin):
    distribution = FIRST_PARTY[plugin]
    return f"it comes with {distribution}, which is not installed: pip install {distribution}"


@pytest.fixture
def without(monkeypatch):
    """Hides first-party distributions as if they had not been installed."""
    there = list(discovery._installed())

    def hide(*plugins):
        shown = [plugin for plugin in there if plugin.name not in plugins]
        monkeypatch.setattr(discovery, "_installed", lambda: iter(shown))

    return hide


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(command, without, capsys):
    without(COMMANDS[command])
    assert main([command]) == PluginError.exit_code
    message = capsys.readouterr().err
    assert f"rlvr {command} needs plugin '{COMMANDS[command]}'" in message
    assert comes_with(COMMANDS[command]) in message


def test_a_component_by_its_short_name(without, tmp_path, monkeypatch, capsys):
    without("checks")
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "Hi", "answer": "Ho"}\n')
    Path("run.yaml").write_text(CONFIG.replace("USE", "json"))
    assert main(["run", "run.yaml", "--dry-run"]) == PluginError.exit_code
    message = capsys.readouterr().err
    assert "run.yaml:6" in message
    assert "it is checks/json" in message
    assert comes_with("checks") in message


OWN = """\
from rlvr_core.api import Done


class Own:
    def start(self, problem):
        pass

    def step(self, turn):
        return Done()
"""


@pytest.mark.parametrize("use", ["env/lookup", "lookup", "./own.py:Own"])
def test_an_environment(use, without, tmp_path, monkeypatch, capsys):
    without("env")
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "Hi", "answer": "Ho"}\n')
    Path("own.py").write_text(OWN)
    text = CONFIG.replace("USE", "core/exact")
    Path("run.yaml").write_text(f"{text}environment: {{use: {use}}}\n")
    assert main(["run", "run.yaml", "--dry-run"]) == PluginError.exit_code
    assert comes_with("env") in capsys.readouterr().err


def test_rows_that_are_split(without, tmp_path, monkeypatch, capsys):
    without("cluster")
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "Hi", "answer": "Ho"}\n')
    text = CONFIG.replace("USE", "core/exact").replace("steps: 1", "steps: 1, context_parallel: 2")
    Path("run.yaml").write_text(text)
    assert main(["run", "run.yaml", "--dry-run"]) == PluginError.exit_code
    message = capsys.readouterr().err
    assert "train.context_parallel needs plugin 'cluster'" in message
    assert comes_with("cluster") in message


def test_what_is_said_to_come_with_a_distribution_does():
    """The tables of names known without being installed agree with what is registered."""
    entries = {(entry.kind, entry.name) for entry in load_host().registry.entries.values()}
    named = {
        (kind, f"{plugin}/{leaf}")
        for kind, owners in COMPONENTS.items()
        for plugin, leaves in owners.items()
        for leaf in leaves
    }
    assert named <= entries
    commands = {
        name: plugin.name
        for plugin in discovery.find_plugins({})
        if plugin.name in COMMANDS.values()
        for name in discovery.registered_by(plugin, "register_commands")
    }
    assert commands.items() >= COMMANDS.items()
