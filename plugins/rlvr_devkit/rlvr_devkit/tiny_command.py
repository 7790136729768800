"""``rlvr tiny-model``: make a tiny model that really learns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_core.tiny.tiny_warm import Progress, Size


@click.command("tiny-model")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--task",
    required=True,
    metavar="DATASET",
    help="Dataset that shows worked answers, e.g. math/arithmetic.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed."
)
@click.option(
    "--size",
    type=click.Choice(["0.2M", "0.8M", "10M"]),
    default="0.2M",
    show_default=True,
    help="Parameters, about.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    help="Warm-start steps of 32 demonstrations.",
)
@click.option("--force", is_flag=True, help="Replace a model that lies at OUT.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def tiny_model(
    out: Path, task: str, seed: int, size: str, steps: int, force: bool, as_json: bool
) -> None:
    """Make a tiny model in the folder OUT.

    It gets a fresh tokenizer and a short supervised warm start, so that it solves the task now
    and then: something for `rlvr run` to improve within a minute or two on a CPU.
    """
    from rlvr_core.plugins.host import load_host
    from rlvr_core.terminal.live import waiting
    from rlvr_core.tiny.tiny import demonstrator, make_tiny_model

    host = load_host()
    with waiting("the demonstrations"):
        source = demonstrator(host, task, where="--task")
    with _bar(steps) as progress:
        report = make_tiny_model(
            out,
            source,
            seed=seed,
            size=cast("Size", size),
            steps=steps,
            replace=force,
            progress=progress,
        )
    if as_json:
        output.print_json(asdict(report))
        return
    output.print_line(
        f"{report.path}: {report.parameters:,} parameters, {report.vocab_size} tokens, "
        f"loss {report.loss:.3f}, {report.seconds:.1f} s"
    )


@contextmanager
def _bar(steps: int) -> Iterator[Progress]:
    """A progress bar on stderr, which only a terminal shows."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("warm start"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("elapsed"),
        Elapsed(),
        TextColumn("left"),
        Remaining(),
    )
    shown = output.is_terminal(stderr=True)
    with Progress(*columns, console=output.console(stderr=True), disable=not shown) as bar:
        task = bar.add_task("warm start", total=steps, loss=float("nan"))
        yield lambda done, _, loss: bar.update(task, completed=done, loss=loss)
