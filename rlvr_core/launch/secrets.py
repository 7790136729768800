"""Finds what must not leave this machine with a job: secrets in its config and its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlvr_core.errors import Complaint
from rlvr_core.record.text import Redactor

_NAMES = re.compile(
    r"^(?:\.env(?:\..*)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|credentials(?:\.json)?|id_(?:rsa|dsa|"
    r"ecdsa|ed25519)|.*\.(?:pem|key|p12|pfx|jks|kdbx|ppk))$",
    re.IGNORECASE,
)
_LARGEST = 4_000_000
_REMEDY = (
    "take it out; in a config write ${env:NAME}, and give the job the secret by its own means",
)


def secrets_in(path: Path, shown: str) -> Iterator[Complaint]:
    """What looks like a secret in a file, a complaint each; large and binary files are not read.

    Args:
        path: The file.
        shown: What to call it.
    """
    if _NAMES.match(path.name):
        yield Complaint("a file of this name holds secrets", shown, ("leave it out",))
        return
    if path.stat().st_size > _LARGEST:
        return
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        return
    hide = Redactor()
    plain = path.suffix in (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", "")
    clean = hide.text if plain else hide.patch  # in source code a "token" is seldom a secret
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        if clean(line) != line:
            found = True
            yield Complaint("this line looks like a secret", f"{shown}:{number}", _REMEDY)
    if not found and clean(text) != text:
        yield Complaint("it holds a private key or the like", shown, _REMEDY)


def secrets_in_words(words: Sequence[str]) -> Iterator[Complaint]:
    """What looks like a secret in a command line."""
    for word, clean in zip(words, Redactor().command(list(words)), strict=True):
        if word != clean:
            yield Complaint("this looks like a secret", clean, _REMEDY)
