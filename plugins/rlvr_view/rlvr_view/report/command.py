"""``rlvr report``: one HTML page of a run, or of several beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rlvr_core.toolkit import RunView, print_line, write_atomic


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The page; a file of that name is replaced.",
)
@click.option(
    "--runs-dir", default="runs", show_default=True, metavar="DIR", help="Where runs are."
)
def report(runs: tuple[str, ...], out: Path, runs_dir: str) -> None:
    """Write one HTML page about runs; it needs no network and no other file.

    RUN is 'last', a run's name, the beginning of one, or its folder, finished or not. Several runs
    share the plots; the page compares their configurations and code with the first one's, and
    tests their evaluations problem by problem.

    Example: rlvr report last --out report.html
    """
    from rlvr_view.report.page import page
    from rlvr_view.report.records import Records, labels

    _check_place(out)
    views = _find(runs, runs_dir)
    records = [Records(*pair) for pair in zip(views, labels(views), strict=True)]
    write_atomic(out, page(records))
    print_line(f"wrote {out}")


def _check_place(out: Path) -> None:
    """Refuse an output path that cannot be written, before any run is read.

    Raises:
        ConfigError: If it is a folder, or in a missing folder.
    """
    from rlvr_core.api import ConfigError

    if out.is_dir():
        raise ConfigError(
            f"'{out}' is a folder", where="--out", remedy=f"name a file: {out / 'report.html'}"
        )
    if not out.parent.is_dir():
        raise ConfigError(
            f"there is no folder '{out.parent}'", where="--out", remedy=f"mkdir -p '{out.parent}'"
        )


def _find(runs: Sequence[str], runs_dir: str) -> list[RunView]:
    """Find the runs that the user names.

    Raises:
        ConfigError: If one does not exist, or is named twice.
    """
    from rlvr_core.api import ConfigError

    views = [RunView.find(run, runs_dir) for run in runs]
    paths = [view.path.resolve() for view in views]
    for place, path in enumerate(paths):
        if path in paths[:place]:
            raise ConfigError(
                f"'{runs[place]}' and '{runs[paths.index(path)]}' are one run",
                where=str(path),
                remedy="name each run once",
            )
    return views
