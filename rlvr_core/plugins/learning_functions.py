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

_DECLARED = ("traits", "reports")
"""What a function may say of itself by attributes."""


def advantage_of(function: Callable[..., Any]) -> type[Any]:
    """An advantage estimator class that calls the function.

    Raises:
        ConfigError: If it does not take a step alone, or is no plain function.
    """
    return _class_of(function, _Advantage, "advantage", "step")


def loss_of(function: Callable[..., Any]) -> type[Any]:
    """A loss class that calls the function.

    Raises:
        ConfigError: If it does not take a batch and a normalizer, or is no plain function.
    """
    return _class_of(function, _Loss, "loss", "batch, normalizer")


def schedule_of(function: Callable[..., Any]) -> type[Any]:
    """A schedule class that calls the function.

    Raises:
        ConfigError: If it does not take the progress alone, or is no plain function.
    """
    return _class_of(function, _Schedule, "schedule", "progress")


class _Function:
    """What the three kinds share.

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
        return PluginError(f"the function {cls.__qualname__} {what}", where=_place(cls.function))


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
    """``fn(batch, normalizer)``; it learns from rewards unless its traits say otherwise."""

    traits = LossTraits(advantage="group")

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Loss and metrics of one micro-batch."""
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


def _class_of(
    function: Callable[..., Any], base: type[_Function], kind: str, parameters: str
) -> type[Any]:
    odd = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_odd(function) for is_odd in odd):
        raise ConfigError(
            f"the {kind} function {function.__name__} is a coroutine or a generator",
            where=_place(function),
            remedy="write it as a plain function, without async and yield",
        )
    try:
        inspect.signature(function).bind(*parameters.split(", "))
    except TypeError:
        name = function.__name__
        raise ConfigError(
            f"the {kind} function {name}{inspect.signature(function)} cannot be called with "
            f"({parameters})",
            where=_place(function),
            remedy=f"write it as def {name}({parameters})",
        ) from None
    declared = {name: vars(function)[name] for name in _DECLARED if name in vars(function)}
    members = {
        "function": staticmethod(function),
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        **declared,
    }
    return type(function.__name__, (base,), members)


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
