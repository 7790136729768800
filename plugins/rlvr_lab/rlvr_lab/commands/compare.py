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

    comparisons = compare_folders(before, after, allow)
    if as_json:
        output.print_json({"tasks": [comparison.data() for comparison in comparisons]})
        return
    for comparison in comparisons:
        _print(comparison, None if everything else SHOWN, tasks=len(comparisons))


def _print(comparison: Comparison, limit: int | None, *, tasks: int) -> None:
    from rlvr_core.eval.command import cells

    output.print_line(f"{comparison.task}: {comparison.n} problems with an outcome in both")
    if comparison.left_out:
        output.print_line(f"left out, without an outcome in one of them: {comparison.left_out}")
    rows = [
        (name, *cells(numbers.data()))
        for name, numbers in (
            ("before", comparison.before),
            ("after", comparison.after),
            ("difference", comparison.difference),
            ("difference of scores", comparison.score_difference),
        )
    ]
    output.print_table(("accuracy", "value", "95% interval", "n", "by"), rows)
    if comparison.p is not None:
        adjusted = f", {comparison.p_holm:.4g} for {tasks} tasks (Holm)" if tasks > 1 else ""
        output.print_line(f"exact paired test (sign flips): p = {comparison.p:.4g}{adjusted}")
    output.print_line(f"gained {len(comparison.gained)}: {_ids(comparison.gained, limit)}")
    output.print_line(f"lost {len(comparison.lost)}: {_ids(comparison.lost, limit)}")
    if any(comparison.truncated):
        shares = " and ".join(f"{share:.1%}" for share in comparison.truncated)
        output.print_line(f"cut off at the token cap, before and after: {shares}")
    for line in comparison.beside:
        output.print_line(f"warning: differs beside the specification: {line}")


def _ids(ids: Sequence[str], limit: int | None) -> str:
    shown = list(ids[:limit])
    more = f" and {len(ids) - len(shown)} more (--all)" if len(shown) < len(ids) else ""
    return (", ".join(shown) or "none") + more
