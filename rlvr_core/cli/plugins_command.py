"""``rlvr plugins``: the installed plugins, and remedies for broken ones."""

from __future__ import annotations

import importlib
import os

import click

from rlvr_core.plugins.discovery import find_plugins, registered_by
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.plugins.loader import PluginRecord
from rlvr_core.terminal.output import print_json, print_line, print_table


class PluginsGroup(click.Group):
    """The commands below, and ``check``, which comes with rlvr-devkit."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted({*super().list_commands(ctx), "check"})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises:
            PluginError: If it is ``check``, and rlvr-devkit is not installed.
        """
        if cmd_name != "check":
            return super().get_command(ctx, cmd_name)
        # no plugin may be loaded yet: the check watches what loading one imports
        plugins = {plugin.name: plugin for plugin in find_plugins(os.environ)}
        commands = (
            registered_by(plugins["devkit"], "register_commands") if "devkit" in plugins else {}
        )
        if "check" not in commands:
            raise load_host().missing().part("rlvr plugins check", "devkit")
        module, _, attribute = commands["check"][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=PluginsGroup)
def plugins() -> None:
    """List and check installed plugins, and say what is wrong with them."""


@plugins.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_(as_json: bool) -> None:
    """List all installed plugins."""
    host = load_host()
    if as_json:
        print_json([record.as_json() for record in host.records])
        return
    rows = [
        (r.name, r.status, f"{r.distribution} {r.version}", str(len(r.components)))
        for r in host.records
    ]
    print_table(("plugin", "status", "from", "components"), rows)
    for record in host.records:
        _print_problems(record)


@plugins.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def show(name: str, as_json: bool) -> None:
    """Show what plugin NAME offers, and what is wrong with it.

    NAME is a plugin's name or that of its distribution.
    """
    host = load_host()
    records = _records(host, name)
    if as_json:
        shown = [record.as_json() for record in records]
        print_json(shown[0] if len(shown) == 1 else shown)
        return
    for record in records:
        _print_record(host, record)


def _records(host: Host, name: str) -> list[PluginRecord]:
    """The plugins of this name; several when two distributions claim it."""
    records = [r for r in host.records if r.name == name]
    records = records or [r for r in host.records if r.distribution == name]
    if records:
        return records
    raise host.no_plugin(name)


def _print_record(host: Host, record: PluginRecord) -> None:
    print_line(f"{record.name}: {record.distribution} {record.version}, {record.status}")
    print_line(f"  module  {record.module}")
    if record.file:
        print_line(f"  file    {record.file}")
    if record.hooks:
        print_line(f"  loaded  in {record.seconds * 1000:.1f} ms")
        print_line(f"  hooks   {', '.join(record.hooks)}")
    for key in record.components:
        entry = host.registry.entries[key]
        print_line(f"  {entry.kind} {entry.name}: {entry.summary}")
    _print_problems(record)


def _print_problems(record: PluginRecord) -> None:
    for problem in record.problems:
        print_line(f"{record.name} ({record.distribution}): {problem.message}")
        if problem.place.file:
            print_line(f"  at {problem.place}")
        for line in problem.remedy:
            print_line(f"  {line}")
