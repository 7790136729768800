"""``rlvr sweep``: many runs of one configuration with other values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlvr_core.api.services import print_line

if TYPE_CHECKING:
    from rlvr_core.builtin.sweeps.spec import Sweep
    from rlvr_core.builtin.sweeps.state import Result
    from rlvr_core.builtin.sweeps.sweep import Carried


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="SWEEP")
@click.option(
    "--parallel",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Runs at once; GPUs are shared out among them.",
)
@click.option("--trial", type=click.IntRange(0), metavar="NUMBER", help="Only this trial, from 0.")
@click.option("--dry-run", is_flag=True, help="Print the trials and how far they are, and stop.")
@click.option("--slurm", is_flag=True, help="Print a script for sbatch, a task for each trial.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as a JSON object.")
def sweep(
    file: Path, parallel: int, trial: int | None, dry_run: bool, slurm: bool, as_json: bool
) -> int:
    """Run the trials that SWEEP (a YAML file) describes, and compare them.

    Every trial is checked before the first begins. Given again, the same command goes on: runs
    that have finished are not repeated, and the others resume. At the end it prints one table,
    best trial first, and writes a report of all runs.

    Example: rlvr sweep examples/sweep.yaml --parallel 2
    """
    from rlvr_core.builtin.sweeps.sweep import Carried

    if slurm and (dry_run or as_json):
        raise click.UsageError("--slurm prints a script, and goes with neither of the others")
    carried = Carried.read(file, trial)
    if slurm:
        print_line(carried.script().rstrip("\n"))
        return 0
    if dry_run:
        _show(carried.sweep, carried.results(), None, as_json)
        if not as_json and carried.unknown:
            print_line(f"{carried.unknown} more trials, chosen by the results of those before")
        return 0
    carried.run(parallel, _say)
    return _conclude(carried, as_json, whole=trial is None)


def _conclude(carried: Carried, as_json: bool, *, whole: bool) -> int:
    """Print the table, and write the report; returns the exit code."""
    results = carried.best_first()
    report = carried.report(_say) if whole else None
    _show(carried.sweep, results, report, as_json)
    for line in carried.refused:
        print_line(line, stderr=as_json)
    if report is not None and not as_json:
        print_line(f"report: {report}")
    finished = all(result.status == "finished" for result in results)
    return 0 if finished and not carried.refused else 1


def _show(sweep: Sweep, results: list[Result], report: str | None, as_json: bool) -> None:
    from rlvr_core.api.services import output
    from rlvr_core.builtin.sweeps.table import as_json as table
    from rlvr_core.builtin.sweeps.table import print_results

    if as_json:
        output.print_json(table(sweep, results, report))
    else:
        print_results(sweep, results)


def _say(text: str) -> None:
    print_line(text, stderr=True)
