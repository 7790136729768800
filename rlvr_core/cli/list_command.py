"""``rlvr list``: the components that a config can name, and their options."""

from __future__ import annotations

import difflib
import inspect
import json
from typing import Any

import click
from pydantic import PydanticUserError

from rlvr_core.api import ConfigError, PluginError, config_class
from rlvr_core.config.keys import component_keys
from rlvr_core.config.tree import COMPONENTS
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.plugins.registry import KINDS, Entry, kind_words, parse_kind, plural
from rlvr_core.terminal.output import print_json, print_line, print_table


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
        value = json.dumps(field["default"], ensure_ascii=False)
        default = "required" if field["required"] else f"default {value}"
        print_line(f"  {field['name']}: {field['type']} ({default})")
        if field["description"]:
            print_line(f"      {' '.join(field['description'].split())}")
    print_line(f"\nexample\n{_indent(example)}")


def _doc(component: object) -> str:
    return inspect.getdoc(component) or ""


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _fields(entry: Entry, component: Any) -> list[dict[str, Any]]:
    """The options of a component, those nested in others included, as JSON."""
    try:
        keys = component_keys(config_class(component), ())
    except (TypeError, PydanticUserError) as error:
        raise PluginError(
            f"{kind_words(str(entry.kind))} '{entry.name}' has a Config that cannot be described: "
            f"{error}",
            where=str(entry.registered),
            remedy=f"report it to the author of plugin {entry.plugin}",
        ) from error
    return [
        {
            "name": key.path.removeprefix("with."),
            "type": key.type,
            "required": key.required,
            "default": None if key.required else key.default,
            "description": key.description,
        }
        for key in keys
    ]


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
    place = next((loc for loc, kind in COMPONENTS.items() if kind == entry.kind), ())
    for step in reversed(place):
        block = [block] if step == "*" else {step: block}
    return yaml.safe_dump(block, sort_keys=False, allow_unicode=True, width=100).rstrip()
