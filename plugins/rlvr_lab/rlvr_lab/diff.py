"""``rlvr diff``: in what two runs differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlvr_core.terminal.output import print_json, print_line

if TYPE_CHECKING:
    from rlvr_core.record.provenance.runs import RunDifferences


@click.command()
@click.argument("run")
@click.argument("other")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--runs-dir", default="runs", show_default=True, metavar="DIR", help="Where runs are."
)
def diff(run: str, other: str, as_json: bool, runs_dir: str) -> None:
    """Say in what RUN and OTHER differ, part by part.

    Parts are the configuration, code (by package and file), verifiers, data, prompts as rendered,
    model, tokenizer, versions of libraries, machine, threads and environment
    variables. Each run is 'last', a name, the beginning of one, or a folder; folders that were
    copied from elsewhere will do.

    Example: rlvr diff gsm8k-20260101-120000 gsm8k-20260102-090000
    """
    from rlvr_core.record.provenance.runs import compare_runs
    from rlvr_core.record.view import RunView

    found = compare_runs(RunView.find(run, runs_dir), RunView.find(other, runs_dir))
    if as_json:
        print_json(found.data())
        return
    for line in report(found):
        print_line(line)


def report(found: RunDifferences) -> list[str]:
    """Return the differences as lines of text: a heading a part, and a line a difference."""
    from rlvr_core.record.text import printable

    lines = [f"{found.names[0]} and {found.names[1]}"]
    for part in found.parts:
        of_part = [one for one in found.differences if one.part == part]
        if of_part:
            lines += ["", part, *(f"  {one.words}" for one in of_part)]
    same = ", ".join(found.same)
    lines += ["", f"the same: {same or 'nothing'}"]
    if found.unknown:
        lines.append(
            f"not known: {', '.join(f'{part} ({why})' for part, why in found.unknown.items())}"
        )
    return [printable(line) for line in lines]
