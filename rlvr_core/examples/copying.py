"""Copies an example's files: all of them, or none where one would be overwritten."""

from __future__ import annotations

from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.examples.catalog import Example, home


def copy_files(example: Example, folder: Path) -> tuple[list[Path], list[Path]]:
    """Copy an example, with every file at the place below ``folder`` that it has in ``examples``.

    Args:
        example: The example.
        folder: Where to; it is made.

    Returns:
        The files that were written, and those that were there already and are the same.

    Raises:
        ConfigError: If a file is there and differs, or the folder cannot be written; nothing has
            been written then.
    """
    contents = {folder / file.relative_to(home()): file.read_bytes() for file in example.files}
    written: list[Path] = []
    made: list[Path] = []
    try:
        kept = [file for file in contents if file.exists()]
        if other := [file for file in kept if file.read_bytes() != contents[file]]:
            raise ConfigError(
                "a file is there already, and is not the example's; nothing is copied",
                where=", ".join(map(str, other)),
                remedy=f"choose another folder: rlvr examples copy {example.name} FOLDER",
            )
        for file, content in contents.items():
            if file not in kept:
                made += _make_folder(file.parent)
                written.append(file)
                file.write_bytes(content)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        for one in reversed(made):
            one.rmdir()
        raise ConfigError(
            f"the example cannot be copied: {error.strerror or error}",
            where=str(error.filename or folder),
            remedy=f"choose another folder: rlvr examples copy {example.name} FOLDER",
        ) from None
    return written, kept


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder and those above it; returns the new ones, the outermost first."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]
