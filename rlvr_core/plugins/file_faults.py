"""Explains errors of components named by a file or module, with what to write instead."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError

if TYPE_CHECKING:
    from rlvr_core.plugins import files


class FileFaults:
    """The errors of references by file or module; ``written`` is the parsed reference."""

    @staticmethod
    def unreadable(written: files.Written, error: OSError, where: str) -> ConfigError:
        """Return the error for a file that is not there or cannot be read."""
        file = written.file
        if not isinstance(error, FileNotFoundError):
            return ConfigError(
                f"'{written.path}' cannot be read: {error.strerror}",
                where=where,
                remedy="name a Python file that you may read",
            )
        near = difflib.get_close_matches(file.name, _beside(file.parent), n=3)
        there = f"did you mean: {', '.join(str(Path(written.path).parent / n) for n in near)}?"
        return ConfigError(
            f"there is no file '{written.path}'",
            where=where,
            remedy=[there] * bool(near) + [f"paths start at the working directory, {Path.cwd()}"],
        )

    @staticmethod
    def unnamed(written: files.Written, source: bytes, kind: str, where: str) -> ConfigError:
        """Return the error for a file of which no component is named."""
        return ConfigError(
            f"'{written.path}' is a file, and which {kind.replace('_', ' ')} in it is not said",
            where=where,
            remedy=f"write {written.path}:NAME, with one of: {', '.join(_defined(source))}",
        )

    @staticmethod
    def no_attribute(module: ModuleType, name: str, use: str, where: str) -> ConfigError:
        """Return the error for a name that a module does not have."""
        names = [key for key in vars(module) if not key.startswith("_")]
        near = difflib.get_close_matches(name, names, n=3)
        home = module.__name__
        defined = [key for key in names if getattr(vars(module)[key], "__module__", "") == home]
        return ConfigError(
            f"there is no '{name}' in {use.rpartition(':')[0]}",
            where=where,
            remedy=f"did you mean: {', '.join(near)}?"
            if near
            else f"it defines: {', '.join(defined) or 'nothing'}",
        )


def _beside(folder: Path) -> list[str]:
    try:
        return sorted(file.name for file in folder.glob("*.py"))
    except OSError:
        return []


def _defined(source: bytes) -> Iterable[str]:
    """Return the names of the functions and classes at the top level of a source."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    try:
        return [n.name for n in ast.parse(source).body if isinstance(n, kinds)] or ["(none)"]
    except (SyntaxError, ValueError):
        return ["(it has a syntax error)"]
