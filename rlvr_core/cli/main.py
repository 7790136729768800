"""The command ``rlvr``: finds the subcommand, and turns errors into messages and exit codes.

Nothing is imported here that ``rlvr --help`` does not need: a subcommand's module is loaded when it
is called, plugins when a plugin's command is.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import click

from rlvr_core import NO_WINDOWS, __version__
from rlvr_core.api import ConfigError, MachineError, PluginError, RlvrError
from rlvr_core.plugins import discovery
from rlvr_core.plugins.first_party import COMMANDS
from rlvr_core.terminal import output

ALWAYS = {"run": ("rlvr_core.cli.run:run", "Train a model as a config says.")}
"""Target and summary of the commands that no plugin registers."""


def top_level() -> dict[str, tuple[str, str]]:
    """Return target and summary of the core's commands, then of those of first-party plugins."""
    commands = ALWAYS | discovery.registered_by_core("register_commands")
    return commands | discovery.commands_beside_core(os.environ)


class Commands(click.Group):
    """The top-level command group: the core's commands, and a group for each plugin with any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands that need no plugin name before them."""
        return list(top_level())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or build the group of a plugin."""
        commands = ALWAYS if cmd_name in ALWAYS else top_level()
        if cmd_name in commands:
            module, _, attribute = commands[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute)
            return command
        if cmd_name in COMMANDS:
            from rlvr_core.plugins.host import load_host

            what = f"rlvr {cmd_name}"
            raise load_host().missing().part(what, COMMANDS[cmd_name])
        installed = {plugin.name for plugin in discovery.find_plugins(os.environ)}
        if cmd_name in installed or cmd_name in discovery.FIRST_PARTY:
            from rlvr_core.plugins.host import load_host

            host = load_host()
            from rlvr_core.cli.plugin_commands import group_of

            group: click.Group = group_of(host, cmd_name)
            return group
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Add suggestions to click's error for an unknown command."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            names = [*top_level(), *(plugin.name for plugin in _plugins())]
            close = difflib.get_close_matches(name.lower(), names, n=3)
            hint = f"\n  did you mean: {', '.join(close)}?" if close else ""
            raise click.UsageError(f"there is no command '{name}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help without importing the commands, with the plugins' names."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in top_level().items()])
        plugins = _plugins()
        if plugins:
            with formatter.section("Plugins (their own commands: rlvr PLUGIN --help)"):
                formatter.write_dl([(o.name, f"{o.distribution} {o.version}") for o in plugins])


def _plugins() -> list[discovery.Found]:
    """Return the plugins whose commands stand below their own names."""
    beside = set(COMMANDS.values())
    found = discovery.find_plugins(os.environ)
    return [plugin for plugin in found if not plugin.off and plugin.name not in beside]


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: rlvr examples copy quickstart; rlvr run examples/quickstart.yaml",
)
@click.version_option(__version__, prog_name="rlvr", message="%(prog)s %(version)s")
def cli() -> None:
    """Reinforcement learning with verifiable rewards."""


_INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        args: Arguments after ``rlvr``; None for those of this process.

    Returns:
        The exit code: 0, 1 run failed (or a bug), 2 config or usage, 3 plugin, 4 machine,
        5 finished but the store lacks a part, 6 nothing can be learned, 7 hung, 130 interrupted.
    """
    # whoever started us may have closed them: the next file that is opened would be one of them
    sys.stdout, sys.stderr = (one or open(os.devnull, "w") for one in (sys.stdout, sys.stderr))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # file names and model output may hold any character
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _call(args)
        if code == _INTERRUPTED and args is None:
            # Python's own end puts the default actions back: a second signal would kill it there
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has closed it; redirect stdout, or Python complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _call(args: Sequence[str] | None) -> int:
    as_json = "--json" in (sys.argv[1:] if args is None else args)
    try:
        if sys.platform == "win32":
            raise MachineError(NO_WINDOWS, remedy="use it in WSL 2, which is Linux")
        result = cli.main(args=args, prog_name="rlvr", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except RlvrError as error:
        return _refuse(error, as_json)
    except click.Abort as abort:
        interrupted = isinstance(abort.__cause__, KeyboardInterrupt)
        output.print_line("interrupted" if interrupted else "stopped", stderr=True)
        return _INTERRUPTED if interrupted else 1
    except KeyboardInterrupt:
        output.print_line("interrupted", stderr=True)
        return _INTERRUPTED
    except click.ClickException as error:
        if as_json:
            output.print_json_error(ConfigError(error.format_message()))
        output.print_usage_error(error)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        if (known := _MACHINE.get(error.errno or 0)) is None:
            return _unexpected(error, as_json)
        return _refuse(MachineError(known, where=str(error.filename or "")), as_json)
    except BaseException as error:  # a component may even call sys.exit
        if isinstance(error, UnicodeEncodeError) and error.encoding in ("ascii", "latin-1"):
            what = f"a name or text cannot be written in this locale's encoding ({error.encoding})"
            return _refuse(MachineError(what, remedy="export PYTHONUTF8=1"), as_json)
        return _unexpected(error, as_json)


_MACHINE = {
    errno.ENOSPC: "the output cannot be written: no space is left there",
    errno.EDQUOT: "the output cannot be written: no space is left there",
    errno.EROFS: "a file cannot be written: its file system takes no writes",
    errno.EACCES: "a file cannot be used: permission is denied",
    errno.EPERM: "a file cannot be used: permission is denied",
    errno.EISDIR: "a folder stands where a file should be",
    errno.ENOTDIR: "a file stands where a folder should be",
    errno.EMFILE: "too many files are open; raise the limit: ulimit -n",
    errno.EIO: "a file cannot be read or written: its device reports an error",
}
"""Errors of the operating system that the user can fix, and that are no bug of the program."""


def _refuse(error: RlvrError, as_json: bool) -> int:
    """Report an error; return the exit code."""
    if as_json:
        output.print_json_error(error)
    output.print_error(error)
    return error.exit_code


def _unexpected(error: BaseException, as_json: bool) -> int:
    """Print an exception with its traceback, and blame the plugin's component or rlvr itself."""
    from rlvr_core.plugins.blame import blame

    fault = blame(error)
    if isinstance(error, SystemExit) and not isinstance(fault, PluginError):
        raise error  # click raises it when the output is no longer read
    output.print_exception(error)
    return _refuse(fault, as_json)


if __name__ == "__main__":
    sys.exit(main())
