"""What a verdict depends on beside its verifier's own code: libraries, data files, variables.

These are found by reading the code, not by running it, so what is named in it by an expression is
not seen. They are recorded and compared, and refuse nothing: a file may be one that it writes.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rlvr_core.api.services import is_secret
from rlvr_core.builtin.provenance.code import CORE, location, package_hash
from rlvr_core.builtin.provenance.user_files import siblings, source_of

LARGEST = 64 * 2**20
"""Bytes of a file up to which it is hashed; of a larger one only the size is compared."""
_SHORT = 16
_NAME = 200
"""Characters that a file's name in the code may have."""
_CODE = (".py", ".pyc", ".log")


def surroundings(use: str, target: str) -> dict[str, str]:
    """Return what a verifier's verdicts depend on beside its own code.

    Args:
        use: How the user named the verifier.
        target: Where it is imported from (``module:name``).

    Returns:
        ``library NAME``: the version of each library that its code imports, or the SHA-256 of one
        that is no installed distribution; ``file NAME``: the SHA-256 of each file that it names and
        that lies beside it or in the working directory; ``variable NAME``: whether each environment
        variable that it reads is set, and the first digits of a hash of its value.
    """
    found: dict[str, str] = {}
    files, own = _sources(use, target)
    libraries: set[str] = set()
    for file in files:
        try:
            named = _named(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        libraries.update(named.modules)
        found.update(_files(named.texts, file))
        found.update(_variables(named.variables))
    beside = {file.stem for file in files} | {file.parent.name for file in files}
    for name in libraries - own - beside - set(sys.stdlib_module_names) - {CORE}:
        if (what := _library(name)) is not None:
            found[f"library {name}"] = what
    return dict(sorted(found.items()))


def _sources(use: str, target: str) -> tuple[list[Path], set[str]]:
    """Return the source files of a verifier, and the names of the packages that they belong to."""
    module = target.partition(":")[0]
    user = source_of(use, target)
    if user is not None:
        return [user[0], *siblings(user[0])], {module}
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return [], set()
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return [], set()
    file, top = Path(spec.origin), module.partition(".")[0]
    if not spec.parent:
        return [file, *siblings(file)], {top}
    folder = file.parent if top == CORE else location(top) or file.parent
    return sorted(folder.rglob("*.py")), {top}


class _Named(NamedTuple):
    """What code names: top-level modules that it imports, possible files, environment variables."""

    modules: frozenset[str]
    texts: tuple[str, ...]
    variables: tuple[str, ...]


@lru_cache(maxsize=1024)
def _named(content: bytes) -> _Named:
    """Read code; by its content, so that an edit within one process is seen.

    Each eval task and each run looks at the same packages; parsing them is most of the time.

    Raises:
        SyntaxError: If it is no code.
        ValueError: If it has null bytes.
    """
    nodes = list(ast.walk(ast.parse(content)))
    return _Named(
        frozenset(_imported(nodes)),
        tuple(dict.fromkeys(_texts(nodes))),
        tuple(dict.fromkeys(_read_variables(nodes))),
    )


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the top-level name of each module that is imported anywhere in the code."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _library(name: str) -> str | None:
    """Return the version of an imported library, or a hash of its files; None if it is not here."""
    for distribution in _distributions().get(name, ()):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    digest = package_hash(name)
    return None if digest is None else digest[:_SHORT]


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


def _files(texts: Iterable[str], file: Path) -> Iterator[tuple[str, str]]:
    """Yield each file that a text in the code names, and its hash."""
    for text in texts:
        for folder in dict.fromkeys((file.parent, Path.cwd())):
            path = folder / text
            try:
                if path.is_file() and path.suffix not in _CODE:
                    yield f"file {text}", _digest(path)
                    break
            except OSError:  # no name of a file
                break


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if "." in text[1:] and len(text) <= _NAME and text.isprintable():
                yield text


def _digest(path: Path) -> str:
    size = path.stat().st_size
    if size > LARGEST:
        return f"{size} bytes"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_SHORT]


def _variables(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each environment variable, and what is recorded of its value."""
    for name in names:
        value = os.environ.get(name)
        yield f"variable {name}", "not set" if value is None else _said(name, value)


def _read_variables(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each environment variable that the code reads by name."""
    for node in nodes:
        name: ast.expr | None = None
        if isinstance(node, ast.Subscript) and _is_environment(node.value):
            name = node.slice
        elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            called = node.func
            if called.attr == "getenv" or (
                called.attr in ("get", "pop", "setdefault") and _is_environment(called.value)
            ):
                name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def _is_environment(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


def _said(name: str, value: str) -> str:
    """Return what is recorded of a variable: of one that may hold a secret only that it is set."""
    if is_secret(name):
        return "set"
    return f"set ({hashlib.sha256(value.encode()).hexdigest()[:8]})"
