"""``rlvr models check``: checks a model's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlvr_core.toolkit import print_json, print_line, printable

if TYPE_CHECKING:
    from rlvr_doctor.modelcheck.examination import Examined


@click.group()
def models() -> None:
    """Check models before they are trained."""


@models.command()
@click.argument("model")
@click.option("--revision", help="Revision of a hub id.")
@click.option("--step", type=click.IntRange(0), help="Which checkpoint of a run [newest].")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
@click.option("--no-values", is_flag=True, help="Do not read the weights, only their headers.")
@click.option("--trust-remote-code", is_flag=True, help="Let code that comes with it run.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def check(
    model: str,
    revision: str | None,
    step: int | None,
    runs_dir: str,
    no_values: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Check the files of MODEL.

    MODEL is a folder, a hub id, tiny:TASK, a run or a checkpoint. Nothing is fetched from the hub:
    of an id, what is in its cache is checked. The exit code is 1 if something is broken.

    Example: rlvr models check Qwen/Qwen3-1.7B-Base
    """
    from rlvr_doctor.modelcheck.examination import check as examine

    examined = examine(
        model,
        revision=revision,
        step=step,
        runs_dir=runs_dir,
        trust_remote_code=trust_remote_code,
        values=not no_values,
    )
    if as_json:
        print_json(examined.as_json())
    else:
        _print(examined)
    raise click.exceptions.Exit(1 if examined.report.verdict == "broken" else 0)


def _print(examined: Examined) -> None:

    print_line(printable(f"{examined.name}: {examined.folder or 'not on this machine'}"))
    for label, value in examined.identity_lines:
        print_line(printable(f"{label}: {value}"))
    examined.report.print()
