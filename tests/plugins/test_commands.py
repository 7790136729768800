"""Commands of plugins: under the plugin's own name, imported when called."""

from __future__ import annotations

import pytest

PLUGIN = """
from rlvr_core.api import hookimpl

@hookimpl
def register_commands(registrar):
    registrar.add("greet", "acme_tool.commands:greet", summary="Say hello.")
    registrar.add("plain", "acme_tool.commands:plain", summary="Is no click command.")
    registrar.add("gone", "acme_tool.absent:gone", summary="Cannot be imported.")
"""

COMMANDS = """
import sys
import click
from rlvr_core.api import MachineError

print("imported", file=sys.stderr)

@click.command()
@click.argument("name")
def greet(name):
    if name == "nobody":
        raise MachineError("nobody is here", remedy="look elsewhere")
    click.echo(f"hello {name}")

def plain():
    pass
"""


@pytest.fixture
def tool(site):
    site.plugin("tool", PLUGIN)
    site.module("acme_tool/commands.py", COMMANDS)
    return site


def test_help_of_the_group_imports_no_command(tool):
    outcome = tool.run("tool", "--help")
    assert outcome.code == 0, outcome
    assert "greet  Say hello." in outcome.out
    assert "acme-tool 1.2.3" in outcome.out
    assert "imported" not in outcome.err


def test_command_runs(tool):
    outcome = tool.run("tool", "greet", "Ada")
    assert (outcome.code, outcome.out) == (0, "hello Ada\n"), outcome


def test_its_errors_are_messages(tool):
    outcome = tool.run("tool", "greet", "nobody")
    assert outcome.code == 4
    assert outcome.err == "imported\nerror: nobody is here\n  look elsewhere\n"


@pytest.mark.parametrize(
    ("command", "text"),
    [("plain", "not a click command"), ("gone", "No module named 'acme_tool.absent'")],
)
def test_broken_command_names_the_line_that_registered_it(tool, command, text):
    outcome = tool.run("tool", command)
    line = 7 if command == "plain" else 8
    assert outcome.code == 3, outcome
    assert text in outcome.err
    assert f"acme_tool/plugin.py:{line}" in outcome.err


def test_unknown_command_of_a_plugin(tool):
    outcome = tool.run("tool", "gret")
    assert outcome.code == 2, outcome
    assert "gret" in outcome.err


def test_group_of_a_broken_plugin_says_why(site):
    site.plugin("tool", "1 / 0\n")
    outcome = site.run("tool", "greet")
    assert outcome.code == 3, outcome
    assert "ZeroDivisionError" in outcome.err
    assert "acme_tool/plugin.py:1" in outcome.err


def test_group_of_a_plugin_that_is_off_says_so(tool):
    outcome = tool.run("tool", "greet", "Ada", RLVR_PLUGINS_OFF="tool")
    assert outcome.code == 3, outcome
    assert "RLVR_PLUGINS_OFF='tool' names it" in outcome.err
