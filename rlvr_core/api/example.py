"""Inputs to try a component with, in its tests and in ``rlvr plugins check``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api.problems import Problem

if TYPE_CHECKING:
    from rlvr_core.api.engines import EngineContext
    from rlvr_core.api.tools import ToolCall


@dataclass(frozen=True, slots=True)
class Example:
    """Inputs that the conformance checks try a component with.

    Attributes:
        config: The options to construct it with.
        cases: Of a verifier: rows with ``spec``, ``response`` and what must come of it, or a
            JSON-lines file of them; see ``rlvr_core.testing.load_cases``.
        problem: Of an environment: what it plays.
        replies: Of an environment: what a model writes, turn by turn, until ``problem`` is done.
        calls: Of a tool format that cannot write every call: calls that it can.
        context: Of an engine: makes what it is started with; None takes a tiny model.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    cases: str | Path | Sequence[Mapping[str, Any]] = ()
    problem: Problem | None = None
    replies: Sequence[str] = ()
    calls: Sequence[ToolCall] = ()
    context: Callable[[], EngineContext] | None = None
