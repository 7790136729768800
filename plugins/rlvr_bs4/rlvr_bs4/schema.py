"""The form of an answer: a small part of JSON Schema, said in words, and compared exactly.

``canon`` gives one spelling to all answers that mean the same; two answers are equal when their
spellings are. What does not have the form at all has none.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from decimal import Decimal

from rlvr_bs4.task import canonical
from rlvr_core.api import Json

STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
BOOLEAN: Json = {"type": "boolean"}
MONEY: Json = {"type": "string", "format": "money"}
_AMOUNT = re.compile(
    r"(?P<sign>-?)(?P<currency>[$€£])(?P<whole>\d{1,3}(?:,\d{3})+|\d+)\.(?P<cents>\d\d)"
)


def array(items: Json, *, ordered: bool = True) -> Json:
    """A list; without ``ordered`` any order is right."""
    return {"type": "array", "items": items} | ({} if ordered else {"ordered": False})


def record(**fields: Json) -> Json:
    """An object with exactly these keys."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def nullable(schema: Json) -> Json:
    """Return the schema that also allows null."""
    return schema | {"type": [schema["type"], "null"]}


def describe(schema: Json) -> str:
    """The form in words."""
    kind, or_null = _kind(schema)
    match kind:
        case "array":
            order = "" if schema.get("ordered", True) else " in any order"
            text = f"a list{order}, each item {describe(schema['items'])}"
        case "object":
            fields = schema["properties"].items()
            inside = "; ".join(f'"{name}": {describe(field)}' for name, field in fields)
            text = f"an object with exactly these keys: {{{inside}}}"
        case "string":
            money = 'an amount like "$1234.50", as a string'
            text = money if schema.get("format") == "money" else "a string"
        case "integer":
            text = "a whole number"
        case _:
            text = "true or false"
    return f"{text}, or null" if or_null else text


def canon(schema: Json, value: Json) -> str | None:
    """The one spelling of all values equal to this; None if it does not have the form.

    Strings are equal in Unicode's composed form with runs of white space as one space; case
    counts. ``true`` is not a number, and neither ``4.0`` nor ``"4"`` is a whole number.
    """
    kind, or_null = _kind(schema)
    if value is None:
        return "null" if or_null else None
    match kind:
        case "array":
            return _array(schema, value) if isinstance(value, list) else None
        case "object":
            return _object(schema, value) if isinstance(value, dict) else None
        case "boolean":
            return canonical(value) if isinstance(value, bool) else None
        case "integer":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return canonical(value) if whole else None
    if not isinstance(value, str):
        return None
    text = " ".join(unicodedata.normalize("NFC", value).split())
    return _money(text) if schema.get("format") == "money" else canonical(text)


def share(schema: Json, truth: Json, value: Json) -> float:
    """How much of the truth a value holds, from 0 to 1; 1 only if they are equal.

    Of a list it is the F1 of its items, of an object the share of its keys.
    """
    if canon(schema, value) == canon(schema, truth):
        return 1.0
    kind, _ = _kind(schema)
    part = 0.0
    if kind == "array" and isinstance(value, list) and isinstance(truth, list):
        items = schema["items"]
        wanted = Counter(canon(items, item) for item in truth)
        given = Counter(canon(items, item) for item in value)
        hits = sum((wanted & given).values())
        part = 2 * hits / (len(truth) + len(value)) if hits else 0.0
    elif kind == "object" and isinstance(value, dict) and isinstance(truth, dict):
        fields = schema["properties"]
        hits = sum(
            name in value and canon(field, value[name]) == canon(field, truth[name])
            for name, field in fields.items()
        )
        part = hits / len({*fields, *value})
    return min(part, 0.99)


def _kind(schema: Json) -> tuple[str, bool]:
    kind = schema["type"]
    return (kind[0], True) if isinstance(kind, list) else (kind, False)


def _array(schema: Json, value: list[Json]) -> str | None:
    items = [canon(schema["items"], item) for item in value]
    known = [item for item in items if item is not None]
    if len(known) < len(items):
        return None
    return f"[{','.join(known if schema.get('ordered', True) else sorted(known))}]"


def _object(schema: Json, value: dict[str, Json]) -> str | None:
    fields = schema["properties"]
    if set(value) != set(fields):
        return None
    pairs = [(name, canon(field, value[name])) for name, field in sorted(fields.items())]
    if any(text is None for _, text in pairs):
        return None
    return f"{{{','.join(f'{canonical(name)}:{text}' for name, text in pairs)}}}"


def _money(text: str) -> str | None:
    """Currency and amount: ``$1,234.50`` equals ``$1234.50``, ``€5.00`` does not ``$5.00``."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    amount = Decimal(f"{match['sign']}{match['whole'].replace(',', '')}.{match['cents']}")
    return canonical(f"{match['currency']}{amount + 0}")
