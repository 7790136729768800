"""What every component has: a class, a name, a nested ``Config`` and the metrics it declares.

A component is any class with a nested pydantic ``Config`` whose constructor takes an instance of
it. Nothing here needs to be inherited from, save ``ComponentConfig``. Torch appears in
annotations only, so that a plugin module stays cheap to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from rlvr_core.api.errors import PluginError


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or a family of them.

    A component declares those that it reports under names of its own as a class attribute::

        reports = (Metric("cache/hit_rate", "Share of prompts found in the cache.", "share"),)

    Attributes:
        name: Its name; ``<part>`` stands for any text.
        meaning: What it says, in one sentence.
        unit: What it is counted in.
        better: Which way is better, where one is.
    """

    name: str
    meaning: str
    unit: str
    better: Literal["up", "down"] | None = None


Kind = Literal[
    "dataset",
    "verifier",
    "loss",
    "advantage",
    "sampler",
    "launcher",
    "eval_task",
    "engine",
    "environment",
    "guard",
    "tool_format",
    "optimizer",
    "schedule",
    "tracker",
    "transport",
]


@dataclass(frozen=True, slots=True)
class Names:
    """Marks an option that holds a component's name: ``Annotated[str, Names("verifier")]``.

    Attributes:
        kind: What kind of component.
    """

    kind: str


class Registrar(Protocol):
    """What a registering hook is given: adds components of one kind under one plugin's name."""

    def add(self, name: str, target: str, *, summary: str, models: Sequence[str] = ()) -> None:
        """Register a component.

        Args:
            name: Leaf name; the full name becomes ``<plugin>/<name>``.
            target: ``module:attribute``, imported when first used.
            summary: One sentence for ``rlvr list``.
            models: Of a forward path: classes of the models it may serve, such as
                ``LlamaForCausalLM``; it is imported for no other. Empty for any model.

        Raises:
            PluginError: If name, target or summary is malformed, or the name is taken.
        """


class ComponentConfig(BaseModel):
    """Base of every component's ``Config``: unknown keys are errors, values are frozen.

    The string under a field becomes its description in ``rlvr list KIND NAME`` and in the schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse ``true`` where a number is wanted, which pydantic takes for 1."""
        if isinstance(value, bool):
            annotation = cls.model_fields[str(info.field_name)].annotation
            kinds = {annotation, *get_args(annotation)}
            if kinds & {int, float} and not kinds & {bool, Any}:
                raise ValueError(f"a number is wanted here, not {str(value).lower()}")
        return value


class NoConfig(ComponentConfig):
    """The config of a component that has no options."""


def declared_metrics(component: type[Any]) -> tuple[Metric, ...]:
    """The metrics that a component class declares in ``reports``.

    Raises:
        PluginError: If they are something else than a tuple of ``Metric``.
    """
    found = getattr(component, "reports", ())
    if isinstance(found, tuple) and all(isinstance(one, Metric) for one in found):
        return found
    raise PluginError(
        f"{component.__module__}:{component.__qualname__}.reports is {found!r}, not a tuple of "
        "Metric",
        remedy="write reports = (Metric(name, meaning, unit),), from rlvr_core.api",
    )


def config_class(component: type[Any]) -> type[ComponentConfig]:
    """The ``Config`` of a component class; ``NoConfig`` when it has none."""
    found = getattr(component, "Config", NoConfig)
    if not (isinstance(found, type) and issubclass(found, ComponentConfig)):
        raise TypeError(
            f"{component.__module__}.{component.__qualname__}.Config must be a subclass of "
            f"rlvr_core.api.ComponentConfig"
        )
    return found
