"""Pydantic's errors as complaints in plain words, with the line and a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlvr_core.api import Complaint
from rlvr_core.config.model import RunConfig
from rlvr_core.config.other_names import OTHER_NAMES
from rlvr_core.config.tree import Loc, Node, dotted, kind_at, shown
from rlvr_core.config.words import (
    Schema,
    description,
    follow,
    properties_at,
    schema_at,
    schema_of,
    words,
)

_TOLD_BY_SCHEMA = (
    "_type",
    "_parsing",
    "int_from_float",
    "literal_error",
    "enum",
    "greater_than",
    "less_than",
    "too_short",
    "too_long",
    "multiple_of",
    "string_pattern_mismatch",
    "none_required",
)
_NOT_BOOLEANS = {"yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True)
class Subject:
    """The section that is validated.

    Attributes:
        model: Its model.
        root: The tree that holds it, for lines.
        prefix: Where in the tree it begins.
        owner: ``loss 'core/grpo'`` for the options of a component, empty for the file itself.
    """

    model: type[BaseModel]
    root: Node
    prefix: Loc = ()
    owner: str = ""

    @property
    def schema(self) -> Schema:
        """Schema of the model."""
        return schema_of(self.model)

    def where(self, loc: Loc, *, key: bool = False) -> str:
        """The place of a location inside it; the line of its key rather than of its value."""
        return self.root.where((*self.prefix, *loc), key)

    def raw(self, loc: Loc) -> str | None:
        """A scalar as it was written; None for anything else."""
        node = self.root.find((*self.prefix, *loc))
        return None if node is None else node.raw

    def order(self, loc: Loc) -> tuple[str, int]:
        """Sorts locations as they come in the file."""
        return self.root.nearest((*self.prefix, *loc)).key_mark

    def name(self, loc: Loc) -> str:
        """A location as a message says it."""
        if not self.owner:
            return dotted(loc) or "the file"
        return f"option {dotted(loc)!r} of {self.owner}" if loc else self.owner


def complaints(
    error: ValidationError,
    data: Any,
    model: type[BaseModel],
    root: Node,
    prefix: Loc = (),
    owner: str = "",
) -> list[Complaint]:
    """One complaint per fault; the branches of a union are folded into one.

    Args:
        error: What pydantic found.
        data: What was validated.
        model: What it was validated against.
        root: The tree that holds it, for lines.
        prefix: Where in the tree it begins.
        owner: ``loss 'core/grpo'`` for the options of a component, empty for the file itself.
    """
    subject = Subject(model, root, prefix, owner)
    explained: dict[tuple[Loc, str], Complaint] = {}
    unions: dict[Loc, list[tuple[Loc, ErrorDetails]]] = {}
    for detail in error.errors(include_url=False):
        loc, union = _clean(detail, data)
        if union is None:
            explained.setdefault((loc, detail["type"]), _complaint(loc, detail, subject))
        else:
            unions.setdefault(union, []).append((loc, detail))
    for union, members in unions.items():
        inside = [(loc, detail) for loc, detail in members if len(loc) > len(union)]
        for loc, detail in inside or [(union, members[0][1])]:
            kind = detail["type"] if inside else "union_type"
            value = detail if inside else {**detail, "type": kind, "input": _at(data, union)}
            explained.setdefault((loc, kind), _complaint(loc, value, subject))
    return [explained[key] for key in sorted(explained, key=_order(subject))]


def _order(subject: Subject) -> Callable[[tuple[Loc, str]], tuple[str, int]]:
    return lambda key: subject.order(key[0])


def _at(data: Any, loc: Loc) -> Any:
    for step in loc:
        data = data[step]
    return data


def _clean(detail: ErrorDetails, data: Any) -> tuple[Loc, Loc | None]:
    """The location without the names pydantic gives to branches, and where the union is."""
    loc: list[str | int] = []
    union: Loc | None = None
    steps = detail["loc"]
    for index, step in enumerate(steps):
        item = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if item or (isinstance(data, dict) and step in data):
            loc.append(step)
            data = data[step]
        elif detail["type"] == "missing" and index == len(steps) - 1:
            loc.append(step)
        elif union is None:
            union = tuple(loc)
    return tuple(loc), union


def _complaint(loc: Loc, detail: ErrorDetails, subject: Subject) -> Complaint:
    kind = detail["type"]
    if kind == "missing":
        return _missing(loc, subject)
    if kind == "extra_forbidden":
        return _unknown(loc, subject)
    message = detail["msg"]
    if kind in ("value_error", "assertion_error"):
        message = message.partition(", ")[2] or message
        return Complaint(f"{subject.name(loc)}: {message}", subject.where(loc))
    value = subject.raw(loc) if isinstance(detail["input"], int | float) else None
    given = shown(detail["input"]) if value is None else value
    schema = schema_at(subject.schema, loc)
    name = subject.name(loc)
    if kind == "finite_number":
        what = f"{name} must be a finite number, not {given}"
    elif schema is None or not any(part in kind for part in _TOLD_BY_SCHEMA):
        what = f"{name}: {message[:1].lower()}{message[1:]}, not {given}"
    else:
        what = f"{name} must be {words(schema, subject.schema)}, not {given}"
    return Complaint(
        what, subject.where(loc), _type_remedy(detail["input"], given, schema or {}, what)
    )


def _type_remedy(value: Any, given: str, schema: Schema, what: str) -> tuple[str, ...]:
    kinds = {branch.get("type") for branch in (schema, *schema.get("anyOf", ()))}
    if isinstance(value, str) and value in schema.get("instead_of", {}):
        return (schema["instead_of"][value],)
    if value is None:
        return ("give it a value, or leave the line out",)
    if isinstance(value, str) and value.lower() in _NOT_BOOLEANS and "false" in what:
        return ("yes, no, on and off are text here: write true or false",)
    if isinstance(value, int | float) and "string" in kinds:
        return (f'put it in quotes: "{given}"',)
    single = any("$ref" in branch for branch in schema.get("anyOf", ()))
    if isinstance(value, str | int | float) and "array" in kinds and not single:
        return (f"write it as a list: [{given}]",)
    return ()


def _missing(loc: Loc, subject: Subject) -> Complaint:
    schema = schema_at(subject.schema, loc) or {}
    about = description(schema)
    expected = words(schema, subject.schema)
    return Complaint(
        f"{subject.name(loc)} is missing",
        subject.where(loc),
        (f"add it: it takes {expected}" + (f": {about}" if about else ""),),
    )


def _unknown(loc: Loc, subject: Subject) -> Complaint:
    key = str(loc[-1])
    known = list(properties_at(subject.schema, loc[:-1]))
    noun = "option" if subject.owner else "key"
    within = f" in {dotted(loc[:-1])}" if len(loc) > 1 else ""
    owner = f" of {subject.owner}" if subject.owner else ""
    return Complaint(
        f"unknown {noun} {key!r}{within}{owner}",
        subject.where(loc, key=True),
        tuple(_suggestions(key, known, loc, subject)),
    )


def _suggestions(key: str, known: list[str], loc: Loc, subject: Subject) -> list[str]:
    lines: list[str] = []
    if key in OTHER_NAMES:
        return [f"it is {OTHER_NAMES[key]} here"]
    close = near(key, known)
    if close:
        lines.append("did you mean: " + ", ".join(close) + "?")
    elsewhere = all_paths() if subject.model is RunConfig else ()
    other = [path for path in elsewhere if path.rpartition(".")[2] == key]
    if other:
        lines.append("it belongs elsewhere: " + " or ".join(other[:3]))
    if not subject.owner and kind_at(loc[:-1]) and not close:
        lines.append(f"options of a component go under 'with': {{use: ..., with: {{{key}: ...}}}}")
    if not lines and known:
        lines.append("known: " + ", ".join(known))
    elif not lines:
        lines.append("it takes no options")
    return lines


def near(key: str, known: Sequence[str]) -> list[str]:
    """Up to three known names that look like ``key``."""
    plain = {name.lower().replace("-", "_"): name for name in known}
    matches = difflib.get_close_matches(key.lower().replace("-", "_"), plain, n=3, cutoff=0.6)
    return [plain[match] for match in matches]


@cache
def all_paths() -> tuple[str, ...]:
    """Every key of a run two levels deep, dotted."""
    root = schema_of(RunConfig)
    return tuple(
        f"{section}.{key}"
        for section, schema in root["properties"].items()
        for key in follow(schema, root).get("properties", {})
        if key not in ("use", "with")
    )
