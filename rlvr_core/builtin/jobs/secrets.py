"""Detects secrets in the config and files of a job before they leave this machine.

Files of any size are read in pieces. What looks like a secret is said by ``secret_rules.py``, and
by what is taken out of records (``Redactor``), whose search is limited to the surroundings of
keywords without which there is no secret.
"""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.api.services import Redactor, read
from rlvr_core.builtin.jobs.secret_excuses import stands_for_another
from rlvr_core.builtin.jobs.secret_formats import FORMATS
from rlvr_core.builtin.jobs.secret_rules import secret_lines
from rlvr_core.builtin.jobs.secret_services import service_keys

_NAMES = re.compile(
    r"^(?:\.env(?:\..*)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.git-credentials|"
    r"credentials(?:\.json)?|id_(?:rsa|dsa|ecdsa|ed25519)|.*\.(?:pem|key|p12|pfx|jks|kdbx|ppk))$",
    re.IGNORECASE,
)
_PLAIN = {"", ".cfg", ".conf", ".ini", ".json", ".properties", ".toml", ".yaml", ".yml"}
"""Suffixes of key-value files; elsewhere a "token" is mostly a variable: only literals count."""
_PIECE = 1 << 20
_OVERLAP = 1 << 14
_YAML = 1 << 18
_BEFORE, _AFTER = 200, 1000

_HINTS = (
    *("token", "secret", "passw", "passphrase", "pwd", "credential", "auth"),
    *("accesskey", "access_key", "access-key", "apikey", "api_key", "api-key"),
    *("privatekey", "private_key", "private-key", "secretkey"),
    *("signing_key", "signing-key", "hf_", "sk-", "k_live_", "ghp_", "gho_"),
    *("ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-", "xoxp-", "xoxr-"),
    *("xoxs-", "akia", "asia", "aiza", "npm_", "pypi-agei", "wandb_v", "://", "amz-signature"),
    *("eyj", "eya", "ewo", "ew0", "ewk", "ls0tls1crudj"),
)
"""Every secret contains one of these, in lower case."""
# what turns a hint into more than a word of a text: the end of a key and a separator, or the body
# of a credential
_LIKELY = re.compile(
    rb"(?:token|secrets?|passwo?r?d|passphrase|pwd|credentials?|auth(?:orization)?|"
    rb"(?:api|access|private|secret|signing)[_.-]?key[\w.-]{0,64})[\"']?[ \t]*[:=]|"
    rb"hf_\w{16}|sk-[\w-]{16}|k_live_\w|gh[opsur]_\w{16}|xox[abprs]-|amz-signature=|glpat-|"
    rb"github_pat_|a(?:kia|sia)[a-z0-9]{16}|aiza[\w-]{16}|npm_\w{16}|pypi-|wandb_v\d|"
    rb"://[^\s/]{1,400}@|e[yw][a-z0-9+/_-]{20}|ls0tls1crudj"
)
_LONG = (b"private key", b"eyj", b"eya", b"ewo", b"ew0", b"ewk", b"ls0t")
_BASE64 = re.compile(
    r"(?:ey[JAI]|ew[o0k]|LS0tLS1CRUdJ)[A-Za-z0-9+/_-]{16,}(?:\s*[A-Za-z0-9+/_-]{4,})*"
)
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
    hide = Redactor()
    found: dict[int, str] = {}
    try:
        for piece, first in _pieces(path):
            binary = b"\0" in piece
            if binary:
                for at, _ in service_keys(piece.decode("latin-1")):
                    found.setdefault(first + piece.count(b"\n", 0, at), "")
            else:
                _by_rules(piece, first, found)
            for begin, end in _suspects(piece, hide):
                text = piece[begin:end].decode(errors="replace")
                line = first + piece.count(b"\n", 0, begin)
                places = [
                    *hide.places(text, keys=not binary, code=path.suffix not in _PLAIN),
                    *_formatted(text),
                    *([] if binary else _encoded(text, hide)),
                ]
                for at, key in places:
                    if binary or not stands_for_another(text, at, key):
                        found.setdefault(line + text.count("\n", 0, at), key)
        if path.suffix in (".yaml", ".yml") and path.stat().st_size <= _YAML:
            found = _in_tree(path, hide) | found
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", where=shown) from error
    for line, key in sorted(found.items()):
        if (path.resolve(), line) in passed:
            continue
        what = f"the value of '{key}'" if key else "something in this line"
        yield Complaint(f"{what} looks like a secret", f"{shown}:{line}", _REMEDY)


def secrets_in_words(words: Sequence[str]) -> Iterator[Complaint]:
    """Yield complaints about apparent secrets in a command line, without quoting them."""
    hide = Redactor()
    for word, clean in zip(words, hide.command(list(words)), strict=True):
        if word != clean:
            yield Complaint("this looks like a secret", clean, _REMEDY)
        elif any(secret_lines(word)) or any(_encoded(word, hide)):
            name = word.partition("=")[0]
            shown = f"{name}=…" if len(name) < len(word) and name.isascii() else "…"
            yield Complaint("this looks like a secret", shown, _REMEDY)


def _by_rules(piece: bytes, first: int, found: dict[int, str]) -> None:
    for line, key in secret_lines(piece.decode(errors="replace")):
        found.setdefault(first + line, key)


def _line_of(text: str) -> tuple[Path, int]:
    """Return file and line of ``FILE:LINE``; line 0 for a file alone."""
    name, _, line = text.rpartition(":")
    if name and line.isdecimal():
        return Path(name).expanduser().resolve(), int(line)
    return Path(text).expanduser().resolve(), 0


def _pieces(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield a file in overlapping pieces, each with the number of its first line."""
    with path.open("rb") as file:
        wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-16")("replace") if wide else None
        before, line = b"", 1
        while data := file.read(_PIECE):
            piece = before + (decoder.decode(data).encode() if decoder else data)
            yield piece, line
            before = piece[-_OVERLAP:]
            line += piece.count(b"\n", 0, len(piece) - len(before))


def _suspects(piece: bytes, hide: Redactor) -> Iterator[tuple[int, int]]:
    """Yield the parts of a piece that may contain a secret."""
    low = piece.lower()
    spots = {at for hint in _HINTS for at in _all(low, hint) if _LIKELY.match(low, at)}
    spots |= {*_all(low, "private key-----"), *_all(low, "private key block-----")}
    spots |= {at for value in hide.variables for at in _all(piece, value)}
    begin = end = -1
    for at in sorted(spots):
        first = max(at - _BEFORE, piece.rfind(b"\n", 0, at) + 1)
        newline = piece.find(b"\n", at)
        last = min(at + _AFTER, newline if newline >= 0 else len(piece))
        if low.startswith(_LONG, at):
            last = at + _OVERLAP // 2  # it may span several lines
        if first > end:
            if end >= 0:
                yield begin, end
            begin = first
        end = max(end, last)
    if end >= 0:
        yield begin, end


def _all(piece: bytes, text: str) -> Iterator[int]:
    word = text.encode(errors="surrogateescape")
    at = piece.find(word)
    while at >= 0:
        yield at
        at = piece.find(word, at + 1)


def _formatted(text: str) -> Iterator[tuple[int, str]]:
    for pattern in FORMATS:
        yield from ((match.start(), "") for match in pattern.finditer(text))


def _encoded(text: str, hide: Redactor) -> Iterator[tuple[int, str]]:
    """Yield the offsets of base64 that contains a secret, as ``Redactor.places`` does."""
    for match in _BASE64.finditer(text):
        bare = re.sub(r"\s", "", match.group()).translate(str.maketrans("-_", "+/"))
        inside = base64.b64decode(bare[: len(bare) // 4 * 4]).decode(errors="replace")
        if any(hide.places(inside)) or any(_formatted(inside)):
            yield match.start(), ""


def _in_tree(path: Path, hide: Redactor) -> dict[int, str]:
    """Return the lines of a YAML file with values under secret keys, in any notation."""
    try:
        root = read(path.read_text(encoding="utf-8-sig"), "")
    except (ConfigError, UnicodeDecodeError):
        return {}
    found = {}
    for loc, node in root.walk() if root is not None else ():
        key = next((step for step in reversed(loc) if isinstance(step, str)), "")
        if isinstance(node.value, str) and hide.tree(node.value, key) != node.value:
            if stands_for_another(node.value, 0, key):
                continue
            found[node.mark.line] = key
    return found
