"""A plain Python function as an advantage estimator, a loss or a learning-rate schedule.

It is called as the component would be, and has no options:

- ``fn(step) -> AdvantageOutput``, or its ``advantages`` alone: a list, an array or a tensor;
- ``fn(batch, normalizer) -> LossOutput``;
- ``fn(progress) -> float``, the share of the peak learning rate.

Traits other than the defaults, and the metrics that a component declares, are attributes of the
function: ``fn.traits = LossTraits(...)``, ``fn.reports = (Metric(...),)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    ConfigError,
    JudgedStep,
    LossBatch,
    LossOutput,
    LossTraits,
    NoConfig,
    Normalizer,
    PluginError,
)
from rlvr_core.plugins.wrapping import class_of, place_of, refuse_coroutine

_DECLARED = ("traits", "reports")
"""Attributes that a function may have."""


class _Function:
    """Base of the three kinds.

    Attributes:
        function: What the user wrote.
    """

    Config = NoConfig
    function: Callable[..., Any]

    def __init__(self, config: NoConfig) -> None:
        pass

    @classmethod
    def fault(cls, what: str) -> PluginError:
        """The error for what the function gave."""
        return PluginError(f"the function {cls.__qualname__} {what}", where=place_of(cls.function))


class _Advantage(_Function):
    """``fn(step)``."""

    traits = AdvantageTraits()

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """The advantages of every completion."""
        output = self.function(step)
        if output is None:
            raise self.fault("gave None, not the advantages of the step")
        return output if isinstance(output, AdvantageOutput) else AdvantageOutput(output)


class _Loss(_Function):
    """A loss ``fn(batch, normalizer)``; it learns from rewards unless its traits differ."""

    traits = LossTraits(advantage="group")

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Compute loss and metrics of one micro-batch."""
        output = self.function(batch, normalizer)
        if not isinstance(output, LossOutput):
            raise self.fault(f"gave {type(output).__name__}, not a rlvr_core.api.LossOutput")
        return output


class _Schedule(_Function):
    """``fn(progress)``."""

    def __call__(self, progress: float) -> float:
        """Share of the peak learning rate."""
        output = self.function(progress)
        if isinstance(output, bool) or not isinstance(output, int | float):
            raise self.fault(f"gave {type(output).__name__}, not a number")
        return float(output)


_FORMS: dict[str, tuple[type[_Function], str]] = {
    "advantage": (_Advantage, "step"),
    "loss": (_Loss, "batch, normalizer"),
    "schedule": (_Schedule, "progress"),
}
"""Base class and parameters of the functions of each kind."""


def learning_of(kind: str, function: Callable[..., Any]) -> type[Any]:
    """Return a component class of this kind that calls the function.

    Raises:
        ConfigError: If its parameters are not those of the kind, or it is no plain function.
    """
    base, parameters = _FORMS[kind]
    refuse_coroutine(kind, function)
    try:
        inspect.signature(function).bind(*parameters.split(", "))
    except TypeError:
        name = function.__name__
        raise ConfigError(
            f"the {kind} function {name}{inspect.signature(function)} cannot be called with "
            f"({parameters})",
            where=place_of(function),
            remedy=f"write it as def {name}({parameters})",
        ) from None
    declared = {name: vars(function)[name] for name in _DECLARED if name in vars(function)}
    return class_of(function, base, **declared)
