"""``rlvr plugins check``: whether a plugin and its components keep the promises of their kinds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from rlvr_core.api import PluginError
from rlvr_core.toolkit import (
    Entry,
    Host,
    kind_words,
    load_host,
    print_json,
    print_line,
    print_table,
)
from rlvr_devkit.conformance.checks import CHECKS, lines
from rlvr_devkit.conformance.of_plugins import components_of, installed, record_of
from rlvr_devkit.conformance.subject import Result, results

Row = tuple[str, str, Result]
"""Kind and name of the component, and the result of a check."""


class _WithChecks(click.Command):
    """A command whose help ends in the list of checks."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list."""
        with formatter.section("Checks"):
            rows = [(f"{kind_words(kind)}: {name}", promise) for kind, name, promise in lines()]
            formatter.write_dl(rows, col_max=40)


@click.command("check", cls=_WithChecks)
@click.argument("name", metavar="NAME|FOLDER")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def check(name: str, as_json: bool) -> None:
    """Check that a plugin keeps its promises.

    NAME is a plugin's, its distribution's, or a component's (hello/greeting); FOLDER is that of a
    plugin with its pyproject.toml, which need not be installed. What a component is tried with is
    what its static method example() gives. Nothing is fetched from the hub, unless
    HF_HUB_OFFLINE=0 is set. The exit code is 3 if a promise is broken.
    """
    with contextlib.redirect_stdout(sys.stderr):  # components may print
        rows = list(_rows(name))
    broken = sum(result.status == "broken" for _, _, result in rows)
    if as_json:
        print_json([_json(*row) for row in rows])
    else:
        _print(rows)
    if broken:
        raise click.exceptions.Exit(PluginError.exit_code)


def _rows(name: str) -> Iterator[Row]:
    """Yield the result of each check; an installed plugin takes precedence over a folder."""
    path, host = Path(name), load_host()
    plugin, slash, _ = name.partition("/")
    if path.is_absolute() or name.startswith("."):
        yield from _of_folder(path)
    elif slash and host.record(plugin):
        yield from _of_components([_component(host, plugin, name)])
    elif not host.record(name) and (path / "pyproject.toml").is_file():
        yield from _of_folder(path)
    else:
        yield from _of_plugin(host, name)


def _component(host: Host, plugin: str, name: str) -> Entry:
    for entry in components_of(host, record_of(host, plugin)):
        if entry.name == name:
            return entry
    raise PluginError(
        f"plugin '{plugin}' registers no '{name}'",
        remedy=f"see what it has: rlvr plugins show {plugin}",
    )


def _of_folder(folder: Path) -> Iterator[Row]:
    with installed(folder.absolute()) as (host, plugins):
        for plugin in plugins:
            yield from _of_plugin(host, plugin)


def _of_plugin(host: Host, name: str) -> Iterator[Row]:
    record = record_of(host, name)
    for result in results("plugin", record, CHECKS["plugin"]):
        yield "plugin", record.name, result
    yield from _of_components(components_of(host, record))


def _of_components(entries: list[Entry]) -> Iterator[Row]:
    for entry in entries:
        kind = str(entry.kind)
        for result in results(kind, entry.load(), CHECKS[kind]):
            yield kind, entry.name, result


def _json(kind: str, name: str, result: Result) -> dict[str, str]:
    return {
        "kind": kind,
        "name": name,
        "check": result.check.id,
        "promise": result.check.promise,
        "status": result.status,
        "detail": result.detail,
    }


def _print(rows: list[Row]) -> None:
    table = [
        (kind_words(kind), name, result.check.id, result.status, result.check.promise)
        for kind, name, result in rows
    ]
    print_table(("kind", "name", "check", "result", "promise"), table)
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for kind, name, result in rows:
        if result.detail:
            key = (f"{kind_words(kind)} {name}", result.status, result.detail)
            reasons.setdefault(key, []).append(result.check.id)
    for (name, status, detail), checks in reasons.items():
        print_line(f"{name}: {status}: {', '.join(checks)}")
        for line in detail.splitlines():
            print_line(f"  {line}")
    counts = {
        status: sum(result.status == status for _, _, result in rows)
        for status in ("kept", "broken", "unchecked")
    }
    print_line(", ".join(f"{n} {status}" for status, n in counts.items()))
