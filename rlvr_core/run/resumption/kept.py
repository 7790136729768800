"""Keeps the records of steps aside whose checkpoints are all damaged, before the run starts again.

The steps are taken anew, and their records are cut; those of hours of training would be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlvr_core.record.files import write_failed
from rlvr_core.record.jsonl import segments

STREAMS = (
    "metrics",
    "traces/rollouts",
    "traces/conversations",
    "traces/samples",
    "evals/index",
)
"""Streams that a run which starts again begins anew."""

FOLDER = "before-restart"


def keep_records(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Move the records of a run's steps into ``before-restart-N`` of its folder.

    Args:
        folder: The run's folder.
        say: Called with where they are.

    Returns:
        The folder that they are in; None if there were none.

    Raises:
        RunError: If they cannot be moved; a repeated call moves what is left.
    """
    streams = [folder / f"{name}.jsonl" for name in STREAMS]
    files = [file for path in streams for file in (*_closed(path), path)]
    files += (folder / "evals").glob("*.jsonl")  # the rows that the index names
    files = [file for file in dict.fromkeys(files) if _has_lines(file)]
    if not files:
        return None
    number = 1
    while (aside := folder / f"{FOLDER}-{number}").exists():
        number += 1
    try:
        for file in files:
            target = aside / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
    except OSError as error:
        raise write_failed(error, aside) from error
    say(f"the records of the steps that are taken anew are kept in {aside}")
    return aside


def _closed(path: Path) -> list[Path]:
    # a kill during compression leaves both files, of which segments names the whole one
    packed = [segment.with_name(f"{segment.name}.gz") for segment in segments(path)]
    return [*segments(path), *(segment for segment in packed if segment.exists())]


def _has_lines(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
