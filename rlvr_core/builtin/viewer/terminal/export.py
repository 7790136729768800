"""Writes what was chosen to a file of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from rlvr_core.api import ConfigError, RunError
from rlvr_core.api.services import RunFolder
from rlvr_core.builtin.viewer.choice import Choice
from rlvr_core.builtin.viewer.reader import Reader


def default_name(folder: RunFolder, kind: str) -> str:
    """Return the name that the web viewer gives such a file."""
    return f"{folder.name}-{'answers' if kind == 'sft' else 'rollouts'}.jsonl"


def export(reader: Reader, folder: RunFolder, choice: Choice, kind: str, name: str) -> str:
    """Write the file, whole or not at all; say what it has.

    Raises:
        ConfigError: If the file is there already.
        RunError: If the rollouts are still being read, or it cannot be written.
    """
    path = Path(name).expanduser()
    if path.exists():
        raise ConfigError(f"'{name}' is there already", remedy="give another name")
    lines = reader.exported(folder, choice, kind)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    count = 0
    try:
        with unfinished.open("xb") as file:
            for line in lines:
                file.write(line)
                count += 1
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"'{name}' cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return f"{count:,} lines written to {path.resolve()}"
