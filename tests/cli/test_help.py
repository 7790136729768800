"""``rlvr`` from the outside: cheap help, exit codes, suggestions, quiet pipes."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rlvr_core.api.errors import (
    Complaint,
    ConfigError,
    DataError,
    IdleError,
    MachineError,
    PluginError,
    RunError,
)
from rlvr_core.cli import list_command
from rlvr_core.cli.main import ALWAYS, main, top_level
from rlvr_core.plugins.discovery import registered_by_core
from rlvr_core.plugins.first_party import COMMANDS as BESIDE
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.loader import RESERVED
from rlvr_core.testing.fork_server import run_rlvr

COMMANDS = top_level()

HEAVY = ("torch", "transformers", "vllm", "boto3", "datasets", "accelerate", "numpy", "lm_eval")


def run(*args, **env):
    return run_rlvr(*args, cwd=Path.cwd(), env={**os.environ, "NO_COLOR": "1", **env})


CHEAP = [["--help"], ["--version"], ["plugins", "list"], ["list"]]

EACH = """
import json, sys
from rlvr_core.cli.main import main
for words in json.loads(sys.argv[1]):
    assert main(words) == 0
    print(json.dumps([words, sorted(sys.modules)]), file=sys.stderr)
"""


def test_loads_nothing_heavy():
    """One command after the other in one process, the help of all of them first."""
    commands = [*CHEAP, *([name, "--help"] for name in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert [words for words, _ in found] == commands
    for words, loaded in found:
        assert not {*loaded} & {*HEAVY}, words
    at_first = set(found[0][1])
    assert not at_first & {"rich", "yaml"}
    assert {name for name in at_first if name.startswith("rlvr_core.cli.")} == {
        "rlvr_core.cli.main"
    }


def test_help_names_every_command_and_plugin():
    done = run("--help")
    assert done.returncode == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert summary in done.stdout
    assert "rlvr-math" in done.stdout
    assert "rlvr-math" not in run("--help", RLVR_PLUGINS_OFF="math").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name):
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.name == name


def test_no_plugin_may_have_a_commands_name():
    assert {"core", *ALWAYS} == RESERVED  # a test of the host tries those of the core's plugin


def test_the_core_registers_its_commands_by_the_hook_that_plugins_use():
    entries = [e for e in load_host({}).registry.of("command") if e.plugin == "core"]
    registered = {entry.leaf: (entry.target, entry.summary) for entry in entries}
    assert registered == registered_by_core("register_commands")
    assert registered.keys() == COMMANDS.keys() - ALWAYS.keys() - BESIDE.keys()
    assert {"eval", "launch", "verify"} <= registered.keys()


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["lst"], 2, "did you mean: list?"),
        (["mth"], 2, "did you mean: math?"),
        (["list", "verifers"], 2, "did you mean: verifiers?"),
        (["list", "--nope"], 2, "see: rlvr list --help"),
        (["list", "loss", "gpro"], 2, "core/grpo"),
        (["list", "verifier", "bs4/x"], 3, "RLVR_PLUGINS='math' does not name it"),
        (["bs4", "pages"], 3, "RLVR_PLUGINS='math' does not name it"),
        (["plugins", "show", "mathh"], 3, "did you mean: math?"),
        (["math"], 3, "rlvr plugins show math"),
    ],
)
def test_mistakes_get_a_code_and_a_remedy(args, code, text):
    done = run(*args, RLVR_PLUGINS="math")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def raising(monkeypatch, capsys):
    """Calls ``rlvr list``, whose function raises this; the exit code and what was told."""

    def call(error):
        @click.command()
        def broken():
            raise error

        monkeypatch.setattr(list_command, "list_", broken)
        return main(["list"]), capsys.readouterr().err

    return call


def test_all_complaints_are_shown(raising):
    complaints = [Complaint("one", "a.yaml:1", ("do x",)), Complaint("two")]
    told = "error: one\n  at a.yaml:1\n  do x\nerror: two\n"
    assert raising(ConfigError.collect(complaints)) == (2, told)


@pytest.mark.parametrize(
    ("error", "code"),
    [(RunError, 1), (DataError, 2), (PluginError, 3), (MachineError, 4), (IdleError, 6)],
)
def test_exit_codes(raising, error, code):
    assert raising(error("x"))[0] == code


def test_a_bug_shows_its_traceback(raising):
    code, told = raising(KeyError("key"))
    assert code == 1
    assert "KeyError: 'key'" in told
    assert "this is a bug in rlvr" in told


def test_undecodable_names_can_be_printed():
    done = run("list", "verifier", "a\udc80\u4e2d", PYTHONIOENCODING="ascii")
    assert done.returncode in (2, 3)
    assert "Traceback" not in done.stderr


def test_closed_pipe_is_quiet():
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "rlvr_core.cli.main", "list", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN),
    ) as process:
        process.stdout.close()
        noise = process.stderr.read()
    assert process.returncode == 1
    assert noise == b""


def test_list_shows_options_with_types_and_defaults():
    done = run("list", "loss", "grpo")
    assert done.returncode == 0
    assert "  beta: a number of at least 0 (default 0.0)\n      Weight of KL" in done.stdout
    assert "  loss:\n    use: core/grpo\n    with:\n" in done.stdout
    shown = json.loads(run("list", "losses", "core/grpo", "--json").stdout)
    beta = next(field for field in shown["fields"] if field["name"] == "beta")
    assert (beta["default"], beta["required"]) == (0.0, False)


def test_list_all_kinds():
    entries = json.loads(run("list", "--json").stdout)
    assert {"kind", "name", "plugin", "summary", "target"} == set(entries[0])
    assert "core/grpo" in [entry["name"] for entry in entries if entry["kind"] == "loss"]
    only = json.loads(run("list", "losses", "--json").stdout)
    assert only == [entry for entry in entries if entry["kind"] == "loss"]


@pytest.mark.parametrize(
    "args", [["show", "--json", "--nope"], ["verify", "--json"], ["frob", "--json"]], ids=" ".join
)
def test_a_wrong_command_line_is_json_too_where_json_was_asked_for(args):
    done = run(*args)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert told["errors"][0]["what"] in done.stderr


def test_what_the_system_refuses_is_no_bug_of_ours(tmp_path):
    """Exit 4 and a message; anything else that escapes is a bug and keeps its traceback."""
    (tmp_path / "demo" / "metrics.jsonl").mkdir(parents=True)
    done = run("show", str(tmp_path / "demo"), "--json")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    [told] = json.loads(done.stdout)["errors"]
    assert told["what"] == "a folder stands where a file should be"
    assert told["where"].endswith("metrics.jsonl")
