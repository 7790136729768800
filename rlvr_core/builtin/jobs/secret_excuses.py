"""What is no secret although it stands where one would: templates, paths, examples, page marks."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

# values that are a program's expression, a reference, a path, a place to fill in
_NO_VALUE = re.compile(
    r"^[$%{<\[(*.]|\$\{|\{\{|%\(|[(\[{]|^(?:https?|s3|file|arn|tiny):|^(?:/[a-z_.-]+){2,}|^/[\w.-]+$|^~|^\.\.?/|::|->|=>|"
    r"\.{3}|…|^HTTP/\d|^//\w|^![01]\b|^sha\d+[:-]|^v?\d+(?:\.\d+)+",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"x{4,}|\*{3,}|0{6,}|1234567|abcdef|example|your|change_?me|placeholder|dummy|fake|sample|"
    r"redacted|insert|todo|foobar|deadbeef|not_?real",
    re.IGNORECASE,
)
# tokens of the RFCs on OAuth, and what is Basic for user:password and their like
_PUBLISHED = re.compile(
    r"czZCaGRSa3F0|2YotnFZFEjr1|tGzv3JOkF0XG|mF_9\.B5f|hh5s93j4hdid|hdhd0244k9j7|dpf43f3p2l4k|"
    r"kd94hf93k423|nnch734d00sl|pfkkdhi9sl3r|SlAV32hkKG|"
    r"kkk9d7dh3k39|9djdj82h48dj|j49sk3j29djd|"
    r"dXNlcm5hbWU6cGFzc3dvcmQ=|dXNlcjpwYXNz(?:d29yZA==|d2Q=)?(?![\w+/=])|QWxhZGRpbjpvcGVuIHNlc2FtZQ"
)
# the token of a badge's picture, which everybody reads, and where a list goes on
_PUBLIC_TOKEN = re.compile(r"(?:badge[\w.]{0,9}\?token=|(?i:page[ _-]?tokens?)[\"' :=]{0,6})$")
_PAGING = {"next", "page", "continuation", "pagination", "output", "input", "verification"}
_PAGING |= {"best", "bonus", "draft", "sampled"}  # of a vocabulary
_PAGING |= {"lifecycle"}  # of an action that AWS takes once; so is a ClientRequestToken
_STANDS_FOR = re.compile(
    r"^(?:\{[\w.!]*\}|\[?your\b|(?:/[a-z_.-]+){2,}|~/[\w./-]*$|"
    r"#[0-9a-f]{6}\b|abcdefg|[a-z_][\w.]*\(\))|^[\w.-]*(?:\.{3}|…)|^[\w./+-]*(?-i:EXAMPLE)|"
    # words, a number, punctuation
    r"^[a-z]*(?:pass?word|passwd|secret)[a-z]*(?!\w)|^\d{1,6}(?:\\[nr]|[\s,;])|^[^\w\s]+(?:\s|$)|"
    # an expression, a pattern, the marks of a key without one
    r"^(?:os\.environ|process\.env|[a-z_]+(?:\.[a-z_]+)+[(\[]|[(\[{][\"'])|"
    # one character again and again behind a service's beginning, and what a command prints
    r"^(?:[a-z]{2,8}[_-]){0,3}(\w)\1{7,}(?!\w)|^\$\(|"
    # to the end of the value: what documentation writes, and permissions of a job's token
    r"^(?:(?:change[_-]?me|not[_-](?:a[_-])?real|fake|dummy|placeholder)(?:[_-][a-z]+)*|"
    r"token-abc123|read|write|none)(?=[\"'`\s,;)\]}]|$)|"
    # tokens of a vocabulary, and a sentence of a description
    r"^(?:<\|[\w -]+\|>)+(?=[\"'`\s,;)\]}]|$)|"
    r"^(?-i:The|An?|Your|This) (?:[a-z/,-]+ ){1,40}[a-z-]+\.(?=[\"'`\s]|$)|"
    # a program by module and function
    r"^[a-z_]\w*(?:\.[a-z_]\w*)+:(?:main|app|cli|run)[\"']?\s*$|"
    r"^\]<|^\$\{\{|^\w{0,8}\*{3}|^\[(?:[a-z]-|\w+\()|^\(\w+[/*]\w+\)|^%[sd(]|^https?://[^\s?@]*$|"
    r"^-----BEGIN [A-Z ]+-----[\"'`]?[\s,:;+|)]{0,20}[\"'`]?-----END",
    re.IGNORECASE,
)
_NAMES_ONE = re.compile(
    r"^(?:existing_?secret|image_?pull_?secrets?|secret_?key_?ref)$", re.IGNORECASE
)
"""Keys of Kubernetes whose value is the name of a secret."""
_URL_WORD = re.compile(
    r"^[^\s:@/]*:(?:[{<$(\[][^@\s]*|(?:a%20|my|your|[a-z]{1,20}[_-])*"
    r"(?:redacted|passphrase|x+|\*+|password|passwd|pass|pwd|pw|secret|token|key|"
    r"tiger|guest|root|admin|minioadmin|postgres|test|user|foo|bar|demo|[a-z]{1,2}|12345\d{0,5}))@",
    re.IGNORECASE,
)


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case: of ``HF_TOKEN``, ``apiKey``, ``x-api-key``."""
    return re.split(r"[^a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower())


def no_token(words: Sequence[str]) -> bool:
    """Whether a token of this name says where a list goes on, or is a public record."""
    said = set(words)
    return words[-1] == "token" and (bool(_PAGING & said) or {"client", "request"} <= said)


def is_public(text: str, at: int) -> bool:
    """Whether what stands before says that what begins here is no secret."""
    return bool(_PUBLIC_TOKEN.search(text, max(0, at - 40), at))


def is_placeholder(value: str) -> bool:
    """Whether a value is to be filled in, or one of a published example."""
    words = (match.group() for match in _PLACEHOLDER.finditer(value))
    # as somebody writes a word: YoUR is drawn at random
    written = any(word in (word.lower(), word.upper(), word.title()) for word in words)
    return written or bool(_PUBLISHED.search(value))


def is_filled_in(value: str) -> bool:
    """Whether a program fills the value in, or somebody is to."""
    return bool(_NO_VALUE.search(value)) or is_placeholder(value)


def stands_for_another(text: str, at: int, key: str) -> bool:
    """Whether what was taken for a secret is a template, a path, a variable or an explanation.

    Args:
        text: The text around it.
        at: Where it begins.
        key: The name beside it; "" without one.
    """
    value = text[at : at + 200].lstrip("\"'`").split("\n", 1)[0]
    if _STANDS_FOR.match(value) or _PUBLISHED.match(value) or (not key and _URL_WORD.match(value)):
        return True
    empty = re.match(r"([\"'`])\1(?!\1)|`[a-z]+`", text[at : at + 20])  # or a command's output
    if empty or no_token(words_of(key)) or is_public(text, at) or _NAMES_ONE.match(key):
        return True
    if key.lower() == "secrets" and re.match(r"\[[a-z_]+\]", value):
        return True  # those that a service of Docker Compose gets, by their names
    if not re.search("pass|pwd", key, re.IGNORECASE) and re.match(
        r"[a-z]+\d?(?:_[a-z]+\d?)+$", value
    ):
        return True  # a variable
    word = re.match(r"[\w.]*", value)
    said = (word.group() if word else "").rpartition(".")[2].rstrip(string.digits)
    return bool(said) and said == key.rpartition(".")[2].rstrip(string.digits)
