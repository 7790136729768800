"""What looks like a secret: in what a run records, and in what leaves this machine with a job.

Found are credentials that are known by their format (a table of services, and detect-secrets'
patterns), and what looks drawn at random beside a name that says so (``HF_TOKEN``, ``Bearer``).
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.dialect import read
from rlvr_core.record.text import Redactor, is_secret

_AN, _HEX, _WORD = "[A-Za-z0-9]", "[0-9a-fA-F]", r"[\w-]"

_SERVICES = {
    "hf_": rf"{_AN}{{16,}}", "api_org_": rf"{_AN}{{30,}}", "sk-": rf"{_WORD}{{16,}}",
    "wandb_v": r"\d_\w{20,}", "gsk_": rf"{_AN}{{40,}}", "xai-": rf"{_AN}{{60,}}",
    "pplx-": rf"{_AN}{{40,}}", "nvapi-": rf"{_WORD}{{40,}}", "r8_": rf"{_AN}{{30,}}",
    "tvly-": rf"{_WORD}{{24,}}", "fw_": rf"{_AN}{{22,}}", "tgp_v1_": rf"{_WORD}{{40,}}",
    "pcsk_": r"\w{40,}", "lsv2_pt_": r"\w{32,}", "rpa_": r"[A-Z0-9]{40,}",
    "ABSK": r"[A-Za-z0-9+/]{100,}", "AIza": rf"{_WORD}{{35}}", "GOCSPX-": rf"{_WORD}{{24,}}",
    "ya29.": rf"{_WORD}{{30,}}", "AKIA": "[A-Z0-9]{16}", "ASIA": "[A-Z0-9]{16}",
    "LTAI": rf"{_AN}{{20}}", "dapi": rf"{_HEX}{{32}}", "doo_v1_": rf"{_HEX}{{64}}",
    "dop_v1_": rf"{_HEX}{{64}}", "dor_v1_": rf"{_HEX}{{64}}", "hvb.": rf"{_WORD}{{24,}}",
    "hvs.": rf"{_WORD}{{24,}}", "fm2_": r"[\w+/]{100,}", "sha256~": rf"{_WORD}{{43}}",
    "pscale_tkn_": r"[\w=.-]{32,}", "pscale_pw_": r"[\w=.-]{32,}", "ghp_": rf"{_AN}{{20,}}",
    "gho_": rf"{_AN}{{20,}}", "ghs_": rf"{_AN}{{20,}}", "ghu_": rf"{_AN}{{20,}}",
    "ghr_": rf"{_AN}{{20,}}", "github_pat_": r"\w{20,}", "glpat-": rf"{_WORD}{{20,}}",
    "gldt-": rf"{_WORD}{{20,}}", "glft-": rf"{_WORD}{{20,}}", "glrt-": rf"{_WORD}{{20,}}",
    "glptt-": rf"{_HEX}{{40}}", "npm_": rf"{_AN}{{36}}", "pypi-AgEI": rf"{_WORD}{{16,}}",
    "rubygems_": r"[0-9a-f]{48}", "dckr_pat_": rf"{_WORD}{{24,}}",
    "AGE-SECRET-KEY-1": "[A-Z0-9]{50,}", "ATATT3": r"[\w=-]{40,}", "SG.": r"[\w.-]{40,}",
    "glc_": r"[\w+/]{32,}", "glsa_": r"\w{32,}", "phc_": rf"{_AN}{{40,}}",
    "rk_live_": rf"{_AN}{{16,}}", "sk_live_": rf"{_AN}{{16,}}", "shpat_": rf"{_HEX}{{32}}",
    "shpca_": rf"{_HEX}{{32}}", "shppa_": rf"{_HEX}{{32}}", "shpss_": rf"{_HEX}{{32}}",
    "sntrys_": r"[\w+/=-]{32,}", "xapp-": r"\d-[A-Z0-9]+-\d+-[a-z0-9]+",
    "xoxa-": r"[A-Za-z0-9-]{10,}", "xoxb-": r"[A-Za-z0-9-]{10,}", "xoxe-": r"[A-Za-z0-9-]{40,}",
    "xoxp-": r"[A-Za-z0-9-]{10,}", "xoxr-": r"[A-Za-z0-9-]{10,}", "xoxs-": r"[A-Za-z0-9-]{10,}",
    "eyJ": rf"{_WORD}{{8,}}\.{_WORD}{{8,}}\.{_WORD}{{8,}}",
}  # fmt: skip

SERVICE_KEY = re.compile(
    r"(?<!sha256=)\b(?:"
    + "|".join(re.escape(begin) + rest for begin, rest in _SERVICES.items())
    + ")",
    re.ASCII,
)
"""How keys of services begin and go on; most are of gitleaks' rules (MIT)."""

# a password, or a token in the place of the user: long, with digits, as no login is
_URL_PASSWORD = re.compile(
    r"(?<=://)(?:[^\s/:@]*:[^\s/@]+|(?<!ssh://)(?=[A-Za-z_-]*\d)[\w-]{20,})(?=@)"
    r"|(?<=[?&]X-Amz-Signature=)[0-9a-f]{16,}"
)
# its head alone is something that programs look for; with a body, or a foot, it is a key. No part
# may be read twice for each way to split it: the text may be a model's
_MARK = r"(?:[-+](?![-+]))?(?:[ \t]*+(?:[>#|*;%]|//(?![\w/+=])))*+"  # of a diff, mail or comment
_GAP = rf"(?:\\[nr]|\s)(?:(?<=[nr\n]){_MARK})?+"
_KEY_HEADER = rf"(?:{_GAP})++(?://)?+[-+]?[A-Z][\w-]{{0,20}}: "
_KEY_LINES = rf"(?:(?:{_GAP}|[-+](?![-+]))*+[\w/+=]{{16,}}+)++"
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----BEGIN ).){0,20000}?-----END [A-Z0-9 ]*KEY(?: BLOCK)?-----"
    # its foot is far off, or not there: some headers, and lines until one is too short for a key's
    rf"|(?:{_KEY_HEADER}[^\n\\]{{1,100}}+){{0,4}}+{_KEY_LINES}"
    # or, in one line, headers that end where the key begins
    rf"|(?:{_KEY_HEADER}[^\n\\](?:(?![\w/+=]{{16}})[^\n\\]){{0,99}}+){{0,4}}+{_KEY_LINES})",
    re.S,
)

FORMATS = (_PRIVATE_KEY, _URL_PASSWORD, SERVICE_KEY)
"""Enough by themselves; all else has to look drawn at random besides."""

_VALUE = r"(?P<value>[^\s\"'`<>\\\x1b,;]{8,400})"
_HINT = re.compile("token|secret|pass|pwd|pat|key|cred|auth", re.IGNORECASE)
_NAME_BEGIN, _NAME_END = re.compile(r"[\w.-]{0,48}$"), re.compile(r"[\w.-]{0,32}")
_BESIDE = re.compile(
    # from name to value: a separator with the quotes and escapes around it, and a word
    r"[\\\"'`\])]{0,4}[ \t]*(?::=|=>|->|[:=,]|(?:is|was)\b|[ \t])[ \t]*"
    r"(?:\\{0,3}[bfru]{0,2}[\"'`(]{1,3})?(?:\x1b\[[\d;]*m)?(?:\w{3,9}[ \t]+)?" + _VALUE,
    re.IGNORECASE,
)
_OTHERS = tuple(
    re.compile(pattern + _VALUE, re.IGNORECASE)
    for pattern in (
        r"\b(?:bearer|basic)[ \t]+",
        r"\b(?:login|connect|init)\([^)\n]{0,80}?\bkey[ \t]*=[ \t]*[\"']",
        r"[?&](?:sig|signature|X-Amz-Security-Token)=",
        r"/webhooks?/[\w-]{1,64}/",
        r"\bcookie[\"']?[ \t]*[:=,][^\n]{0,200}?\b[\w.-]{0,40}(?:sess|sid|auth|jwt)[\w.-]{0,40}=",
    )
)
_NO_VALUE = re.compile(
    # an expression, a reference, a path, a sentence
    r"^[$%{<\[(*.]|\$\{|[(\[{]|^(?:https?|s3|file|arn|tiny|sha\d+):|^(?:/[a-z_.-]+){2,}|^~|::|\.{3}|"
    r"^(?-i:The|An?|Your|This) [\w /,-]+\.",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"x{4,}|\*{3,}|1234567|example|your|change_?me|placeholder|dummy|redacted|not_?real", re.I
)
_WORDY = re.compile(r"^(?:(?:[a-z]+|[A-Z]+|[A-Z]{1,3}[a-z]+)\d{0,4}|\d+|[A-Za-z]\d+[A-Za-z]?)$")
_WORD_LENGTH = 3.2
"""Mean length of parts below which text that falls into word-like parts is random nevertheless."""
_SPLIT = re.compile(r"[_.:/@|,=-]+|(?<=[a-z\d])(?=[A-Z][a-z])")

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


def without_secrets(text: str, mark: str) -> str:
    """Return a text with ``mark`` in the place of each apparent secret."""
    parts, done = [], 0
    for start, stop, _ in sorted(_places(text)):
        if start >= done and text[start:stop] not in mark:
            parts += [text[done:start], mark]
        done = max(done, stop) if start >= done else done
    return "".join([*parts, text[done:]])


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
    if "\0" in text:  # no text: only what is known by its format alone
        yield from ((match.start(), "") for match in SERVICE_KEY.finditer(text))
        return
    yield from ((start, name) for start, _, name in _places(text))
    for at, key in Redactor().places(text, code=code):
        if not _NO_VALUE.search(text[at : at + 200].lstrip("\"'`").split("\n", 1)[0]):
            yield at, key


def _in_tree(path: Path) -> dict[int, str]:
    """Return the lines of a YAML file with values under secret keys, in any notation."""
    try:
        root = read(path.read_text(encoding="utf-8-sig"), "")
    except (ConfigError, UnicodeDecodeError):
        return {}
    lines = {}
    for loc, node in root.walk() if root is not None else ():
        key = next((step for step in reversed(loc) if isinstance(step, str)), "")
        value = node.value
        if not isinstance(value, str) or _NO_VALUE.search(value):
            continue
        if Redactor().tree(value, key) != value:
            lines[node.mark.line] = key
    return lines


def _places(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield begin, end and name of each apparent secret."""
    for pattern in FORMATS:
        yield from ((*match.span(), "") for match in pattern.finditer(text))
    for hints, pattern, valid in _formats():
        if any(hint in text for hint in hints):
            for match in pattern.finditer(text):
                if (valid is None or valid(match.group())) and _random(match.group(), 2.5):
                    yield *match.span(), ""
    for pattern in _OTHERS:
        for match in pattern.finditer(text):
            if _is_value(match["value"]):
                yield *match.span("value"), ""
    done = 0
    for hint in _HINT.finditer(text):
        if hint.start() < done:
            continue
        begin = _at(_NAME_BEGIN.search(text, max(0, hint.start() - 48), hint.start())).start()
        done = _at(_NAME_END.match(text, hint.end())).end()
        name = text[begin:done].strip("-._")
        secret = is_secret(name) and text[begin - 1 : begin] != ":"  # as in arn:...:secret:NAME
        beside = _BESIDE.match(text, done) if secret else None
        if beside is not None and _is_value(value := beside["value"].rstrip(")}].")):
            yield beside.start("value"), beside.start("value") + len(value), name


def _at(match: re.Match[str] | None) -> re.Match[str]:
    assert match is not None, "the pattern matches the empty text"
    return match


def _is_value(value: str) -> bool:
    excused = _NO_VALUE.search(value) or _PLACEHOLDER.search(value)
    return not excused and _random(value, 2.8)


def _random(value: str, least: float) -> bool:
    """Whether a value looks drawn at random, and is not made of words and numbers."""
    if len(value) < 8 or not any(map(str.isalpha, value)):
        return False
    if not any(map(str.isdigit, value)):
        return _random_letters(value)
    parts = [part for part in _SPLIT.split(value) if part]
    if all(map(_WORDY.match, parts)) and len(value) >= _WORD_LENGTH * len(parts):
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= min(least, math.log2(len(value)) * 0.75)


def _random_letters(value: str) -> bool:
    """Whether a long value without a digit changes case as no name of a program does."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", value)
    mixed = value.isalpha() and value.isascii() and not (value.islower() or value.isupper())
    return mixed and len(value) >= 16 and len(value) < _WORD_LENGTH * len(parts)


@functools.cache
def _formats() -> tuple[tuple[tuple[str, ...], re.Pattern[str], Any], ...]:
    """Return the patterns of detect-secrets, each with texts of which it contains one."""
    from detect_secrets.plugins import (
        artifactory,
        aws,
        azure_storage_key,
        discord,
        gitlab_token,
        jwt,
        mailchimp,
        npm,
        openai,
        pypi_token,
        sendgrid,
        slack,
        square_oauth,
        stripe,
        telegram_token,
        twilio,
    )

    kinds: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (artifactory.ArtifactoryDetector, ("AKC", "AP")),
        (aws.AWSKeyDetector, ("A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws", "AWS")),
        (azure_storage_key.AzureStorageKeyDetector, ("AccountKey=",)),
        (discord.DiscordBotTokenDetector, ("discord", "DISCORD", "Discord")),
        (gitlab_token.GitLabTokenDetector, ("gl", "GR1348941")),
        (jwt.JwtTokenDetector, ("eyJ",)),
        (mailchimp.MailchimpDetector, ("-us",)),
        (npm.NpmDetector, (":_authToken=",)),
        (openai.OpenAIDetector, ("T3BlbkFJ",)),
        (pypi_token.PypiTokenDetector, ("pypi-",)),
        (sendgrid.SendGridDetector, ("SG.",)),
        (slack.SlackDetector, ("xox", "hooks.slack.com")),
        (square_oauth.SquareOAuthDetector, ("sq0csp-",)),
        (stripe.StripeDetector, ("k_live_",)),
        (telegram_token.TelegramBotTokenDetector, (":AA",)),
        (twilio.TwilioKeyDetector, ("twilio", "TWILIO", "Twilio")),
    )
    found = []
    for cls, hints in kinds:
        valid = cls.is_formally_valid if cls is jwt.JwtTokenDetector else None
        found += [(hints, pattern, valid) for pattern in cls.denylist]
    return tuple(found)
