r"""Regular expressions in schemas: in ECMA 262 syntax, and in linear time where possible.

``jsonschema`` matches with Python's ``re``, in which a text can keep a pattern such as
``^(a+)+$`` busy for years, ``$`` matches before a newline at the end, and ``\d`` matches digits
of every script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import re2
import regex
from jsonschema import ValidationError

from rlvr_checks.structured.json_text import JsonError

SECONDS = 0.5
"""Time limit for one pattern that only a backtracking engine can match."""
_END = re.compile(r"(\\.|\[(?:\\.|[^\]\\])*\])|\$", re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern is found in a text.

    RE2 matches in linear time. Patterns that it does not support, such as look-around and
    back-references, are matched by the package ``regex``.

    Raises:
        JsonError: If ``regex`` does not finish in time.
        ValueError: If the pattern is wrong.
    """
    return _compiled(pattern)(text)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.log_errors = False
    try:
        linear = re2.compile(pattern, options)
    except re2.error:
        pass
    else:
        return lambda text: linear.search(text) is not None
    try:
        ends = _END.sub(lambda match: match[1] or r"\Z", pattern)
        backtracking = regex.compile(ends, regex.ASCII)
    except regex.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error

    def search(text: str) -> bool:
        try:
            return backtracking.search(text, timeout=SECONDS) is not None
        except TimeoutError:
            raise JsonError(f"a text keeps the schema's pattern {pattern[:80]!r} busy") from None

    return search


def pattern_keyword(
    validator: Any, pattern: str, value: Any, schema: Any
) -> Iterator[ValidationError]:
    """Check the keyword ``pattern``."""
    del schema
    if validator.is_type(value, "string") and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any
) -> Iterator[ValidationError]:
    """Check the keyword ``patternProperties``."""
    del schema
    if not validator.is_type(value, "object"):
        return
    for pattern, inside in patterns.items():
        for name, entry in value.items():
            if matches(pattern, name):
                yield from validator.descend(entry, inside, path=name, schema_path=pattern)


def additional_properties(
    validator: Any, inside: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """Check ``additionalProperties``: properties that neither a name nor a pattern allows."""
    if not validator.is_type(value, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, entry in value.items():
        if name in named or any(matches(pattern, name) for pattern in patterns):
            continue
        if inside is False:
            what = f"Additional properties are not allowed ({name[:80]!r} was unexpected)"
            yield ValidationError(what)
        else:
            yield from validator.descend(entry, inside, path=name)


KEYWORDS = {
    "pattern": pattern_keyword,
    "patternProperties": pattern_properties,
    "additionalProperties": additional_properties,
}
"""Replacements for keywords' validators of ``jsonschema``."""
