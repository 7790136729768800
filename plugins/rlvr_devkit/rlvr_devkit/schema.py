"""``rlvr schema``: the JSON schema of a run's configuration, with the options of every component.

Used as ``# yaml-language-server: $schema=rlvr.schema.json`` at the top of a config.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rlvr_core.api import RlvrError, config_class
from rlvr_core.config.model import RunConfig
from rlvr_core.config.tree import AUTO, COMPONENTS, Loc
from rlvr_core.config.words import schema_of
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.plugins.registry import Entry
from rlvr_core.record.files import write_atomic
from rlvr_core.terminal.output import print_json, print_line

_ENV = {"type": "string", "pattern": r"^\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}$"}

JsonSchema = dict[str, Any]


@click.command("schema")
@click.option("--out", type=click.Path(dir_okay=False), help="Write it to this file.")
def schema_command(out: str | None) -> None:
    """Print the JSON schema of configs, for editors.

    It knows the components of every installed plugin. Put this at the top of a config:

        # yaml-language-server: $schema=rlvr.schema.json
    """
    schema, troubles = config_schema(load_host())
    for trouble in troubles:
        print_line(f"warning: its options are left open: {trouble}", stderr=True)
    if out is None:
        print_json(schema)
        return
    write_atomic(Path(out), json.dumps(schema, indent=1) + "\n")
    print_line(f"wrote {out}")


def config_schema(host: Host) -> tuple[JsonSchema, list[str]]:
    """The schema, components of all loaded plugins included.

    Args:
        host: The plugins.

    Returns:
        The schema, and a line for each component whose options could not be had: its ``with`` is
        left open.
    """
    root: JsonSchema = copy.deepcopy(dict(schema_of(RunConfig)))
    troubles: list[str] = []
    for place, kind in COMPONENTS.items():
        entries = list(host.registry.of(kind))
        _set_place(root, place, _reference(root, place, entries, troubles))
    _ease_required(root)
    root["properties"]["extends"] = {
        "type": "string",
        "description": "A file this one goes on top of, relative to this one.",
    }
    _tidy(root)
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    root["title"] = "rlvr run configuration"
    return root, list(dict.fromkeys(troubles))


def _reference(
    root: JsonSchema, place: Loc, entries: list[Entry], troubles: list[str]
) -> JsonSchema:
    """Return the schema of a component reference, ``with`` tied to ``use``."""
    mapping = copy.deepcopy(dict(_at(root, place)))
    single = "*" not in place
    if single:
        mapping.pop("required", None)  # without `use`, the default component or an inherited one
    names: list[JsonSchema] = []
    ties: list[JsonSchema] = []
    if place in AUTO:
        names.append({"const": "auto", "description": AUTO[place]})
        ties.append(_tie(["auto"], {"type": "object", "maxProperties": 0}, needed=False))
    leaves = [entry.leaf for entry in entries]
    for entry in entries:
        known = [entry.name] + ([entry.leaf] if leaves.count(entry.leaf) == 1 else [])
        names += [{"const": name, "description": entry.summary} for name in known]
        options = _options(root, entry, troubles)
        if single:
            options.pop("required", None)
        if options:
            ties.append(_tie(known, options, needed=bool(options.get("required"))))
    named = {"anyOf": names} if names else {"type": "string"}
    mapping["properties"]["use"] = {**mapping["properties"]["use"], **named}
    if ties:
        mapping["allOf"] = ties
    return {"anyOf": [named, mapping], "description": mapping.get("description", "")}


def _tie(names: list[str], options: JsonSchema, *, needed: bool) -> JsonSchema:
    then: JsonSchema = {"properties": {"with": options}}
    if needed:
        then["required"] = ["with"]
    return {
        "if": {"properties": {"use": {"enum": names}}, "required": ["use"]},
        "then": then,
    }


def _options(root: JsonSchema, entry: Entry, troubles: list[str]) -> JsonSchema:
    """The schema of a component's ``with``, its definitions moved to the top."""
    try:
        schema: JsonSchema = copy.deepcopy(dict(schema_of(config_class(entry.load()))))
    except RlvrError as error:
        troubles.append(f"{entry.name}: {error.complaints[0].what}")
        return {}
    except TypeError as error:
        troubles.append(f"{entry.name}: {error}")
        return {}
    prefix = f"{entry.kind}.{entry.name.replace('/', '.')}."
    for name, definition in schema.pop("$defs", {}).items():
        root["$defs"][prefix + name] = definition
        _prefix_refs(definition, prefix)
    _prefix_refs(schema, prefix)
    return schema


def _prefix_refs(schema: Any, prefix: str) -> None:
    for node in _nodes(schema):
        name = str(node.get("$ref", "")).removeprefix("#/$defs/")
        if name and isinstance(node["$ref"], str):
            node["$ref"] = f"#/$defs/{prefix}{name}"


def _nodes(schema: Any) -> Iterator[JsonSchema]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _nodes(value)


def _at(root: JsonSchema, place: Loc) -> JsonSchema:
    """The mapping that may stand at a place, read only."""
    here: JsonSchema = root
    for step in place:
        here = _child(here, step, root)
    kept: JsonSchema = {key: here[key] for key in ("description", "default") if key in here}
    return {**_branch(here, "properties", root), **kept}


def _child(schema: JsonSchema, step: str | int, root: JsonSchema) -> JsonSchema:
    """Return the object below one step of a place, not a copy."""
    if step == "*":
        return _branch(schema, "items", root)["items"]  # type: ignore[no-any-return]
    return _branch(schema, "properties", root)["properties"][step]  # type: ignore[no-any-return]


def _branch(schema: JsonSchema, key: str, root: JsonSchema) -> JsonSchema:
    """The one that has ``key``, of the branches of a union if it is one."""
    for branch in [schema, *schema.get("anyOf", ())]:
        name = str(branch.get("$ref", "")).rpartition("/")[2]
        target: JsonSchema = root["$defs"][name] if name else branch
        if key in target:
            return target
    raise KeyError(key)


def _set_place(root: JsonSchema, place: Loc, schema: JsonSchema) -> None:
    """Put what a component may be at its place, beside the list or null that may stand there."""
    above: JsonSchema = root
    for step in place[:-1]:
        above = _child(above, step, root)
    key = "items" if place[-1] == "*" else "properties"
    holder = _branch(above, key, root)
    holder, last = (holder, "items") if key == "items" else (holder[key], str(place[-1]))
    old = holder[last]
    others = [branch for branch in old.get("anyOf", ()) if "type" in branch]
    kept = {"default": old["default"]} if "default" in old else {}
    holder[last] = {**schema, **kept, "anyOf": [*schema["anyOf"], *others]}


def _ease_required(root: JsonSchema) -> None:
    """Ask for required keys only in a file that extends no other."""
    sections: JsonSchema = {}
    for name, reference in root["properties"].items():
        section = root["$defs"].get(str(reference.get("$ref", "")).rpartition("/")[2], {})
        if "required" in section:
            sections[name] = {"required": section.pop("required")}
    root["if"] = {"not": {"required": ["extends"]}}
    root["then"] = {"required": root.pop("required"), "properties": sections}


def _tidy(root: JsonSchema) -> None:
    """Drop machine-made titles; let environment variables stand for numbers and truth values."""
    before: set[str] = set()
    while before != set(root["$defs"]):  # what is dropped may have used others
        before = set(root["$defs"])
        used = {str(node.get("$ref", "")).rpartition("/")[2] for node in _nodes(root)}
        root["$defs"] = {name: value for name, value in root["$defs"].items() if name in used}
    for node in list(_nodes(root)):
        if isinstance(node.get("title"), str) and "properties" not in node:
            node.pop("title")
        if node.get("type") in ("integer", "number", "boolean") and "const" not in node:
            node["type"] = [node["type"], "string"]
            node["pattern"] = _ENV["pattern"]
        elif isinstance(node.get("enum"), list) and "type" in node:
            options = {"enum": node.pop("enum"), "type": node.pop("type")}
            node["anyOf"] = [options, dict(_ENV)]
