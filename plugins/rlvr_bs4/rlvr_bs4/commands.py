"""``rlvr bs4 preview | verify-manifest | explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from rlvr_core.api import DataError

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
def explain(archetype: str, seed: int, size: SizeName, file: TextIO) -> None:
    """Say how a response to a task is graded, and why."""
    from dataclasses import asdict

    from rlvr_bs4.generate import generate
    from rlvr_bs4.grade import grade

    task = generate(archetype, seed, size)
    click.echo(f"question:  {task.question}")
    for name, value in asdict(grade(task, file.read())).items():
        click.echo(f"{name + ':':10} {value}")
    click.echo(f"gold:      {task.gold}")
