"""The commands of plugins, each under a group of the plugin's own name."""

from __future__ import annotations

import click

from rlvr_core.api import PluginError
from rlvr_core.plugins.host import Host
from rlvr_core.plugins.registry import Entry


class PluginCommands(click.Group):
    """The commands one plugin registered; a command's module is imported when it is called."""

    def __init__(self, name: str, entries: dict[str, Entry], help_: str) -> None:
        super().__init__(name, help=help_)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command.

        Raises:
            PluginError: If it cannot be imported or is no click command.
        """
        if cmd_name not in self.entries:
            return None
        entry = self.entries[cmd_name]
        command = entry.load()
        if not isinstance(command, click.Command):
            raise PluginError(
                f"command '{entry.name}' is a {type(command).__name__}, not a click command",
                where=str(entry.registered),
                remedy=f"decorate {entry.target} with @click.command()",
            )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries they were registered with."""
        with formatter.section("Commands"):
            formatter.write_dl([(leaf, entry.summary) for leaf, entry in self.entries.items()])


def group_of(host: Host, plugin: str) -> click.Group:
    """The commands of a plugin.

    Raises:
        PluginError: If it is not installed, off, failed to load, or has no commands.
    """
    error = host.missing().plugin(plugin)
    if error is not None:
        raise error
    entries = {entry.leaf: entry for entry in host.registry.of("command") if entry.plugin == plugin}
    if not entries:
        raise PluginError(
            f"plugin '{plugin}' has no commands",
            remedy=f"see what it has: rlvr plugins show {plugin}",
        )
    record = host.record(plugin)
    assert record is not None
    return PluginCommands(plugin, entries, f"Commands of {record.distribution} {record.version}.")
