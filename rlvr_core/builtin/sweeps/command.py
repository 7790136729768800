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
    "--backend",
    type=click.Choice(["local", "ray", "slurm"]),
    default="local",
    show_default=True,
    help="Where runs are carried out.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1),
    metavar="N",
    help="Runs at once: local and, of each trial, slurm 1; ray as many as there is room for.",
)
@click.option("--address", metavar="HOST:PORT", help="ray: the cluster's head.")
@click.option("--cpus", type=click.FloatRange(0), help="ray: CPUs of each run.  [default: 1]")
@click.option("--gpus", type=click.FloatRange(0), help="ray: GPUs of each run.  [default: 0]")
@click.option(
    "--sbatch",
    multiple=True,
    metavar="OPTION",
    help="slurm: an option of sbatch, as in --sbatch --time=04:00:00; may be repeated.",
)
@click.option("--trial", type=click.IntRange(0), metavar="NUMBER", help="Only this trial, from 0.")
@click.option("--collect", is_flag=True, help="Run nothing: table and report of what there is.")
@click.option("--dry-run", is_flag=True, help="Print the trials and how far they are, and stop.")
@click.option("--slurm", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print the table as a JSON object.")
def sweep(
    file: Path,
    backend: str,
    parallel: int | None,
    address: str | None,
    cpus: float | None,
    gpus: float | None,
    sbatch: tuple[str, ...],
    trial: int | None,
    collect: bool,
    dry_run: bool,
    slurm: bool,
    as_json: bool,
) -> int:
    """Run the trials that SWEEP (a YAML file) describes, and compare them.

    Every trial is checked before the first begins. Given again, the same command goes on: runs
    that have finished are not repeated, and the others resume. At the end it prints one table,
    best trial first, and writes a report of all runs.

    Example: rlvr sweep examples/sweep.yaml --parallel 2
    """
    from rlvr_core.builtin.sweeps.slurm import check_options
    from rlvr_core.builtin.sweeps.sweep import Carried

    if slurm:
        raise click.UsageError("--slurm is now --backend slurm --dry-run")
    if backend != "ray" and not (address is None and cpus is None and gpus is None):
        raise click.UsageError("--address, --cpus and --gpus are for --backend ray")
    if backend != "slurm" and sbatch:
        raise click.UsageError("--sbatch is for --backend slurm")
    if backend == "slurm" and (trial is not None or collect):
        raise click.UsageError("--backend slurm goes with neither --trial nor --collect")
    if collect and dry_run:
        raise click.UsageError("--collect and --dry-run both run nothing: leave one of them out")
    check_options(sbatch)
    carried = Carried.read(file, trial)
    if backend == "slurm":
        return _to_slurm(carried, parallel or 1, sbatch, dry_run, as_json)
    if dry_run:
        _show(carried.sweep, carried.results(), None, as_json)
        if not as_json and carried.unknown:
            print_line(f"{carried.unknown} more trials, chosen by the results of those before")
        if queue := carried.queue():
            print_line(queue, stderr=as_json)
        return 0
    if not collect:
        _carry_out(carried, backend, parallel, address, {"CPU": cpus, "GPU": gpus})
    return _conclude(carried, as_json, whole=trial is None)


def _carry_out(
    carried: Carried,
    backend: str,
    parallel: int | None,
    address: str | None,
    resources: dict[str, float | None],
) -> None:
    from rlvr_core.builtin.sweeps.processes import Here

    if backend == "local":
        return carried.run(Here(parallel or 1), _say)
    from rlvr_core.builtin.sweeps.ray import on_cluster

    requested = {name: count for name, count in resources.items() if count is not None}
    with on_cluster(carried.host, address, {"CPU": 1.0} | requested, parallel) as cluster:
        carried.run(cluster, _say)
    return None


def _to_slurm(
    carried: Carried, parallel: int, options: tuple[str, ...], dry_run: bool, as_json: bool
) -> int:
    """Submit the sweep, or print the array's script; returns the exit code."""
    from rlvr_core.api.services import output

    if dry_run:
        array, _ = carried.scripts(parallel)
        print_line(f"{array}# when all have ended: rlvr sweep {carried.sweep.path} --collect")
        return 0
    jobs = carried.submit(parallel, options)
    if as_json:
        output.print_json({"array": jobs.array, "table": jobs.table})
        return 0
    print_line(f"slurm has the trials as job {jobs.array}, and their table as job {jobs.table}")
    print_line(f"table: {carried.sweep.folder / 'table.txt'}")
    print_line(f"how far they are: rlvr sweep {carried.sweep.path} --dry-run")
    return 0


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
