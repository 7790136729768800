"""``rlvr bs4 preview | bench | smoke | verify-manifest | explain``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from rlvr_core.api import DataError

if TYPE_CHECKING:
    from rlvr_bs4.benchmark import Played
    from rlvr_bs4.manifest import Entry
    from rlvr_bs4.task import SizeName
    from rlvr_bs4.web.environment import Web

_SIZES = click.Choice(["bare", "small", "medium", "large"])
_WITH = click.option(
    "--with", "options", multiple=True, metavar="KEY=VALUE", help="An option of bs4/web; repeat."
)


@click.command()
@click.argument("archetype", required=False)
@click.option("--seed", default=0, show_default=True, help="0 up: train; 100000 up: eval.")
@click.option("--size", type=_SIZES, default="small", show_default=True, help="Page around it.")
@click.option("--prompt", is_flag=True, help="Show the whole prompt instead of the start page.")
@click.option("--list", "list_", is_flag=True, help="List all archetypes.")
def preview(archetype: str | None, seed: int, size: SizeName, prompt: bool, list_: bool) -> None:
    """Show a task of an archetype: question, pages, truth; or list the archetypes."""
    from rlvr_bs4 import catalog
    from rlvr_bs4 import prompt as prompts
    from rlvr_bs4.generate import generate, split_of

    if list_ or archetype is None:
        for kind in catalog.everything().values():
            click.echo(f"{kind.id:34} {kind.category:12} {kind.difficulty:7} {kind.summary}")
        return
    task = generate(archetype, seed, size)
    if prompt:
        click.echo(prompts.single(task))
        return
    click.echo(f"{task.archetype}, seed {seed} ({split_of(seed)}), size {size}")
    click.echo(f"{prompts.ask(task)}\n")
    click.echo(task.html)
    for url in task.pages:
        click.echo(f"page:     {url} ({len(task.pages[url].encode())} bytes)")
    click.echo(f"gold:     {task.gold}")
    click.echo(f"par:      {task.par.run_python} programs, {task.par.navigate} moves")
    click.echo(f"canaries: {len(task.canaries)}")
    click.echo(f"sha256:   {task.sha256}")


@click.command()
@click.option("--parser", type=click.Choice(["html.parser", "lxml"]), default="html.parser")
@click.option("--limit", type=int, default=None, help="So many entries, from the start.")
@click.option("--file", type=click.File(), help="Grade the conversations in it, not the solvers.")
@_WITH
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(
    parser: str, limit: int | None, file: TextIO | None, options: tuple[str, ...], as_json: bool
) -> None:
    """Score the solvers that come with the benchmark, or recorded conversations, by category.

    A reference below 1 is a fault of the environment; bug solvers show what a mistake costs.
    Given rows of traces/conversations.jsonl, or of an evaluation by bs4/web-bench, it plays them
    again in bs4/web, programs included, and grades each as a whole.
    """
    from rlvr_bs4 import benchmark, manifest

    head, entries = manifest.read()
    result: dict[str, Any] = {"benchmark": head["benchmark"], "sha256": head["sha256"]}
    result |= {"versions": manifest.versions()}
    if file is None:
        rows = benchmark.solved(entries[:limit], parser)
        result |= {"parser": parser, "categories": rows}
        good = all(row["reference"] == 1.0 for row in rows.values())
    else:
        found = _played(file, entries[:limit], options)
        rows, good = benchmark.by_category(found), True
        result |= {"categories": rows, "conversations": [one.row for one in found]}
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        click.echo(f"benchmark {head['benchmark']} {str(head['sha256'])[:16]}")
        _table(rows)
    if not good:
        sys.exit(1)


def _played(file: TextIO, entries: list[Entry], options: tuple[str, ...]) -> list[Played]:
    from rlvr_bs4 import benchmark
    from rlvr_bs4.web.replay import conversations

    spoken = conversations(file.read())
    if spoken is None:
        raise DataError(
            "it does not hold conversations",
            where=file.name,
            remedy="rows of traces/conversations.jsonl, or completions.jsonl of bs4/web-bench",
        )
    with _web(options) as web:
        return benchmark.played(entries, spoken, web)


@contextmanager
def _web(options: tuple[str, ...]) -> Iterator[Web]:
    """The environment with options of the command line."""
    from rlvr_bs4.web.environment import Web

    given = {}
    for option in options:
        name, told, value = option.partition("=")
        if not told:
            raise click.UsageError(f"--with {option}: write KEY=VALUE")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    try:
        web = Web(Web.Config(**given))
    except ValueError as error:  # pydantic's
        raise click.UsageError(f"--with: {error}") from error
    try:
        yield web
    finally:
        web.shut()


def _table(rows: Mapping[str, Mapping[str, float]]) -> None:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    click.echo(f"{'category':12} " + "  ".join(columns))
    for name, row in rows.items():
        cells = [row.get(one, float("nan")) for one in columns]
        shown = [
            f"{cell:{len(one)}d}" if isinstance(cell, int) else f"{cell:{len(one)}.3f}"
            for one, cell in zip(columns, cells, strict=True)
        ]
        click.echo(f"{name:12} " + "  ".join(shown))


@click.command()
@click.option("--rows", type=click.IntRange(1), default=365, show_default=True, help="For memory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def smoke(rows: int, as_json: bool) -> None:
    """Try whether this machine is ready: libraries, tasks, sandbox and grades, memory."""
    from dataclasses import asdict

    from rlvr_bs4.smoke import findings

    found = []
    for one in findings(rows):
        found.append(one)
        if not as_json:
            click.echo(f"{'ok' if one.good else 'FAULT':6} {one.what:14} {one.told}")
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    if not all(one.good for one in found):
        sys.exit(4)


@click.command("verify-manifest")
@click.option("--file", "path", type=click.Path(path_type=Path), help="Another manifest.")
@click.option("--write", is_flag=True, help="Write it anew instead; needs --file.")
def verify_manifest(path: Path | None, write: bool) -> None:
    """Make every task of the manifest again and compare its hash."""
    from rlvr_bs4 import manifest

    if write:
        if path is None:
            raise click.UsageError("--write needs --file")
        entries = manifest.build()
        manifest.write(path, entries)
        click.echo(f"{len(entries)} entries, sha256 {manifest.digest(entries)}")
        return
    head, entries = manifest.read(path)
    faults = []
    for entry in entries:
        try:
            entry.task()
        except DataError as error:
            faults.append(error.complaints[0])
    written, now = head["versions"], manifest.versions()
    assert isinstance(written, dict)
    for name in now:
        if written.get(name) != now[name]:
            click.echo(f"note: {name} was {written.get(name)}, is {now[name]}")
    if faults:
        raise DataError.collect(faults[:10])
    click.echo(f"benchmark {head['benchmark']}: all {len(entries)} tasks are as they were")


@click.command()
@click.argument("archetype")
@click.option("--seed", default=0, show_default=True, help="Number of the task.")
@click.option("--size", type=_SIZES, default="small", show_default=True, help="Page around it.")
@click.option("--file", type=click.File(), default="-", help="The response; standard input if not.")
@_WITH
def explain(
    archetype: str, seed: int, size: SizeName, file: TextIO, options: tuple[str, ...]
) -> None:
    """Say how a response to a task is graded, and why.

    Given rows of traces/conversations.jsonl, or a transcript, it plays those of the task again in
    bs4/web, programs included, and grades each as a whole.
    """
    from dataclasses import asdict

    from rlvr_bs4.generate import generate
    from rlvr_bs4.grade import grade
    from rlvr_bs4.web.replay import recorded, replay

    task, text = generate(archetype, seed, size), file.read()
    click.echo(f"question:  {task.question}")
    spoken = recorded(text, task)
    if spoken is None:
        _show(asdict(grade(task, text)))
    with _web(options) as web:
        for one in spoken or ():
            played = replay(task, one, web)
            assert played.verdict is not None
            found = {"ended": played.ended, "score": played.verdict.score}
            found |= {"passed": played.verdict.passed, **played.verdict.parts}
            _show(found | {"detail": played.verdict.detail, "extracted": played.verdict.extracted})
            _show({name: int(count) for name, count in played.counts.items()})
    click.echo(f"gold:      {task.gold}")


def _show(found: dict[str, Any]) -> None:
    for name, value in found.items():
        click.echo(f"{name + ':':10} {value}")
