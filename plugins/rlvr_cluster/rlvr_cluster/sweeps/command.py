"""``rlvr sweep``: runs one configuration with different values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlvr_core.toolkit import print_json, print_line

if TYPE_CHECKING:
    from rlvr_cluster.sweeps.spec import Sweep
    from rlvr_cluster.sweeps.state import Result


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="SWEEP")
@click.option(
    "--parallel", type=click.IntRange(1), default=1, show_default=True, help="Runs at once."
)
@click.option("--trial", type=click.IntRange(0), metavar="NUMBER", help="Only this trial, from 0.")
@click.option("--collect", is_flag=True, help="Run nothing: print table, write report.")
@click.option("--dry-run", is_flag=True, help="Print the trials and their progress, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as a JSON object.")
def sweep(
    file: Path, parallel: int, trial: int | None, collect: bool, dry_run: bool, as_json: bool
) -> int:
    """Run the trials that SWEEP (a YAML file) describes, and compare them.

    Every trial is checked before the first begins. The same command given again continues:
    finished runs are not repeated, and the others resume. At the end it prints one table,
    best trial first, and writes a report of all runs.

    Example: rlvr sweep examples/sweep.yaml --parallel 2
    """
    from rlvr_cluster.sweeps.sweep import CheckedSweep

    if collect and dry_run:
        raise click.UsageError("--collect and --dry-run both run nothing: leave one of them out")
    checked = CheckedSweep.read(file, trial)
    if dry_run:
        _show(checked.sweep, checked.results(), None, as_json)
        return 0
    if not collect:
        checked.run(parallel, _say)
    results = checked.best_first()
    report = checked.report(_say) if trial is None else None
    _show(checked.sweep, results, report, as_json)
    if report is not None and not as_json:
        print_line(f"report: {report}")
    return 0 if all(result.status == "finished" for result in results) else 1


def _show(sweep: Sweep, results: list[Result], report: str | None, as_json: bool) -> None:
    from rlvr_cluster.sweeps.table import as_json as table
    from rlvr_cluster.sweeps.table import print_results

    if as_json:
        print_json(table(sweep, results, report))
    else:
        print_results(sweep, results)


def _say(text: str) -> None:
    print_line(text, stderr=True)
