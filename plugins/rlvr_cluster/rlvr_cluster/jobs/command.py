"""``rlvr jobs``: lists, watches, stops and fetches jobs that run elsewhere."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlvr_core.api import Complaint, ConfigError, DataError, MachineError
from rlvr_core.toolkit import (
    ComponentRef,
    build,
    find_run,
    is_uri,
    load_config,
    load_host,
    lock_folder,
    print_json,
    print_line,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from rlvr_cluster.jobs.job_book import Job


@click.group()
def jobs() -> None:
    """List, watch, stop and fetch the jobs that `rlvr launch` has submitted elsewhere.

    JOB is a job's name or its beginning, the name of its run, or 'last'.
    """


@jobs.command("list")
@click.option("--states", is_flag=True, help="Ask for the state of each job.")
@click.option("--limit", type=click.IntRange(1), help="Show only the newest N.")
@click.option("--json", "as_json", is_flag=True, help="Print every recorded field, as JSON.")
def list_(states: bool, limit: int | None, as_json: bool) -> None:
    """List the jobs that were submitted from here, newest first."""
    from dataclasses import asdict

    from rlvr_cluster.jobs.job_book import JobBook, damaged_words

    book = JobBook()
    every, damaged = book.read()
    if damaged:
        print_line(damaged_words(damaged, book.path), stderr=True)
    shown = every[:limit]
    state = {job.job: {"state": _state(job)} for job in shown} if states else {}
    if as_json:
        print_json([asdict(job) | state.get(job.job, {}) for job in shown])
        return
    if not shown:
        print_line("no job was submitted from here yet")
        return
    rows = [
        [job.job, job.name, *state.get(job.job, {}).values(), job.launcher, _time(job), job.config]
        for job in shown
    ]
    more = ["state"] if states else []
    print_table(["job", "run", *more, "launcher", "submitted", "config"], rows)


@jobs.command()
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(job: str, as_json: bool) -> None:
    """Print the state of JOB."""
    entry, launcher = _of(job)
    now = launcher.status(entry.job)
    if as_json:
        print_json({"job": entry.job, "state": now.state, "detail": now.detail})
    else:
        print_line(f"{entry.job}: {now.state}" + (f" ({now.detail})" if now.detail else ""))


@jobs.command()
@click.argument("job")
def logs(job: str) -> None:
    """Print the output of JOB so far."""
    entry, launcher = _of(job)
    for line in launcher.logs(entry.job):
        print_line(printable(line))


@jobs.command()
@click.argument("job")
def stop(job: str) -> None:
    """Ask JOB to stop; it finishes its step and writes a checkpoint first."""
    entry, launcher = _of(job)
    launcher.stop(entry.job)
    print_line(f"{entry.job} was asked to stop; see: rlvr jobs status {entry.job}")


@jobs.command()
@click.argument("job")
@click.option("--to", type=click.Path(path_type=Path), default=Path("runs"), show_default=True)
@click.option(
    "--checkpoints",
    type=click.Choice(["none", "last", "all"]),
    default="last",
    show_default=True,
    help="Which to fetch; 'last' is the newest and the best.",
)
def fetch(job: str, to: Path, checkpoints: Any) -> None:
    """Fetch the runs of JOB, during or after it; files that are here already are skipped.

    JOB may also be the URI of run folders: s3://bucket/runs.
    """
    from rlvr_cluster.jobs.job_book import JobBook
    from rlvr_cluster.stores.fetch import Fetch, runs_in

    uri = job if is_uri(job) else JobBook().find(job).runs
    if not is_uri(uri):
        raise ConfigError(
            f"the runs of this job lie on machines that share their files: {uri}",
            remedy=f"look at them there: rlvr show RUN --runs-dir {uri}",
        )
    host = load_host()
    names = runs_in(host.ask_store(uri))
    if not names:
        raise ConfigError(f"the job has written nothing to {uri} yet")
    faults: list[Complaint] = []
    for name in names:
        place = f"{uri.rstrip('/')}/{name}"
        try:
            transfer = Fetch(host.ask_store(place), to / name, checkpoints, place=place)
        except DataError as error:  # the other runs are fetched nevertheless
            faults += error.complaints
            continue
        if transfer.changed_here:
            print_line(f"{name}: gone on here; the store has nothing newer", stderr=True)
        if transfer.files:
            size = f"{transfer.files} files, {transfer.size:,} bytes"
            print_line(f"{name}: {size}", stderr=True)
        transfer.run()
        print_line(str(to / name))
    if faults:
        raise DataError.collect(faults)


@jobs.command()
@click.argument("run")
@click.argument("uri", required=False)
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
@click.option("--take-over", is_flag=True, help="Take over the place in the store from its owner.")
def push(run: str, uri: str | None, runs_dir: str, *, take_over: bool) -> None:
    """Copy a run's folder to URI, or to the run.mirror of its config.

    Use it for a run whose store could not be reached at its end, or that was never mirrored. A run
    that was downloaded, or whose place in the store belongs to another process, needs --take-over,
    and must have all that the store has.
    """
    import os
    import uuid

    from rlvr_cluster.stores.mirror import Mirror

    folder = find_run(run, runs_dir)
    if not take_over:
        _not_fetched(folder.path)
    config = load_config(folder.resolved).config
    uri = uri or config.run.mirror
    if uri is None:
        raise ConfigError("where to?", remedy="name a URI: rlvr jobs push RUN s3://bucket/runs")
    there = f"{uri.rstrip('/')}/{folder.name}"
    store, keep = load_host().ask_store(there), config.checkpoint.keep
    lock = lock_folder(folder.path, "the run is at work, and copies by itself; wait for its end")
    try:
        request = uuid.uuid4().hex if take_over else None
        Mirror(store, folder.path, keep=keep, place=there, request=request).once()
    finally:
        os.close(lock)
    print_line(there)


def _not_fetched(folder: Path) -> None:
    """Refuse a downloaded run: it may lack files, and a push deletes in the store what it lacks."""
    from rlvr_cluster.stores.known import Known

    known = Known(folder)
    if not known.fetched or known.changed_here("run.json", folder / "run.json"):
        return  # a run of this machine, or one that has gone on here
    raise ConfigError(
        "it was downloaded: it may lack what the store has, which would then be deleted there",
        where=str(folder),
        remedy="to copy a run from one place to another, use the tools of the stores",
    )


def _state(job: Job) -> str:
    """Return the state of a job; ``unknown`` if its launcher cannot be reached."""
    try:
        return str(_launcher(job).status(job.job).state)
    except MachineError as error:
        print_line(f"{job.job}: {error.complaints[0].what}", stderr=True)
        return "unknown"


def _of(text: str) -> tuple[Job, Any]:
    from rlvr_cluster.jobs.job_book import JobBook

    job = JobBook().find(text)
    return job, _launcher(job)


def _launcher(job: Job) -> Any:
    ref = ComponentRef.model_validate({"use": job.launcher, "with": dict(job.options)})
    return build(load_host(), "launcher", ref, f"job {job.job}")


def _time(job: Job) -> str:
    return datetime.fromtimestamp(job.submitted).strftime("%Y-%m-%d %H:%M:%S")
