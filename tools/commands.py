"""The page of every command with its arguments and options, from click."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

from rlvr_core.cli.main import cli
from rlvr_core.plugins.discovery import FIRST_PARTY
from rlvr_core.plugins.host import load_host

_HEAD = """# Every command

Written by `tools/docs.py` from the commands themselves; `rlvr COMMAND --help` prints the same.
Commands of
plugins stand at the end, under the plugin's name.

Every command has `--help`. Exit codes: 0 done, 1 the run failed, 2 configuration or data, 3 plugin,
4 machine, 5 the run finished but its store lacks a part, 6 nothing can be learned, 7 hung,
130 interrupted.
"""


def commands() -> dict[str, click.Command]:
    """Every command and group of commands of this project by its words, ``rlvr config check``."""
    offered = {entry.plugin for entry in load_host().registry.of("command")}
    root = click.Context(cli, info_name="rlvr")
    names = [*cli.list_commands(root), *(name for name in FIRST_PARTY if name in offered)]
    found: dict[str, click.Command] = {}
    for name in names:
        command = cli.get_command(root, name)
        assert command is not None
        found |= dict(_below(command, f"rlvr {name}"))
    return found


def _below(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=words)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _below(inner, f"{words} {name}")


def page() -> str:
    """The page."""
    return "\n".join([_HEAD, *(_section(words, each) for words, each in commands().items())])


def _section(words: str, command: click.Command) -> str:
    context = click.Context(command, info_name=words)
    level = "#" * (1 + words.count(" "))
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    parts = [f"{level} {words}\n", f"    {usage}\n", f"{_prose(command.help or '')}\n"]
    options = [
        param
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden and param.name != "help"
    ]
    if options:
        parts += ["| option | meaning | default |", "|---|---|---|"]
        parts += [_row(option, context) for option in options]
        parts.append("")
    if isinstance(command, click.Group):
        inner = ", ".join(f"`{name}`" for name in command.list_commands(context))
        parts.append(f"Commands: {inner}.\n")
    return "\n".join(parts)


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    shown, _ = record
    help_ = " ".join((option.help or "").split()).replace("<", "&lt;")
    cells = (f"`{shown}`", help_, _default(option))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    value: Any = option.to_info_dict()["default"]
    if option.is_flag or value is None or value == () or callable(value):
        return ""
    return f"`{value}`"


def _prose(text: str) -> str:
    """Help as Markdown: click's mark for "do not wrap" begins what is shown as it stands."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).partition("\f")[0]):
        if paragraph.startswith("\b\n"):
            lines = paragraph.removeprefix("\b\n").splitlines()
            paragraphs.append("\n".join(f"    {line}" for line in lines))
        else:
            paragraphs.append(paragraph.replace("<", "&lt;"))
    return "\n\n".join(paragraphs).rstrip()
