"""Describes JSON schemas in words, for messages, ``explain`` and the reference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from rlvr_core.config.tree import Loc, shown

Schema = Mapping[str, Any]


@cache
def schema_of(model: type[BaseModel]) -> Schema:
    """JSON schema of a model by the names used in YAML; empty when it cannot be expressed."""
    try:
        return model.model_json_schema(by_alias=True)
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError):
        return {}


def follow(schema: Schema, root: Schema) -> Schema:
    """``schema`` with its reference replaced by what it refers to, its own words kept."""
    if "$ref" in schema:
        target = root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    if len(schema.get("allOf", ())) == 1:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        return {**follow(schema["allOf"][0], root), **rest}
    return schema


def schema_at(root: Schema, loc: Loc) -> Schema | None:
    """Schema of the value at ``loc``; None when there is no such place."""
    here: Schema | None = root
    for step in loc:
        here = None if here is None else _down(follow(here, root), step, root)
    return None if here is None else follow(here, root)


def _down(schema: Schema, step: str | int, root: Schema) -> Schema | None:
    for branch in schema.get("anyOf", ()) or schema.get("oneOf", ()):
        below = _down(follow(branch, root), step, root)
        if below is not None:
            return below
    if isinstance(step, int) or step == "*":
        fixed = schema.get("prefixItems", ())
        if isinstance(step, int) and step < len(fixed):
            return _mapping(fixed[step])
        return _mapping(schema.get("items"))
    inner = schema.get("properties", {}).get(step)
    return _mapping(schema.get("additionalProperties") if inner is None else inner)


def _mapping(schema: Any) -> Schema | None:
    return {} if schema is True else schema if isinstance(schema, dict) else None


def properties_at(root: Schema, loc: Loc) -> dict[str, Schema]:
    """The keys that the mapping at ``loc`` may have."""
    schema = schema_at(root, loc) or {}
    properties: dict[str, Schema] = dict(schema.get("properties", {}))
    for branch in schema.get("anyOf", ()):
        properties |= follow(branch, root).get("properties", {})
    return properties


def words(schema: Schema, root: Schema) -> str:
    """Describe the values that a schema accepts, to follow "must be"."""
    schema = follow(schema, root)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        single = {words(b, root) for b in branches if follow(b, root).get("type") != "array"}
        parts = sorted(
            dict.fromkeys(_branch(branch, root, single) for branch in branches), key=_is_null
        )
        return " or ".join(parts)
    if "const" in schema:
        return shown(schema["const"])
    if "enum" in schema:
        options = [shown(option) for option in schema["enum"]]
        return f"one of {', '.join(options)}" if len(options) > 1 else options[0]
    kind = schema.get("type")
    if kind == "array":
        return _array(schema, root)
    if kind == "object":
        properties = schema.get("properties", {})
        component = {"use", "with"} <= set(properties)
        return "a component: NAME or {use: NAME, with: {...}}" if component else "a mapping"
    if kind == "string":
        return _text(schema)
    simple = {"boolean": "true or false", "null": "null"}
    numbers = {"integer": "a whole number", "number": "a number"}
    if kind in numbers:
        return f"{numbers[str(kind)]}{_bounds(schema)}"
    return simple.get(str(kind), "anything")


def _branch(schema: Schema, root: Schema, others: set[str]) -> str:
    """One branch of a union; a list of another branch's items is not described again."""
    items = follow(schema, root).get("items")
    return "a list of those" if items and words(items, root) in others else words(schema, root)


def _is_null(text: str) -> bool:
    return text == "null"


def _array(schema: Schema, root: Schema) -> str:
    if "prefixItems" in schema:
        return f"a list of {len(schema['prefixItems'])} values"
    least, most = schema.get("minItems"), schema.get("maxItems")
    size = f" of at least {least}" if least else ""
    size += f"{' and' if least else ' of'} at most {most}" if most is not None else ""
    items = schema.get("items")
    inner = words(items, root) if isinstance(items, dict) and items else ""
    return f"a list{size}" + (f", each {inner}" if inner and inner != "anything" else "")


_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "text of letters, digits, '.', '_' and '-', the first of them "
    "a letter or digit",
    r"^.+:[^:]+$": "text of the form TASK:METRIC",
}
"""Meaning of common patterns."""


def _text(schema: Schema) -> str:
    if "pattern" in schema:
        pattern = schema["pattern"]
        return _PATTERNS.get(pattern, f"text that matches {pattern}")
    if schema.get("format") == "path":
        return "a path"
    least, most = schema.get("minLength"), schema.get("maxLength")
    if most is not None:
        return f"text of {least or 0} to {most} characters"
    return "text that is not empty" if least == 1 else "text"


def _bounds(schema: Schema) -> str:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    parts = [
        f"{name} {value:g}"
        for name, value in (
            ("above", above),
            ("of at least", low),
            ("below", below),
            ("at most", high),
        )
        if value is not None
    ]
    step = schema.get("multipleOf")
    return (" " + " and ".join(parts) if parts else "") + (
        f", a multiple of {step:g}" if step is not None else ""
    )


def description(schema: Schema) -> str:
    """Return a schema's description on one line."""
    return " ".join(str(schema.get("description", "")).replace("``", "'").split())
