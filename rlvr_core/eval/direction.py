"""Whether a metric of an evaluation improves by rising or by falling: one direction per metric.

A task declares it in ``reports``, by ``Metric.better``. Metrics
that mean the same in every task need no declaration; they are in ``STANDARD``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

from rlvr_core.api import ConfigError, EvalTask, Metric
from rlvr_core.api.components import declared_metrics

Direction = Literal["maximize", "minimize"]
MAXIMIZE: Direction = "maximize"
MINIMIZE: Direction = "minimize"

STANDARD = (
    Metric("accuracy", "Share that passed.", "share", "up"),
    Metric("accuracy/<part>", "The same of a part of the problems.", "share", "up"),
    Metric("pass@<k>", "Chance that one of k completions passes.", "share", "up"),
    Metric("score", "Mean score.", "score", "up"),
    Metric("format", "Share in the form that was asked for.", "share", "up"),
    Metric("truncated", "Share at the token cap.", "share", "down"),
    Metric("unscored", "Share without an outcome.", "share", "down"),
)
"""Metrics that mean the same in every task; a task's own declaration comes first."""


def direction_of(
    name: str, task: EvalTask | None, stated: Direction | None, where: str
) -> Direction:
    """Return the direction in which a task's metric improves.

    Args:
        name: The metric's name.
        task: The task; None if the configuration names one that does not exist.
        stated: The configured direction; used where nothing is declared.
        where: Its place in the configuration.

    Returns:
        The declared direction, else the stated one, else ``maximize``.

    Raises:
        ConfigError: If the configuration contradicts the declaration.
        PluginError: If the task's ``reports`` is malformed.
    """
    reported = () if task is None else declared_metrics(type(task))
    declared = _declared(name, reported) or _declared(name, STANDARD)
    if declared is not None and stated is not None and stated != declared:
        raise ConfigError(
            f"direction: {stated} contradicts the metric '{name}', which is declared to improve by "
            f"{'rising' if declared == MAXIMIZE else 'falling'}",
            where=where,
            remedy="take the direction out: the metric's own is taken",
        )
    return declared or stated or MAXIMIZE


def improves(
    value: float, best: float | None, direction: Direction, min_delta: float = 0.0
) -> bool:
    """Return whether a value is better than the best one so far by more than ``min_delta``.

    A value that is not finite is never better, and any finite one is better than none. Equal
    values are no improvement: the earlier one stays.
    """
    if not math.isfinite(value) or best is None:
        return math.isfinite(value)
    gain = value - best if direction == MAXIMIZE else best - value
    return gain > min_delta


def _declared(name: str, metrics: Sequence[Metric]) -> Direction | None:
    """Return the declared direction of a metric; an exact name counts before a family."""
    for metric in sorted(metrics, key=lambda each: "<" in each.name):
        family = "".join(
            ".+" if part.startswith("<") else re.escape(part)
            for part in re.split(r"(<\w+>)", metric.name)
        )
        if metric.better is not None and re.fullmatch(family, name):
            return MAXIMIZE if metric.better == "up" else MINIMIZE
    return None
