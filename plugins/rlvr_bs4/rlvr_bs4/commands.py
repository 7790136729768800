"""``rlvr bs4 preview | bench | verify-manifest | explain``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rlvr_bs4.task import SizeName

_SIZES = click.Choice(["bare", "small", "medium", "large"])


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(parser: str, limit: int | None, as_json: bool) -> None:
    """Score reference and bug solvers on the manifest, by category.

    A reference below 1 is a fault of the environment; bug solvers show what a mistake costs.
    """
    from rlvr_bs4 import catalog, manifest, solvers

    head, entries = manifest.read()
    right: dict[str, list[bool]] = {}
    wrong: dict[str, list[bool]] = {}
    for entry in entries[:limit]:
        kind, task = catalog.get(entry.archetype), entry.task()
        passed = solvers.run(kind.solve, task, parser).correct
        right.setdefault(kind.category, []).append(passed)
        for bug in kind.bugs.values():
            passed = solvers.run(bug, task, parser).correct
            wrong.setdefault(kind.category, []).append(passed)
    rows = {
        name: {
            "tasks": len(done),
            "reference": sum(done) / len(done),
            "bugs": sum(wrong[name]) / len(wrong[name]),
        }
        for name, done in sorted(right.items())
    }
    if as_json:
        result = {"benchmark": head["benchmark"], "sha256": head["sha256"], "parser": parser}
        result |= {"versions": manifest.versions()}
        click.echo(json.dumps(result | {"categories": rows}, indent=2))
    else:
        click.echo(f"benchmark {head['benchmark']} {str(head['sha256'])[:16]}, {parser}")
        click.echo(f"{'category':12} tasks  reference  bugs")
        for name, row in rows.items():
            click.echo(f"{name:12} {row['tasks']:5}  {row['reference']:9.3f}  {row['bugs']:.3f}")
    sys.exit(0 if all(map(all, right.values())) else 1)


@click.command("verify-manifest")
@click.option("--file", "path", type=click.Path(path_type=Path), help="Another manifest.")
@click.option("--write", is_flag=True, help="Write it anew instead; needs --file.")
def verify_manifest(path: Path | None, write: bool) -> None:
    """Make every task of the manifest again and compare its hash."""
    from rlvr_bs4 import manifest
    from rlvr_core import DataError

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
@click.option(
    "--format",
    "format_",
    type=click.Choice(["hermes", "llama", "python"]),
    default="hermes",
    show_default=True,
    help="How calls are written in a conversation.",
)
def explain(archetype: str, seed: int, size: SizeName, file: TextIO, format_: str) -> None:
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
    for replies in spoken or ():
        played = replay(task, replies, {"format": format_})
        assert played.verdict is not None
        found = {"ended": played.ended, "score": played.verdict.score}
        found |= {"passed": played.verdict.passed, **played.verdict.parts}
        _show(found | {"detail": played.verdict.detail, "extracted": played.verdict.extracted})
        _show({name: int(count) for name, count in played.counts.items()})
    click.echo(f"gold:      {task.gold}")


def _show(found: dict[str, Any]) -> None:
    for name, value in found.items():
        click.echo(f"{name + ':':10} {value}")
