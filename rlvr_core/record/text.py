"""Makes text safe to show and store: escapes hostile characters, removes secrets."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlvr_core.record.formats import FORMATS

REDACTED = "<redacted>"

# C0 without tab and newline, DEL, C1, zero-width and bidirectional controls, line separators, tags,
# lone surrogates, noncharacters: anything that can move a cursor, hide text or reorder it
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)

_NOT_SECRET = {"bos", "cls", "eos", "mask", "pad", "sep", "special", "stop", "unk"}
_SECRET_NAME = re.compile(
    r"\b(?:(?:access|api|private|secret)key|(?:access|api|auth|hf)?token|auth(?:orization)?"
    r"|credentials?|\w*pass(?:phrase|wd|word)|secrets?)$"
    r"|\b(?:access|api|private|secret|signing) key\b"
    r"(?!.*\b(?:arn|env|field|file|id|length|name|path|size|type|url|var)$)"
)
"""Names of secrets, their words apart; not those of what is about one, as of its file."""
_KEY_VARIABLE = re.compile(r"(?:KEY|PAT|PASS|DSN|CREDS|WEBHOOK)(?:_URL)?$")
_PASSWORDS = {"passphrase", "passwd", "password", "pwd"}
# key: value, key = value, "key": "value", as found in YAML, TOML, JSON and messages
_KEY = re.compile(
    r"""(?<![\w.-])(?<!::)(?P<key>[A-Za-z_][\w.-]{0,63})["']?[ \t]*(?::[ \t]+|:(?=["'])|=[ \t]*)"""
)
_VALUE = re.compile(r"""(?P<quote>["'])[^\n]*?(?P=quote)|[^\s,}\]#"'][^\s,}\]]*""")
# in source code most values are expressions, and "token" is everybody's variable: there, only a
# literal, or a line of its own as in an .env file, is taken for a secret
_CODE_VALUE = re.compile(
    r"""(?P<quote>["'])[^\s"']{6,}(?P=quote)|(?=\S*\d)[\w+/=-]{8,}(?=[ \t]*$)""", re.M
)
_MIXED = re.compile(r"[A-Za-z]\d|\d[A-Za-z]|[a-z][A-Z]")
_WORDS = re.compile(r"""["']?[A-Za-z]*(?:[_. /-]+[A-Za-z]+)*[.]?["']?$""")
_REFERENCE = re.compile(
    r"""["']?\$\{?\w|["']?(?:(?i:null|none|true|false)|~|\d+|\W{0,2}(?:<[^<>"'\n]{1,40}>)+"""
    r"""|[|\[][A-Z_]{1,30}[|\]]|[A-Z]+(?:_[A-Z]+)+)["']?$|[\[{(][\]})]?$"""
)
"""Values that are no secret under any key: a variable or its name, a constant, a number, a token
such as ``<image>`` or ``[IMG]``, an empty list."""


def brief(value: float, digits: int = 3) -> str:
    """Format a number for people, with decimals only where they matter: 0.421, 1,250,000."""
    size = abs(value)
    if size < 1000 or not math.isfinite(size):
        return f"{value:.{digits}f}"
    return f"{value:,.0f}" if size < 1e9 else f"{value:.{digits}e}"


def printable(text: str, limit: int | None = None) -> str:
    """Make text safe for a terminal or a page: control characters are shown as escapes.

    Args:
        text: Any text, including a model's output.
        limit: Longest result in characters; longer texts lose their middle.
    """
    if limit is not None and len(text) > limit:
        head = limit * 2 // 3
        left_out = len(text) - limit
        text = f"{text[:head]} […{left_out} characters…] {text[len(text) - (limit - head) :]}"
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 0x0D:
        return "\\r"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@functools.lru_cache(4096)
def is_secret(key: str) -> bool:
    """Whether a key or option name indicates a secret value (``hf_token``, ``api-key``).

    Names of counts and of special tokens (``max_tokens``, ``eos_token``) do not count.
    """
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", key.rpartition(".")[2])
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    if not words or _NOT_SECRET & set(words):
        return False
    if words[-1] == "pwd":
        return len(words) > 1  # PWD alone is the shell's working directory
    return bool(_SECRET_NAME.search(" ".join(words)))


def _harmless(key: str, value: str) -> bool:
    """Whether a value under a secret-looking key is not a secret."""
    bare = value.strip("\"'")
    if bare.isdecimal() and len(bare) > 6:  # shorter numbers may be ids of a vocabulary
        return not any(key.lower().endswith(word) for word in _PASSWORDS)
    return bool(_REFERENCE.match(value))


class Redactor:
    """Removes secrets from text before it is stored.

    Three kinds are found: values under a key whose name indicates a secret, credentials of known
    formats (``record/formats.py``), and values of environment variables with such a name. The last
    become ``${env:NAME}``, so that a stored configuration still runs.

    Args:
        environment: Environment with secret values; ``os.environ`` if omitted.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        secrets = {
            value: name
            for name, value in environment.items()
            # short values would match ordinary words
            if (is_secret(name) and len(value) >= 8 and not value.isspace())
            or (_KEY_VARIABLE.search(name) and len(value) >= 16 and _MIXED.search(value))
        }
        self._names = secrets
        longest_first = sorted(secrets, key=len, reverse=True)
        self._values = (
            re.compile("|".join(re.escape(value) for value in longest_first)) if secrets else None
        )

    def text(self, text: str) -> str:
        """Redact free text: a configuration as written, an error message."""
        return _without_values(self.known(text), _VALUE)

    def patch(self, text: str) -> str:
        """Redact a patch of source code so that it still applies."""
        return _without_values(self.known(text), _CODE_VALUE)

    def places(self, text: str, *, code: bool) -> Iterator[tuple[int, str]]:
        """Yield where a text has an apparent secret, and the name of its key ("" without one).

        Args:
            text: Any text.
            code: Whether it is source code, as for ``patch``.
        """
        for pattern in FORMATS if self._values is None else (self._values, *FORMATS):
            yield from ((match.start(), "") for match in pattern.finditer(text))
        for key, match in _keyed(text, _CODE_VALUE if code else _VALUE):
            if key.lower().endswith(tuple(_PASSWORDS)) or not _WORDS.match(match.group()):
                yield match.start(), key

    def tree(self, value: Any, key: str = "") -> Any:
        """Redact a JSON-like value, by its keys and by its content."""
        if isinstance(value, Mapping):
            return {name: self.tree(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item, key) for item in value]
        if not isinstance(value, str):
            return value
        known = self.known(value)
        if known == value and value and is_secret(key) and not _harmless(key, value):
            return REDACTED
        return known

    def command(self, words: list[str]) -> list[str]:
        """Redact a command line, including ``--token X``, ``--token=X`` and ``--set a.token=X``."""
        result: list[str] = []
        for previous, word in zip(["", *words], words, strict=False):
            name, equals, value = word.partition("=")
            if equals and is_secret(name) and not _harmless(name, value):
                known = self.known(value)
                result.append(f"{name}={REDACTED if known == value else known}")
            elif previous.startswith("-") and "=" not in previous and is_secret(previous):
                known = self.known(word)
                result.append(REDACTED if known == word else known)
            else:
                result.append(self.text(word))
        return result

    def known(self, text: str) -> str:
        """Redact credentials of known formats, and values of environment variables."""
        if self._values is not None:
            text = self._values.sub(lambda m: f"${{env:{self._names[m.group()]}}}", text)
        for pattern in FORMATS:
            text = pattern.sub(REDACTED, text)
        return text


def _keyed(text: str, value: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield each key that indicates a secret, with the match of the value after it."""
    done = 0
    for hit in _KEY.finditer(text):
        if hit.start() < done or not is_secret(hit["key"]):
            continue
        match = value.match(text, hit.end())
        if match is None or _harmless(hit["key"], match.group()) or match.group() == REDACTED:
            continue
        yield hit["key"], match
        done = match.end()


def _without_values(text: str, value: re.Pattern[str]) -> str:
    """Return ``text`` with the value after each secret-looking key redacted."""
    parts, done = [], 0
    for _, match in _keyed(text, value):
        quote = match["quote"] or ""
        parts += [text[done : match.start()], quote, REDACTED, quote]
        done = match.end()
    return "".join([*parts, text[done:]])
