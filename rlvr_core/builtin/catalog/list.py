"""``rlvr list``: what can be named in a config, and the options of each."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

import click

from rlvr_core.api import ConfigError, PluginError, config_class
from rlvr_core.api.services import (
    KINDS,
    Entry,
    Host,
    kind_words,
    load_host,
    parse_kind,
    plural,
    print_json,
    print_line,
    print_table,
)


@click.command("list")
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(kind: str | None, name: str | None, as_json: bool) -> None:
    """List what a config can name.

    Without arguments everything; with KIND (datasets, verifiers, losses, samplers, engines,
    eval_tasks, ...) that kind; with KIND and NAME its options and an example.
    """
    host = load_host()
    if kind is None:
        _print_all(host, KINDS, as_json)
        return
    known = parse_kind(kind)
    if known is None:
        raise _unknown_kind(kind)
    if name is None:
        _print_all(host, (known,), as_json)
    else:
        _print_one(host.entry(known, name), as_json)


def _unknown_kind(kind: str) -> ConfigError:
    names = [plural(known) for known in KINDS]
    close = difflib.get_close_matches(kind.lower(), names, n=1)
    remedy = [f"did you mean: {close[0]}?"] if close else []
    return ConfigError(
        f"there is no kind '{kind}'", remedy=[*remedy, f"the kinds are: {', '.join(names)}"]
    )


def _print_all(host: Host, kinds: tuple[str, ...], as_json: bool) -> None:
    entries = [entry for kind in kinds for entry in host.registry.of(kind)]
    if as_json:
        print_json([_brief(entry) for entry in entries])
        return
    rows = [(kind_words(str(entry.kind)), entry.name, entry.summary) for entry in entries]
    if rows:
        print_table(("kind", "name", "summary"), rows)
    else:
        print_line(f"no installed plugin offers {plural(kinds[0])}".replace("_", " "))
    broken = [record.name for record in host.records if record.status == "failed"]
    if broken:
        print_line(
            f"plugins that failed to load: {', '.join(broken)}; see: rlvr plugins list", stderr=True
        )


def _brief(entry: Entry) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "plugin": entry.plugin,
        "summary": entry.summary,
        "target": entry.target,
    }


def _print_one(entry: Entry, as_json: bool) -> None:
    component = entry.load()
    fields = _fields(entry, component)
    example = _example(entry, fields)
    if as_json:
        brief = _brief(entry)
        print_json({**brief, "doc": _doc(component), "fields": fields, "example": example})
        return
    print_line(f"{kind_words(str(entry.kind))} {entry.name}: {entry.summary}")
    print_line(f"  from {entry.plugin}, {entry.target}")
    if _doc(component):
        print_line(f"\n{_doc(component)}")
    print_line("\noptions" if fields else "\nno options")
    for field in fields:
        default = "required" if field["required"] else f"default {_yaml(field['default'])}"
        print_line(f"  {field['name']}: {field['type']} ({default})")
        if field["description"]:
            print_line(f"      {' '.join(field['description'].split())}")
    print_line(f"\nexample\n{_indent(example)}")


def _doc(component: object) -> str:
    return inspect.getdoc(component) or ""


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _fields(entry: Entry, component: Any) -> list[dict[str, Any]]:
    """The options of a component, as JSON."""
    from pydantic import PydanticUserError
    from pydantic_core import to_jsonable_python

    try:
        config = config_class(component)
        schema = config.model_json_schema()
    except (TypeError, PydanticUserError) as error:
        raise PluginError(
            f"{kind_words(str(entry.kind))} '{entry.name}' has a Config that cannot be described: "
            f"{error}",
            where=str(entry.registered),
            remedy=f"report it to the author of plugin {entry.plugin}",
        ) from error
    fields = []
    for name, field in config.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        plain = to_jsonable_python(default, by_alias=True, fallback=repr)
        key = field.alias or name
        types = schema["properties"][key]
        fields += _describe(key, types, field.is_required(), plain, schema.get("$defs", {}))
    return fields


def _describe(
    name: str, schema: dict[str, Any], required: bool, default: Any, defs: dict[str, Any]
) -> list[dict[str, Any]]:
    """A field, followed by those nested in it (``importance_correction.cap``)."""
    described = {
        "name": name,
        "type": _type(schema, defs),
        "required": required,
        "default": default,
        "description": " ".join(schema.get("description", "").split()),
    }
    nested = _resolved(schema, defs) if name.count(".") < 3 else {}  # a type may hold itself
    inner = default if isinstance(default, dict) else {}
    below = [
        field
        for key, part in nested.get("properties", {}).items()
        for field in _describe(
            f"{name}.{key}",
            part,
            key in nested.get("required", ()),
            inner.get(key, part.get("default")),
            defs,
        )
    ]
    return [described, *below]


def _resolved(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    return defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


_WORDS = {
    "integer": "int",
    "number": "float",
    "string": "text",
    "boolean": "true | false",
    "object": "mapping",
    "null": "null",
}
_RULES = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matching {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}


def _type(schema: dict[str, Any], defs: dict[str, Any]) -> str:
    """A JSON schema in words: ``int >= 0``, ``"a" | "b"``, ``list of text``."""
    if "$ref" in schema:
        return _type(_resolved(schema, defs), defs)
    if "anyOf" in schema or "oneOf" in schema:
        options = schema.get("anyOf") or schema["oneOf"]
        return " | ".join(dict.fromkeys(_type(option, defs) for option in options))
    if "enum" in schema or "const" in schema:
        return " | ".join(_yaml(value) for value in schema.get("enum", [schema.get("const")]))
    if "prefixItems" in schema:
        return f"list of ({', '.join(_type(item, defs) for item in schema['prefixItems'])})"
    word = _WORDS.get(str(schema.get("type")), "anything")
    if schema.get("type") == "array":
        word = f"list of {_type(schema.get('items', {}), defs)}"
    rules = [text.format(schema[rule]) for rule, text in _RULES.items() if rule in schema]
    return " ".join([word, ", ".join(rules)]).strip()


def _yaml(value: Any) -> str:
    """A value on one line, as a config writes it."""
    import yaml

    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


_PATHS = {
    "dataset": ("data", "sources", 0),
    "verifier": ("rewards", 0),
    "loss": ("loss",),
    "sampler": ("sampler",),
    "engine": ("engine",),
    "eval_task": ("eval", "tasks", 0),
    "guard": ("guards", 0),
}
"""Where a config names a component of each kind."""


def _example(entry: Entry, fields: list[dict[str, Any]]) -> str:
    """The YAML that names this component, with its options as they are by default."""
    import yaml

    options = {
        field["name"]: "..." if field["required"] else field["default"]
        for field in fields
        if "." not in field["name"] and (field["required"] or field["default"] is not None)
    }
    block: Any = {"use": entry.name}
    if options:
        block["with"] = options
    for step in reversed(_PATHS.get(str(entry.kind), ())):
        block = [block] if step == 0 else {step: block}
    return yaml.safe_dump(block, sort_keys=False, allow_unicode=True, width=100).rstrip()
