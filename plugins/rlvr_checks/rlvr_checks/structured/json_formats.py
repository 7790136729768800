"""Checks that jsonschema lacks or does inexactly: text formats, multiples of fractions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

from jsonschema import FormatChecker, ValidationError

from rlvr_checks.structured.json_patterns import matches

_TIME = r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_DATE_TIME = re.compile(rf"(\d{{4}}-\d\d-\d\d)[t ]({_TIME})", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(
    r"P(?!\Z)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)", re.ASCII
)
_EMAIL = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+\.[^\s@<>,;\"]*[^\s@<>,;\".]")
_HOST = re.compile(
    r"(?=.{1,253}\Z)(?!-)[a-z\d-]{1,63}(?<!-)(\.(?!-)[a-z\d-]{1,63}(?<!-))*",
    re.ASCII | re.IGNORECASE,
)

FORMATS = FormatChecker(formats=("date", "ipv4", "ipv6", "uuid"))
"""Checks ``date``, ``time``, ``date-time``, ``duration``, ``email``, ``hostname``, ``ipv4``,
``ipv6``, ``uri``, ``uuid`` and ``regex``; other formats are ignored, as in the standard."""


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or _full(re.compile(_TIME, re.ASCII | re.I), value)


def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    match = _DATE_TIME.fullmatch(value)
    return match is not None and bool(datetime.strptime(match[1], "%Y-%m-%d"))


def _is_duration(value: object) -> bool:
    return not isinstance(value, str) or _full(_DURATION, value)


def _is_email(value: object) -> bool:
    return not isinstance(value, str) or _full(_EMAIL, value)


def _is_hostname(value: object) -> bool:
    return not isinstance(value, str) or _full(_HOST, value)


def _is_regex(value: object) -> bool:
    return not isinstance(value, str) or isinstance(matches(value, ""), bool)


def _is_uri(value: object) -> bool:
    if not isinstance(value, str):
        return True
    parts = urlsplit(value)
    plain = re.search(r"[\s<>\"{}|\\^`]", value) is None
    needs_host = parts.scheme in ("http", "https", "ftp", "ws", "wss")
    return plain and bool(parts.scheme) and (bool(parts.hostname) or not needs_host)


def _full(pattern: re.Pattern[str], value: str) -> bool:
    return pattern.fullmatch(value) is not None


FORMATS.checks("time")(_is_time)
FORMATS.checks("date-time", raises=ValueError)(_is_date_time)
FORMATS.checks("duration")(_is_duration)
FORMATS.checks("email")(_is_email)
FORMATS.checks("hostname")(_is_hostname)
FORMATS.checks("regex", raises=ValueError)(_is_regex)
FORMATS.checks("uri", raises=ValueError)(_is_uri)


def multiple_of(validator: Any, divisor: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Check ``multipleOf`` in decimal arithmetic, in which 19.99 is a multiple of 0.01."""
    del schema
    if not validator.is_type(value, "number"):
        return
    if (Fraction(repr(value)) / Fraction(repr(divisor))).denominator != 1:
        yield ValidationError(f"{value!r} is not a multiple of {divisor}")
