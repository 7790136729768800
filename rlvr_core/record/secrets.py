"""Secrets in what leaves this machine: files and command lines of jobs, exports to the Hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.dialect import read
from rlvr_core.record.formats import SERVICE_KEY
from rlvr_core.record.text import Redactor

_NAMES = re.compile(
    r"^(?:\.env(?:\..*)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.git-credentials|"
    r"credentials(?:\.json)?|id_(?:rsa|dsa|ecdsa|ed25519)|.*\.(?:pem|key|p12|pfx|jks|kdbx|ppk))$",
    re.IGNORECASE,
)
_PLAIN = {"", ".cfg", ".conf", ".ini", ".json", ".properties", ".toml", ".yaml", ".yml"}
"""Suffixes of key-value files; elsewhere a "token" is mostly a variable: only literals count."""
_PIECE, _OVERLAP = 1 << 20, 1 << 14
_REMEDY = (
    "take it out; in a config write ${env:NAME}, and give the job the secret by its own means",
    "where it is none, as in data about passwords: --allow-secret FILE:LINE",
)


def secrets_in(path: Path, shown: str, allowed: Sequence[str] = ()) -> Iterator[Complaint]:
    """Yield a complaint for each line with an apparent secret; archives are not opened.

    Args:
        path: The file.
        shown: Name of the file in messages.
        allowed: Lines that the user has looked at, as ``FILE:LINE``; ``FILE`` alone allows its
            name.

    Raises:
        ConfigError: If it cannot be read.
    """
    passed = {_line_of(text) for text in allowed}
    named = any(_NAMES.match(name) for name in (path.name, path.resolve().name))
    if named and (path.resolve(), 0) not in passed:
        yield Complaint("a file of this name holds secrets", shown, ("leave it out",))
        return
    lines: dict[int, str] = {}
    try:
        for piece, first in _pieces(path):
            for at, key in _suspects(piece, code=path.suffix not in _PLAIN):
                line = first + piece.count("\n", 0, at)
                lines[line] = lines.get(line) or key
        if path.suffix in (".yaml", ".yml"):
            lines = _in_tree(path) | lines
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", where=shown) from error
    for line, key in sorted(lines.items()):
        if (path.resolve(), line) not in passed:
            what = f"the value of '{key}'" if key else "something in this line"
            yield Complaint(f"{what} looks like a secret", f"{shown}:{line}", _REMEDY)


def secrets_in_words(words: Sequence[str]) -> Iterator[Complaint]:
    """Yield complaints about apparent secrets in a command line, without quoting them."""
    for word, clean in zip(words, Redactor().command(list(words)), strict=True):
        if word != clean:
            yield Complaint("this looks like a secret", clean, _REMEDY)


def _line_of(text: str) -> tuple[Path, int]:
    """Return file and line of ``FILE:LINE``; line 0 for a file alone."""
    name, _, line = text.rpartition(":")
    if name and line.isdecimal():
        return Path(name).expanduser().resolve(), int(line)
    return Path(text).expanduser().resolve(), 0


def _pieces(path: Path) -> Iterator[tuple[str, int]]:
    """Yield a file in overlapping pieces, each with the number of its first line."""
    with path.open("rb") as file:
        before, line = b"", 1
        while data := file.read(_PIECE):
            piece = before + data
            yield piece.decode("latin-1" if b"\0" in piece else "utf-8", errors="replace"), line
            before = piece[-_OVERLAP:]
            line += piece.count(b"\n", 0, len(piece) - len(before))


def _suspects(text: str, *, code: bool) -> Iterator[tuple[int, str]]:
    """Yield where a text has an apparent secret, and the name beside it ("" without one)."""
    if "\0" in text:  # no text: only what is known by its beginning
        return ((match.start(), "") for match in SERVICE_KEY.finditer(text))
    return Redactor().places(text, code=code)


def _in_tree(path: Path) -> dict[int, str]:
    """Return the lines of a YAML file with values under secret keys, in any notation."""
    try:
        root = read(path.read_text(encoding="utf-8-sig"), "")
    except (ConfigError, UnicodeDecodeError):
        return {}
    lines = {}
    for loc, node in root.walk() if root is not None else ():
        key = next((step for step in reversed(loc) if isinstance(step, str)), "")
        if isinstance(node.value, str) and Redactor().tree(node.value, key) != node.value:
            lines[node.mark.line] = key
    return lines
