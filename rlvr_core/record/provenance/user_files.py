"""Source code of components that the user named by file or module, and of files beside it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rlvr_core.plugins import files
from rlvr_core.plugins.discovery import FILE_PREFIX


def siblings(file: Path) -> list[Path]:
    """List the other files beside ``file`` that it imports, directly or indirectly."""
    imported: dict[Path, None] = {}
    open_ = [file]
    while open_:
        current = open_.pop()
        try:
            source = current.read_bytes()
            beside = [path for _, path in files.imported_beside(source, file)]
        except (OSError, SyntaxError, ValueError):
            continue
        for path in beside:
            inside = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
            fresh = [p for p in inside if p not in imported and p != file]
            imported.update(dict.fromkeys(fresh))
            open_ += fresh
    return sorted(imported)


def source_of(use: str, target: str) -> tuple[Path, bytes] | None:
    """Return the file of a component named by file or module, with its content when imported.

    Args:
        use: How the user named it.
        target: Where it is imported from.

    Returns:
        Path and content, or None if it has no source.
    """
    path, module = files.of_module(use), target.partition(":")[0]
    if path is None:
        return None
    spec = importlib.util.find_spec(module) if module.startswith(FILE_PREFIX) else None
    if spec is not None and isinstance(spec.loader, files.SnapshotLoader):
        return path, spec.loader.snapshot.read_bytes()
    try:
        return path, path.read_bytes()
    except OSError:
        return None
