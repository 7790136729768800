"""What looks like a secret in a text of any syntax.

Three kinds of rules. The formats of known services are detect-secrets'. Beside a name that says so
(``HF_TOKEN``, ``password``), whatever stands between name and value in the languages and file
formats there are, a value counts if it looks drawn at random: letters and digits mixed, of enough
entropy, and no path, word, number or placeholder. The same after ``Bearer``, ``--token`` and their
like. Text inside JSON or HTML is read as what it stands for, strings written in pieces as one.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator

from rlvr_core.api.services import is_secret
from rlvr_core.builtin.jobs.secret_excuses import (
    is_filled_in,
    is_placeholder,
    is_public,
    no_token,
    words_of,
)
from rlvr_core.builtin.jobs.secret_formats import FORMATS, known_formats

_WORD = (
    r"(?:tokens?|secrets?|passw(?:or)?d|passphrase|pwd|cred(?:ential)?s?|auth(?:orization)?|"
    r"(?:api|access|private|signing|secret|account|auth|encryption|license)[_.-]?keys?|pat|"
    # what begins with a letter is found twice as fast
    r"requirepass|pass(?<=[a-z\d][_-]pass)(?![a-z]))"
)
# what else is called a key: --judge-key, X-Search-Key, serp_key, tavilyKey, or KEY alone
_KEY = r"key(?:(?<![a-z]key)|(?<=[a-z](?-i:Key)))(?![a-z])"
_TYPE = r"(?::[ \t]*[A-Za-z_][\w.|\[\] ]{0,30}?)?"
_OPEN = r"(?:[bfru]{0,2}[\"'`]{1,3})"
_GAPS = (
    # an assignment: = := => ?= : ==, after the name's own closing quote or bracket
    rf"[\"'`]?(?:\s{{0,40}}[\])}}]){{0,2}}[ \t]*{_TYPE}[ \t]*(?::=|=>|\?=|\+=|<-|==?|:)"
    rf"[ \t]*(?:(?:\(\s{{0,40}})?{_OPEN})?",
    # the next argument of a call, or that of one named so: setenv("N", "v"), setPassword("v")
    rf"[\"'`][ \t]*,[ \t]*{_OPEN}",
    rf"\(\s{{0,40}}{_OPEN}",
    # XML, HTML, and entries of a list of names and values
    r"[ \t]*>[ \t]*",
    r"[ \t]*(?:</?[\w-]{1,20}>[\s:=]{0,20}){1,4}",
    r"[\"'`]?[ \t,]+[\"']?value[\"']?[ \t]*[=:][ \t]*[\"']?",
    r"[\s\"',]{0,40}[\r\n][\s\"',]{0,40}value[\"']?:\s*[\"']?",
    # a string of several lines
    r"[\"']?[ \t]*[=:][ \t]*[bfru]{0,2}[\"']{3}[ \t]*\\?\r?\n[ \t]*",
    # the default of an option or a field: add_argument("--api-key", default="v")
    rf"[^\n=]{{0,60}}(?:=[^\n=(]{{0,30}}\([^\n=]{{0,30}})?\bdefault[ \t]*=[ \t]*{_OPEN}",
    # of prose: the password is v, secret -> v
    rf"[\"'`]?[ \t]+(?:is|was|->)[ \t]*:?[ \t]*{_OPEN}?",
    # words after one another: ENV N v, setenv N v, --token v, password v
    rf"[\"'`]?[ \t]+{_OPEN}?",
)
_VALUE = r"(?P<value>[^\s\"'`<>\\]{6,400})"
_NAMED = tuple(re.compile(gap + _VALUE, re.IGNORECASE) for gap in _GAPS)
_SPACED = _NAMED[-1]
# the next line of a list; there names stand below one another, so that it takes more
_BELOW = re.compile(
    rf"[\"'`]?(?:,[ \t]*\r?\n\s{{0,40}}{_OPEN}|[ \t]*\r?\n[ \t]*-[ \t]+{_OPEN}?){_VALUE}"
)
_SUFFIXES = {"base", "default", "dev", "local", "old", "new", "prod", "production", "staging", "v1"}
_HINT = re.compile(f"{_WORD}|{_KEY}", re.IGNORECASE)
_LONG_KEY = re.compile(
    r"[0-9a-f]{32,128}|(?=[\w+/-]*\d)(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])[\w+/-]{32,128}={0,2}",
    re.ASCII,
)
_OTHER_KEYS = {
    "public", "pub", "cache", "primary", "foreign", "sort", "partition", "group", "row", "hash",
    "dict", "map", "lookup", "index", "unique", "idempotency", "object", "file", "host", "store",
    "registry", "checksum", "digest", "commit", "content", "trust", "node", "ssh", "rsa", "site",
}  # fmt: skip
"""What keys are called that are no secret, however random they look."""
_BEFORE = re.compile(r"[\w.-]{0,48}$")
_ARN = re.compile(r"\barn:[\w:/.-]{0,110}:$")
_AFTER = re.compile(r"[\w.-]{0,32}")

_OTHERS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?i:\b(?:bearer|basic|digest|apikey)[ \t]+{_VALUE})",
        rf"(?i:authorization[\"']?[ \t]*[:=,][ \t]*[\"']?\w{{3,12}}[ \t]+{_VALUE})",
        r"\b(?:login|connect|authenticate|init)\([^)\n]{0,80}?"
        rf"\bkey[ \t]*=[ \t]*[\"']{_VALUE}",
        r"\bcurl\b[^\n]{0,200}?[ \t](?:-u|--user)[ \t=]+[\"']?"
        r"[^\s:\"']{1,64}:(?P<value>[^\s\"']{6,})",
        rf"\bsshpass[ \t]+-p[ \t]*[\"']?{_VALUE}",
        # a part of a connection string, and a key in a section of credentials
        rf"(?i:;[ \t]*(?:pwd|password)=){_VALUE}",
        r"(?im:^[ \t]*\[[\w.-]*(?:credential|secret|auth|token|api)[\w.-]*\][ \t]*\n"
        r"(?:[^\[\n]*\n){0,6}?"
        rf"[ \t]*key[ \t]*[=:][ \t]*[\"']?){_VALUE}",
        r"\b(?!GPG_KEY)[A-Z][A-Z0-9]*_[A-Z0-9_]*KEY[\"']?\]?[ \t]*[=:][ \t]*[\"']?"
        r"(?P<value>\b(?:[0-9a-f]{32,}|[A-Za-z0-9+/_-]{32,}=?))(?![\w.(])",
        # what a command is given on its standard input: echo v | docker login --password-stdin
        rf"\b(?:echo|printf)[ \t]+(?:-n[ \t]+)?[\"']?{_VALUE}[\"']?[ \t]*\|[^\n|]{{0,200}}"
        r"(?:--password-stdin|--with-token|--token-stdin|--stdin|passwd|chpasswd)\b",
        # a name and a password: auth=("ada", "v"), HTTPBasicAuth("ada", "v")
        rf"(?i:auth|login)[\"']?[ \t]*[:=]?[ \t]*\([ \t]*[\"'][^\"'\n]{{0,64}}[\"'],[ \t]*"
        rf"[\"']{_VALUE}",
        # a place, a user and a password: connect("db", "ada", "v")
        rf"(?i:\bconnect)\((?:[ \t]*[\"'][^\"'\n]{{0,64}}[\"'],){{2}}[ \t]*[\"']{_VALUE}",
        r"://[^\s/:@\"']{0,64}:(?P<value>[^\s/@\"'{}<>]{6,})@[\w\[]",
        rf"(?i:\bidentified[ \t]+(?:with[ \t]+\w+[ \t]+)?by[ \t]+[\"']?){_VALUE}",
        # wandb login v, vault login v, and what Kaggle has in a file
        r"(?<=\w)[ \t](?:auth[ \t]+)?login(?:[ \t]+--?[a-z][\w-]{0,30}){0,4}[ \t]+[\"']?"
        r"(?P<value>[\w.-]{20,200})(?![\w.@/:=-])",
        rf"[\"']username[\"'][ \t]*:[ \t]*[\"'][^\"'\n]{{0,64}}[\"'],\s{{0,40}}"
        rf"[\"']key[\"'][ \t]*:[ \t]*[\"']{_VALUE}",
        # a name without a password, as Sentry's and GitHub's; [:] so that this line is none itself
        r"(?<!ssh)[:]//(?P<value>[\w.-]{20,})(?::[\w-]{0,64})?@[\w\[]",
        # signatures in addresses, and addresses that are secrets themselves
        r"[?&](?:sig|signature|X-Amz-Security-Token)=(?P<value>[\w%+/=-]{16,})",
        r"/webhooks?/[\w-]{1,64}/(?P<value>[\w-]{24,})",
        # sessions: Cookie: sid=v; theme=dark
        r"(?i:\bcookie[\"']?[ \t]*[:=,][ \t]*[\"']?(?:[^\n;=]{1,64}=[^\n;]{0,99};[ \t]*){0,8}"
        r"[\w.-]{0,40}(?:sess|sid|auth|token|jwt)[\w.-]{0,40}=)(?P<value>[^\s;\"']{12,})",
        r"\b(?:mysql|mysqldump|mariadb)\b[^\n|]{0,120}?[ \t]-p(?P<value>[^\s\"']{8,})",
    )
)
_PIECES = re.compile(
    r"([\"'])(?P<first>[\w+/=.-]{4,200})\1(?:[ \t]*\+[ \t]*|[ \t]*\\?\r?\n[ \t]*\+?[ \t]*|[ \t]+)"
    r"[bfru]{0,2}\1(?P<second>[\w+/=.-]{4,200})\1"
)
_PAIR = re.compile(
    r"(?i:\bbasic[ \t]+|auth[\"']?[ \t]*[:=][ \t]*[\"']?)(?P<value>[\w+/]{8,}={0,2})"
)
_WORDY = re.compile(r"^(?:(?:[a-z]+|[A-Z]+|[A-Z]{1,3}[a-z]+)\d{0,4}|\d+|[A-Za-z]\d+[A-Za-z]?)$")
_WORD_LENGTH = 3.2
"""Mean length of parts below which text that falls into word-like parts is random nevertheless."""
_SPLIT = re.compile(r"[_.:/@|,=-]+|(?<=[a-z\d])(?=[A-Z][a-z])")
_ESCAPES = {
    "&quot;": '"', "&#34;": '"', "&apos;": "'", "&#39;": "'", "&#x27;": "'",
    "&lt;": "<", "&gt;": ">", "&amp;": "&",
    '\\"': '"', "\\'": "'", "\\n": "\r", "\\t": "\t", "\\/": "/",
}  # fmt: skip
"""What JSON and HTML write for another character; an escaped end of a line is none of the file."""
_NEXT_LINE = r"\\n\",\r?\n[ \t]*\""
"""Between two lines of a notebook's cell, which are strings of a list."""
_ESCAPED = re.compile(  # and colours
    "|".join([_NEXT_LINE, *map(re.escape, _ESCAPES), r"\x1b\[[\d;]*m"])
)


def secret_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each apparent secret, from 0, with the name beside it ("" without one)."""
    plain, _ = _unescaped(text)
    for at, _, name in sorted(_places(plain)):
        yield plain.count("\n", 0, at), name


def without_secrets(text: str, mark: str) -> str:
    """Return a text with ``mark`` in the place of each apparent secret."""
    for pattern in FORMATS:
        text = pattern.sub(mark, text)
    plain, written_at = _unescaped(text)
    parts, done = [], 0
    for start, stop, _ in sorted(_places(plain)):
        begin, end = written_at(start), written_at(stop)
        if begin < done or text[begin:end] in mark:
            done = max(done, end if begin < done else done)
            continue
        parts += [text[done:begin], mark]
        done = end
    return "".join([*parts, text[done:]])


def _places(text: str) -> Iterator[tuple[int, int, str]]:
    yield from _written(text)
    for match in _PAIR.finditer(text):
        if _is_name_and_password(match["value"]):
            yield *match.span("value"), ""
    for match in _PIECES.finditer(text):
        before = re.sub(r"\(\s*$", "", text[max(0, match.start() - 80) : match.start()])
        whole = f'{before}"{match["first"]}{match["second"]}"'
        for at, _, name in _written(whole):
            if at >= len(before):
                yield match.start("first"), match.end("second"), name


def _is_name_and_password(coded: str) -> bool:
    """Whether text is the base64 of NAME:PASSWORD."""
    try:
        inside = base64.b64decode(coded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return False
    name, _, password = inside.partition(":")
    named = bool(name) and len(password) >= 6 and inside.isprintable()
    return named and not is_placeholder(f"{coded} {inside}") and not is_filled_in(password)


def _written(text: str) -> Iterator[tuple[int, int, str]]:
    for at, length in known_formats(text):
        key = text[at : at + length]
        if _random(key, least=2.5) and not key.endswith("EXAMPLE"):
            yield at, at + length, ""
    for pattern in _OTHERS:
        for match in pattern.finditer(text):
            if value := _value(match, text):
                yield match.start("value"), match.start("value") + len(value), ""
    done = -1
    for hint in _HINT.finditer(text):
        if hint.start() < done:
            continue
        begin = hint.start() - len(_before(text, hint.start()))
        done = _after(text, hint.end())
        name = text[begin:done].strip("-._")
        named = _names_secret(name)
        if text[begin - 2 : begin] == "::" or not (named or _names_key(name)):
            continue  # of a type, as AWS::AppSync::ApiKey, there is no value
        if _ARN.search(text, max(0, begin - 120), begin):
            continue  # arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME says where one is
        option = text[begin : begin + 1] == "-"
        for pattern in (*_NAMED, _BELOW):
            beside = pattern.match(text, done)
            sure = named and (option or pattern is not _BELOW)
            if not beside or not (sure or _LONG_KEY.match(beside["value"])):
                continue
            value = _value(beside, text, 3.2 if pattern is _SPACED else 2.8)
            if not value or value.rpartition(".")[2] == name:
                continue
            if sure or _LONG_KEY.fullmatch(value):
                yield beside.start("value"), beside.start("value") + len(value), name


def _before(text: str, at: int) -> str:
    match = _BEFORE.search(text, max(0, at - 48), at)
    return match.group() if match else ""


def _after(text: str, at: int) -> int:
    match = _AFTER.match(text, at)
    return match.end() if match else at


def _names_secret(name: str) -> bool:
    words = words_of(name)
    if no_token(words):
        return False
    if len(words) > 1 and (words[-1].isdigit() or words[-1] in _SUFFIXES):
        return is_secret("_".join(words[:-1]))  # HF_TOKEN_2, API_KEY_PROD
    keyed = words[-1] == "key" and bool({"auth", "account", "encryption"} & set(words))
    keyed |= words[-1] in ("pass", "requirepass", "cred", "creds")
    return keyed or is_secret(name) or is_secret("".join(words))


def _names_key(name: str) -> bool:
    """Whether a name is that of some key, which a long random value makes a secret."""
    words = words_of(name)
    return words[-1] == "key" and not _OTHER_KEYS & set(words)


def _value(match: re.Match[str], text: str, least: float = 2.8) -> str:
    """Return the value without what ends it; "" if it is no secret."""
    value: str = match["value"]
    if is_public(text, match.start("value")):
        return ""
    quoted = text[match.end("value") : match.end("value") + 1] in ("'", '"', "`")
    if not quoted:
        value = value.rstrip(",;)}].\"'")
    if is_filled_in(value):
        return ""
    return value if _random(value, least) else ""


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


def _unescaped(text: str) -> tuple[str, Callable[[int], int]]:
    """Return the text with escapes of JSON and HTML resolved, and where it stood in ``text``.

    It keeps its lines.
    """
    if "\\" not in text and "&" not in text and "\x1b" not in text:
        return text, lambda at: at
    ends, longer, total = [0], [0], 0

    def resolve(match: re.Match[str]) -> str:
        nonlocal total
        line = "\n" if "\n" in match.group() else ""
        meant = _ESCAPES.get(match.group(), line)
        total += len(match.group()) - len(meant)
        ends.append(match.end() - total)
        longer.append(total)
        return meant

    plain = _ESCAPED.sub(resolve, text)
    return plain, lambda at: at + longer[bisect.bisect_right(ends, at) - 1]
