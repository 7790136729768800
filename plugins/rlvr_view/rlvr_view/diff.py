"""``rlvr diff``: in what two runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlvr_core.terminal.output import print_json, print_line

if TYPE_CHECKING:
    from rlvr_view.differences import RunDifferences


@click.command()
@click.argument("run")
@click.argument("other")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--runs-dir", default="runs", show_default=True, metavar="DIR", help="Where runs are."
)
def diff(run: str, other: str, as_json: bool, runs_dir: str) -> None:
    """Say in what RUN and OTHER differ, part by part.

    Parts are the configuration, code of packages, verifiers, data, prompts as rendered, model,
    tokenizer, versions of libraries, machine, threads and environment variables. Each run is
    'last', a name, the beginning of one, or a folder; folders that were copied from elsewhere will
    do.

    Example: rlvr diff gsm8k-20260101-120000 gsm8k-20260102-090000
    """
    from rlvr_core.record.view import RunView
    from rlvr_view.differences import compare_runs

    result = compare_runs(RunView.find(run, runs_dir), RunView.find(other, runs_dir))
    if as_json:
        print_json(result.data())
        return
    for line in report(result):
        print_line(line)


def report(result: RunDifferences) -> list[str]:
    """Return the differences as lines of text: a heading a part, and a line a difference."""
    from rlvr_core.record.text import printable
    from rlvr_view.differences import PARTS

    lines = [" and ".join(result.names)]
    for part in PARTS:
        words = [f"  {change.words}" for change in result.differences if change.part == part]
        if words:
            lines += ["", part, *words]
    lines += ["", f"the same: {', '.join(result.same) or 'nothing'}"]
    if result.unknown:
        reasons = ", ".join(f"{part} ({why})" for part, why in result.unknown.items())
        lines.append(f"not known: {reasons}")
    return [printable(line) for line in lines]
