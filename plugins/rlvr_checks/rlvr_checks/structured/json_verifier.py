"""The verifier ``checks/json``: the answer is JSON that fits a schema, equals a value, or both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_checks.structured.json_text import JsonError, Place, find_json
from rlvr_checks.structured.values import Path, same, share_of_paths
from rlvr_core.api import (
    Completion,
    ComponentConfig,
    DataError,
    Json,
    Problem,
    Verdict,
    VerifierTraits,
)

_SIDE = frozenset(
    {
        "additionalProperties",
        "unevaluatedProperties",
        "dependentRequired",
        "minProperties",
        "maxProperties",
        "propertyNames",
    }
)
"""Faults of an object that do not make its properties wrong."""


class JsonVerifier:
    """Reads the JSON of an answer strictly and compares it with the problem's schema and answer.

    A key that occurs twice, NaN, a text that is cut off and comments are faults, as the standard
    has it. A schema's ``format`` is checked where it is one of ``json_formats``.
    """

    class Config(ComponentConfig):
        """Options of ``checks/json``."""

        schema_field: Annotated[str, Field(min_length=1)] = "schema"
        """Field of the spec with the JSON schema, as an object or its text."""
        answer: Annotated[str, Field(min_length=1)] = "answer"
        """Field of the spec with the right value; a problem needs this, a schema, or both."""
        place: Place = "any"
        """Where the JSON may stand: ``any`` reads the last ``<answer>`` or fenced block, the whole
        answer, or the last object or array in it; ``whole`` allows nothing around it."""
        ignore_order: bool = False
        """Whether the order of arrays is no matter when compared with the answer."""
        partial: bool = False
        """Give a wrong answer the share of its paths that are right, in place of 0."""

    traits = VerifierTraits(reward_range=(0.0, 1.0))

    def __init__(self, config: Config) -> None:
        self._config = config

    def check(self, problem: Problem) -> None:
        """Refuse a problem without schema and answer, or whose schema is wrong.

        Raises:
            DataError: If both fields are missing, the schema is no schema, refers to something
                outside of it or allows everything, or the answer does not fit it.
        """
        schema = self._schema(problem)
        has_answer = self._config.answer in problem.spec
        if schema is None and not has_answer:
            raise DataError(
                f"{problem.id}: checks/json needs the field '{self._config.schema_field}', "
                f"'{self._config.answer}', or both",
                remedy=f"fields there are: {', '.join(map(str, problem.spec)) or 'none'}",
            )
        if schema is None:
            return
        if schema in (True, {}) and not has_answer:
            raise DataError(f"{problem.id}: checks/json: the schema allows everything")
        fault = _schema_fault(schema)
        if fault:
            raise DataError(f"{problem.id}: checks/json: the schema is wrong: {fault}")
        if has_answer:
            errors = _errors(schema, problem.spec[self._config.answer])
            if errors:
                what = _shown(errors[0])
                raise DataError(f"{problem.id}: checks/json: the answer does not fit: {what}")

    def gold(self, problem: Problem) -> str | None:
        """Return the right value as JSON, if known."""
        if self._config.answer not in problem.spec:
            return None
        return json.dumps(problem.spec[self._config.answer], ensure_ascii=False)

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return score 1 if the JSON fits the schema and equals the answer."""
        try:
            schema = self._schema(problem)
            opening = _begins(schema, problem.spec.get(self._config.answer))
            answer_json = find_json(completion.text, self._config.place, opening)
        except JsonError as fault:
            return Verdict(0.0, passed=False, detail=str(fault))
        value, faults, shares = answer_json.value, [], []
        if schema is not None:
            try:
                errors = _errors(schema, value)
            except RecursionError:
                return Verdict(0.0, passed=False, detail="it is nested too deeply for its schema")
            except JsonError as fault:
                return Verdict(0.0, passed=False, extracted=answer_json.text, detail=str(fault))
            if errors:
                faults.append(_shown(errors[0]))
            shares.append(_share(schema, value, errors))
        if self._config.answer in problem.spec:
            answer = problem.spec[self._config.answer]
            if not same(answer, value, ignore_order=self._config.ignore_order):
                faults.append("it is not the answer")
                shares.append(share_of_paths(answer, value))
        passed = not faults
        partial = min(shares) if self._config.partial and shares else 0.0
        return Verdict(
            1.0 if passed else min(partial, 0.99),
            passed=passed,
            extracted=answer_json.text,
            detail="; ".join(faults),
        )

    def _schema(self, problem: Problem) -> Json:
        schema = problem.spec.get(self._config.schema_field)
        if not isinstance(schema, str):
            return schema
        try:
            return json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{problem.id}: checks/json: the schema is not JSON: {error}"
            ) from error


def _begins(schema: Json, answer: Json) -> Literal["{", "[", ""]:
    """Return the first character of the expected JSON; empty if unknown or a scalar."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(answer, Mapping) or kind == "object":
        return "{"
    return "[" if isinstance(answer, list | tuple) or kind == "array" else ""


@lru_cache(maxsize=64)
def _validator(text: str) -> Any:
    """Return a validator of a schema, given as text, that never fetches remote references."""
    import jsonschema
    import referencing

    from rlvr_checks.structured.json_formats import FORMATS, multiple_of
    from rlvr_checks.structured.json_patterns import KEYWORDS

    schema = json.loads(text)
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    exact = jsonschema.validators.extend(cls, {"multipleOf": multiple_of, **KEYWORDS})
    return exact(schema, registry=referencing.Registry(), format_checker=FORMATS)


def _errors(schema: Json, value: Any) -> list[Any]:
    validator = _validator(json.dumps(schema, sort_keys=True))
    return sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.path)))


def _schema_fault(schema: Json) -> str | None:
    import jsonschema
    import referencing.exceptions
    import referencing.jsonschema

    from rlvr_checks.structured.json_patterns import matches

    if not isinstance(schema, dict | bool):
        return f"a schema is an object, not {type(schema).__name__}"
    try:
        cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        cls.check_schema(schema, jsonschema.FormatChecker(formats=()))
        resource = referencing.jsonschema.DRAFT202012.create_resource(schema)
        resolver = referencing.Registry().resolver_with_root(resource)
        for keyword, value in _keywords(schema):
            if keyword == "$ref" and isinstance(value, str):
                resolver.lookup(value)
            if keyword == "pattern" and isinstance(value, str):
                matches(value, "")
            if keyword == "patternProperties" and isinstance(value, dict):
                for pattern in value:
                    matches(pattern, "")
    except jsonschema.SchemaError as error:
        return str(error.message).splitlines()[0]
    except referencing.exceptions.Unresolvable as error:
        return f"it refers to {error.ref!r}, which is not in it"
    except ValueError as error:
        return str(error)
    return None


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield all entries of a schema and its subschemas, except inside constants such as enums."""
    if isinstance(schema, dict):
        for name, value in schema.items():
            yield name, value
            if name not in ("const", "enum", "default", "examples"):
                yield from _keywords(value)
    elif isinstance(schema, list):
        for subschema in schema:
            yield from _keywords(subschema)


def _shown(error: Any) -> str:
    """Return a validation error as one line, without the whole value."""
    where = error.json_path.removeprefix("$").removeprefix(".") or "the value"
    return f"{where[:80]}: {error.message[:200]}"


def _share(schema: Json, value: Any, errors: list[Any]) -> float:
    """Return the share of the paths named by the schema that have no fault.

    Items of an array count together, and properties that the schema does not name do not count:
    adding more of them must not improve an answer.
    """
    wrong: set[Path] = set()
    for error in errors:
        path = tuple(error.absolute_path)
        if error.validator == "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            wrong.update((*path, name) for name in missing)
        else:
            wrong.add((*path, f"({error.validator})") if error.validator in _SIDE else path)
    named = set(_named(schema, value, ()))
    right = {
        path
        for path in named
        if not any(path[: len(bad)] == bad or bad[: len(path)] == path for bad in wrong)
    }
    extra = sum(not any(p[: len(bad)] == bad[: len(p)] for p in named) for bad in wrong)
    return len(right) / max(1, len(named) + extra)


def _named(schema: Any, value: Any, path: Path) -> Iterator[Path]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not isinstance(value, Mapping):
        yield path
        return
    required = schema.get("required", ())
    for name, inside in properties.items():
        if name in value:
            yield from _named(inside, value[name], (*path, name))
        elif name in required:
            yield (*path, name)
