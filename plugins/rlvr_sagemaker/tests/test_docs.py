"""Every command of docs/sagemaker.md is one that the command line has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from rlvr_core.cli.main import cli

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "sagemaker.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in GUIDE.splitlines() if re.match(r"^ {4,}rlvr ", line)]


def understood(words):
    """Parse a command line as it would be, down to the last option, and do nothing."""
    command, context = cli, None
    name, words = "rlvr", list(words)
    while True:
        context = command.make_context(name, words, parent=context, resilient_parsing=False)
        if not isinstance(command, click.Group):
            return context
        rest = [*context._protected_args, *context.args]
        name, found, words = command.resolve_command(context, rest)
        assert found is not None, name
        command = found


def test_the_guide_has_commands():
    assert len(COMMANDS) > 25
    first = {line.split()[1] for line in COMMANDS}
    assert first == {"sagemaker", "launch", "jobs", "show", "eval"}


@pytest.mark.parametrize("line", COMMANDS)
def test_each_is_understood(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("models/my-model", "data"):
        Path(name).mkdir(parents=True)
    Path("data/problems.jsonl").touch()
    plain = re.sub(r"\$\{?(\w+)\}?", r"\1", line).partition(" > ")[0]
    words = shlex.split(plain)[1:]
    if words[-1] == "--help":
        with pytest.raises(click.exceptions.Exit, match="0"):
            understood(words)
    else:
        understood(words)


def test_every_command_of_the_plugin_is_in_the_guide():
    from rlvr_core.cli.jobs import jobs
    from rlvr_core.cli.plugin_commands import group_of

    for name in group_of("sagemaker").entries:
        assert f"rlvr sagemaker {name} " in GUIDE
    for name in jobs.commands:
        assert f"rlvr jobs {name}" in GUIDE
