"""``rlvr compare``: two evaluations, problem by problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlvr_core.terminal import output
from rlvr_lab.comparable import MAY_DIFFER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlvr_lab.compare import Comparison

SHOWN = 10
"""Ids that are printed of a longer list."""


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="List every problem that changed.")
@click.option(
    "--allow",
    type=click.Choice(MAY_DIFFER),
    multiple=True,
    help="Compare although this part of the specifications differs. Repeat.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def compare(
    before: Path, after: Path, everything: bool, allow: tuple[str, ...], as_json: bool
) -> None:
    """Compare the result folders BEFORE and AFTER problem by problem.

    Differences of accuracies and scores have paired intervals, accuracies an exact p-value too,
    also adjusted for the number of tasks (Holm). Refuses evaluations whose frozen specifications
    differ, and says in what, and those of which too many answers were cut off.

    Example: rlvr compare evals/base evals/my-run-step000100
    """
    from rlvr_lab.compare import compare as compare_folders

    found = compare_folders(before, after, allow)
    if as_json:
        output.print_json({"tasks": [one.data() for one in found]})
        return
    for one in found:
        _print(one, None if everything else SHOWN, tasks=len(found))


def _print(one: Comparison, limit: int | None, *, tasks: int) -> None:
    from rlvr_core.eval.command import cells

    output.print_line(f"{one.task}: {one.n} problems with an outcome in both")
    if one.left_out:
        output.print_line(f"left out, without an outcome in one of them: {one.left_out}")
    rows = [
        (name, *cells(numbers.data()))
        for name, numbers in (
            ("before", one.before),
            ("after", one.after),
            ("difference", one.difference),
            ("difference of scores", one.score_difference),
        )
    ]
    output.print_table(("accuracy", "value", "95% interval", "n", "by"), rows)
    if one.p is not None:
        adjusted = f", {one.p_holm:.4g} for {tasks} tasks (Holm)" if tasks > 1 else ""
        output.print_line(f"exact paired test (sign flips): p = {one.p:.4g}{adjusted}")
    output.print_line(f"gained {len(one.gained)}: {_ids(one.gained, limit)}")
    output.print_line(f"lost {len(one.lost)}: {_ids(one.lost, limit)}")
    if any(one.truncated):
        shares = " and ".join(f"{share:.1%}" for share in one.truncated)
        output.print_line(f"cut off at the token cap, before and after: {shares}")
    for line in one.beside:
        output.print_line(f"warning: differs beside the specification: {line}")


def _ids(ids: Sequence[str], limit: int | None) -> str:
    shown = list(ids[:limit])
    more = f" and {len(ids) - len(shown)} more (--all)" if len(shown) < len(ids) else ""
    return (", ".join(shown) or "none") + more
