"""``rlvr config``: check a configuration, print it in full, and say what its keys mean."""

from __future__ import annotations

import difflib
import json
from typing import Any

import click

from rlvr_core.api import ConfigError, config_class
from rlvr_core.config.keys import Key, component_keys, run_keys
from rlvr_core.config.model import RunConfig
from rlvr_core.config.resolve import Resolved, resolve_file
from rlvr_core.config.tree import COMPONENTS, Loc, pattern
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.registry import plural
from rlvr_core.terminal.output import print_json, print_line, print_table

_override = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one key, e.g. train.lr=1e-6; may be repeated.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def config() -> None:
    """Check, resolve and explain configs."""


@config.command()
@click.argument("file")
@_override
@_json
def check(file: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say whether FILE is right in itself, and what it would do.

    A model folder or data file that this machine lacks is a warning. What is in them is not looked
    at: `rlvr run FILE --dry-run` does that too.
    """
    from rlvr_core.data.presence import missing

    resolved = _resolve(file, overrides)
    numbers = _numbers(resolved)
    warnings = [*resolved.warnings, *missing(resolved)]
    if as_json:
        print_json({"ok": True, **numbers, "warnings": warnings})
        return
    print_line(f"ok: {file}")
    for line in _plan(resolved, numbers):
        print_line(f"  {line}")
    for warning in warnings:
        print_line(f"warning: {warning}", stderr=True)


@config.command()
@click.argument("file")
@_override
@_json
def resolve(file: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print FILE with full component names and every default; the result runs as it is."""
    resolved = _resolve(file, overrides)
    if as_json:
        print_json(resolved.dump())
        return
    changes = "".join(f" --set {override!r}" for override in overrides)
    print_line(f"# rlvr config resolve {file}{changes}".replace("\n", " "))
    print_line(resolved.yaml().rstrip("\n"))
    for warning in resolved.warnings:
        print_line(f"warning: {warning}", stderr=True)


@config.command()
@click.argument("key", required=False)
@_json
def explain(key: str | None, as_json: bool) -> None:
    """Say what KEY means: its type and default.

    KEY is a dotted path: train.lr, sampler, data.sources.0.weight, loss.with.beta. Without KEY
    every key is listed. Under a component's 'with' are the options of the default component; those
    of another one are shown by: rlvr list KIND NAME.
    """
    if key is None:
        _print_keys(list(run_keys()), as_json)
        return
    loc = _loc(key)
    keys = [*run_keys(), *_component_keys(loc)]
    place = pattern(loc)
    known = next((entry for entry in keys if entry.loc == place), None)
    if known is None:
        raise _unknown(key, [entry.path for entry in keys])
    below = [entry for entry in keys if entry.loc[: len(place)] == place and entry.loc != place]
    if as_json:
        about = known.as_json()
        print_json({**about, "keys": [entry.path for entry in below]} if below else about)
        return
    _print_key(known, key)
    if below:
        print_line("")
        _print_keys(below, as_json=False)


def _resolve(file: str, overrides: tuple[str, ...]) -> Resolved:
    return resolve_file(file, overrides, load_host())


def _numbers(resolved: Resolved) -> dict[str, int]:
    """Describe the sampling of one step."""
    config = resolved.config
    completions = config.train.prompts_per_step * config.sampling.n
    return {
        "steps": config.train.steps,
        "completions_per_prompt": config.sampling.n,
        "max_tokens_per_completion": config.sampling.max_tokens,
        "prompts_per_step": config.train.prompts_per_step,
        "completions_per_step": completions,
        "max_tokens_per_step": completions * config.sampling.max_tokens,
    }


def _plan(resolved: Resolved, numbers: dict[str, int]) -> list[str]:
    config = resolved.config
    sources = ", ".join(source.use for source in config.data.sources)
    step = (
        f"{numbers['prompts_per_step']:,} prompts x {config.sampling.n} = "
        f"{numbers['completions_per_step']:,} completions, at most "
        f"{numbers['max_tokens_per_completion']:,} tokens each: at most "
        f"{numbers['max_tokens_per_step']:,} sampled tokens"
    )
    tasks = ", ".join(task.use for task in config.eval.tasks) or "none"
    return [
        f"model: {config.model.path} ({config.model.dtype}), engine {config.engine.use}",
        f"data: {sources}; sampler {config.sampler.use}",
        f"rewards: {', '.join(resolved.reward_names)}; loss {_losses(config)}",
        f"steps: {config.train.steps:,}, peak learning rate {config.train.lr:g}",
        f"each step: {step}",
        f"evaluation: {tasks}",
    ]


def _losses(config: RunConfig) -> str:
    """The terms of the loss, with their weights where there are several."""
    refs = list(config.losses.values())
    if len(refs) == 1:
        return refs[0].use
    return " + ".join(f"{ref.weight:g} {ref.use}" for ref in refs)


def _loc(key: str) -> Loc:
    return tuple(
        int(step) if step.isascii() and step.isdigit() else step for step in key.split(".")
    )


def _component_keys(loc: Loc) -> tuple[Key, ...]:
    """The options of the default component, when a key is about a component.

    Raises:
        ConfigError: If the key is about an option, and there is no default component.
    """
    place = next((loc[: len(p)] for p in COMPONENTS if pattern(loc)[: len(p)] == p), None)
    if place is None:
        return ()
    name = RunConfig.model_fields[str(place[0])].default.use if len(place) == 1 else "auto"
    if name != "auto":
        entry = load_host().entry(COMPONENTS[pattern(place)], name, ".".join(map(str, place)))
        return component_keys(config_class(entry.load()), pattern(place))
    if len(loc) > len(place) + 1:
        kind = plural(str(COMPONENTS[pattern(place)]))
        raise ConfigError(
            "what is under 'with' depends on the component",
            where=".".join(map(str, loc)),
            remedy=f"see: rlvr list {kind} NAME",
        )
    return ()


def _print_key(key: Key, name: str) -> None:
    print_line(name)
    if key.description:
        print_line(f"  {key.description}")
    print_line(f"  takes {key.type}")
    if not key.section:
        print_line(f"  {'required' if key.required else f'default: {_inline(key.default)}'}")


def _print_keys(keys: list[Key], as_json: bool) -> None:
    if as_json:
        print_json([key.as_json() for key in keys])
        return
    rows = [
        (key.path, "required" if key.required else _inline(key.default), key.description)
        for key in keys
        if not key.section
    ]
    print_table(("key", "default", "meaning"), rows)


def _inline(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unknown(key: str, known: list[str]) -> ConfigError:
    plain = key.lower().replace("-", "_")
    close = difflib.get_close_matches(plain, known, n=3)
    leaf = plain.rpartition(".")[2]
    close += [path for path in known if path.rpartition(".")[2] == leaf and path not in close]
    hint = f"did you mean: {', '.join(close[:3])}?" if close else ""
    return ConfigError(f"there is no key {key!r}", remedy=[hint, "list them: rlvr config explain"])
