"""Promises of every component and plugin: members, options, traits."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from rlvr_core import api
from rlvr_core.api import config_class, traits_of
from rlvr_core.api.components import declared_metrics
from rlvr_core.toolkit import PluginRecord
from rlvr_devkit.conformance.subject import Check, Subject, Unchecked, demand

PROTOCOLS: Mapping[str, tuple[str, ...]] = {
    "dataset": ("DatasetLoader",),
    "verifier": ("Verifier", "GroupVerifier"),
    "loss": ("Loss",),
    "advantage": ("AdvantageEstimator",),
    "sampler": ("Sampler",),
    "launcher": ("Launcher",),
    "eval_task": ("EvalTask",),
    "engine": ("Engine",),
    "environment": ("Environment",),
    "guard": ("Guard",),
    "tool_format": ("ToolFormat",),
    "optimizer": ("OptimizerBuilder",),
    "schedule": ("Schedule",),
    "tracker": ("Tracker",),
    "transport": ("WeightTransport",),
}
"""Names in ``rlvr_core.api`` of the protocols of a kind; a component has one of them."""

_TRAITS: Mapping[str, type[Any]] = {
    "verifier": api.VerifierTraits,
    "loss": api.LossTraits,
    "advantage": api.AdvantageTraits,
    "sampler": api.SamplerTraits,
    "eval_task": api.EvalTaskTraits,
    "engine": api.EngineTraits,
    "environment": api.EnvironmentTraits,
    "optimizer": api.OptimizerTraits,
    "transport": api.TransportTraits,
}
_ATTRIBUTES = {"sampler": ("prompts_per_step",)}
"""Attributes that an instance may lack until it is started."""


def has_its_methods(subject: Subject) -> None:
    """Check that an instance has the members of its kind's protocol."""
    demand(inspect.isclass(subject.component), "its target is no class")
    instance = subject.build()
    protocols = [getattr(api, name) for name in PROTOCOLS[subject.kind]]
    lacks = {protocol.__name__: _lacking(instance, protocol) for protocol in protocols}
    set_on_start = _ATTRIBUTES.get(subject.kind, ())
    demand(
        any(set(names) <= set(set_on_start) for names in lacks.values()),
        "; or ".join(
            f"it has no {', '.join(names)}: see rlvr_core.api.{name}"
            for name, names in lacks.items()
        ),
    )


def _lacking(instance: object, protocol: type[Any]) -> list[str]:
    """Return the members of a protocol that an object lacks."""
    named: list[str] = []
    for base in protocol.__mro__:
        if Protocol in base.__bases__:
            members = {**vars(base), **inspect.get_annotations(base)}
            named += [name for name in members if not name.startswith("_") or name == "__call__"]
    return [name for name in dict.fromkeys(named) if not hasattr(instance, name)]


def config_survives(subject: Subject) -> None:
    """Check that the resolved config of a run can be run again, and misspellings are refused."""
    options = subject.options()
    config = type(options)
    restored = config.model_validate(
        json.loads(json.dumps(options.model_dump(by_alias=True, mode="json")))
    )
    demand(restored == options, f"written and read back, {options!r} becomes {restored!r}")
    try:
        config(**{**subject.example.config, "no_such_option": 1})
    except ValidationError:
        return
    raise AssertionError("an unknown option is accepted: do not change extra='forbid'")


def options_explained(subject: Subject) -> None:
    """Check that each option has a description."""
    fields = config_class(subject.component).model_fields
    bare = [name for name, field in fields.items() if not (field.description or "").strip()]
    demand(not bare, f"write a docstring under {', '.join(bare)}: rlvr list shows it")


def states_traits(subject: Subject) -> None:
    """Check traits and metrics, which are declared by the types of ``rlvr_core.api``."""
    instance = subject.build()
    declared_metrics(subject.component)
    if subject.kind in _TRAITS:
        traits_of(instance, _TRAITS[subject.kind])


COMMON_CHECKS: tuple[Check, ...] = (
    Check("protocol", "it has every method of its kind", has_its_methods),
    Check("config", "its config survives writing and reading; typos are refused", config_survives),
    Check("options", "every option is explained", options_explained),
    Check("traits", "its traits and metrics are declared as its kind's", states_traits),
)
"""Checks of every component with options."""


# -- plugins -------------------------------------------------------------------------------------


def _faults(record: PluginRecord) -> str:
    """Return the faults of a plugin, where they are, and what to do."""
    lines = []
    for problem in record.problems:
        lines += [f"{problem.message} ({problem.place})", *(f"  {line}" for line in problem.remedy)]
    return "\n".join(lines)


def plugin_loads(subject: Subject) -> None:
    """Check that the host loaded the plugin, without large packages, and that it has hooks."""
    record: PluginRecord = subject.component
    if record.status == "off":
        raise Unchecked(_faults(record))
    demand(not record.problems, _faults(record))
    demand(bool(record.hooks), "it implements no hook: see rlvr docs plugins#hooks")


PLUGIN_CHECKS: tuple[Check, ...] = (
    Check("loads", "it loads, imports nothing large, and has hooks of this rlvr", plugin_loads),
)
