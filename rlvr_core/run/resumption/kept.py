"""Keeps the records of steps aside whose checkpoints are all damaged, before the run starts again.

The steps are taken anew, and their records are cut; those of hours of training would be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlvr_core.record.files import write_failed

STREAMS = (
    "metrics*.jsonl",
    "traces/rollouts*.jsonl*",
    "traces/conversations*.jsonl*",
    "traces/samples*.jsonl*",
    "evals/*.jsonl",
)
"""Files of the streams that a run which starts again begins anew, with closed segments."""

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
    matching = [file for pattern in STREAMS for file in folder.glob(pattern)]
    files = [file for file in matching if file.is_file() and file.stat().st_size > 0]
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
    say(f"records of the steps that are taken again are kept in {aside}")
    return aside
