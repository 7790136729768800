"""A question that only a tool can answer: the smallest multi-turn task that can be learned.

The world is a table of random numbers that differs from draw to draw, so the answer cannot be
memorised: it must be looked up. A tiny model learns to do so on a CPU in minutes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

from rlvr_core.api import (
    BadCall,
    DataError,
    Done,
    EnvironmentTraits,
    EvalReport,
    Group,
    Json,
    Message,
    NoConfig,
    Observation,
    Problem,
    Reply,
    SamplingParams,
    Tool,
    ToolCall,
    Verdict,
)
from rlvr_env.environments.questions import Questions, response
from rlvr_env.environments.tool_formats import Hermes

DATASET = ENVIRONMENT = "env/lookup"
MAX_TOKENS = 80
"""Cap on a conversation in tokens: enough for a call, its result, the answer and one mistake."""

TOOL = Tool("count", "How many there are.", {"of": {"type": "string"}})
FORMAT = Hermes()


class Lookup(Questions):
    """Problems ``How many red cats?`` for the environment ``env/lookup``, and demonstrations.

    The hash of kind and thing together decides the split of a question.
    """

    KINDS = "red big old shy sad new dry hot wet raw odd tan icy bad tiny blue grey dark wild calm"
    THINGS = "cats dogs cows hens bees ants bats owls rats pigs jars cups hats pens keys maps"

    def problem(self, name: str) -> Problem:
        """See ``Questions.problem``."""
        spec: dict[str, Json] = {"of": name}
        return Problem(
            id=f"lookup_{name.replace(' ', '_')}",
            prompt=f"How many {name}?",
            verifier="env/environment",
            spec=spec,
            dataset=DATASET,
            max_tokens=MAX_TOKENS,
            environment=ENVIRONMENT,
        )

    def shown(self, queried: str, number: int, *, careful: bool) -> str:
        """See ``Questions.shown``."""
        if not careful:
            return f"\nMaybe {number}"
        call = FORMAT.render(ToolCall(TOOL.name, {"of": queried}))
        return f"\n{call}{response(str(number))}{number}"


@dataclass(slots=True)
class _State:
    """State of one conversation: the question, and the seed of the numbers."""

    name: str
    seed: int
    calls: int = 0

    def number(self, name: str) -> int:
        return random.Random(f"{self.seed} {name}").randint(10, 99)


class LookupWorld:
    """Answers calls of ``count(of)``; text without a call is the final answer.

    The model reads an error of a call in the form of a tool's answer.
    """

    Config = NoConfig
    traits = EnvironmentTraits(
        on_error="observe", error_text=response("error: {error}"), deterministic=True
    )

    def __init__(self, config: NoConfig) -> None:
        del config

    def present(self, problem: Problem) -> Problem:
        """Return the problem with the stop strings that end a turn after a call."""
        return replace(problem, stop=(*problem.stop, *FORMAT.stop))

    def check(self, problem: Problem) -> None:
        """Refuse a problem without the field that names what is counted.

        Raises:
            DataError: If ``of`` is missing.
        """
        if not isinstance(problem.spec.get("of"), str):
            raise DataError(f"{problem.id}: env/lookup needs text in field 'of'")

    def start(self, problem: Problem, seed: int) -> _State:
        """See ``Environment.start``."""
        return _State(str(problem.spec["of"]), seed)

    def step(self, state: _State, reply: Reply) -> Observation | Done:
        """See ``Environment.step``."""
        calls = FORMAT.parse(reply.text)
        if not calls:
            return Done(self._verdict(state, reply.text.strip()))
        call = calls[0]
        state.calls += 1
        fault = _fault(call)
        text = f"error: {fault}"
        if isinstance(call, ToolCall) and fault is None:
            text = str(state.number(str(call.arguments["of"])))
        counts = {"tool_calls": 1.0, "tool_errors": float(fault is not None)}
        return Observation((Message("tool", response(text)),), counts)

    def _verdict(self, state: _State, answer: str) -> Verdict:
        right = str(state.number(state.name))
        passed = answer == right
        detail = f"it is {right}; {state.calls} calls"
        return Verdict(float(passed), passed=passed, extracted=answer[:80], detail=detail)


class LookupHeldout:
    """Held-out questions, sampled at temperature 1 as in training."""

    Config: ClassVar = NoConfig
    n = 4
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)

    def __init__(self, config: NoConfig) -> None:
        del config

    def problems(self) -> list[Problem]:
        """Return the problems, the same ones at every call."""
        return list(Lookup(Lookup.Config(split="heldout")).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Return the share of right answers, and of conversations that called the tool."""
        members = [member for group in groups for member in group.members]
        passed = [member.passed for member in members if member.passed is not None]
        scripts = [member.completion.transcript for member in members]
        called = [s.counts.get("tool_calls", 0) > 0 for s in scripts if s is not None]
        metrics: dict[str, float] = {}
        if passed:
            metrics["accuracy"] = fmean(passed)
        if called:
            metrics["called"] = fmean(called)
        return EvalReport(metrics, len(groups))


class LookupHeldoutGreedy(LookupHeldout):
    """Held-out questions, answered greedily."""

    n = 1
    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)


def _fault(call: ToolCall | BadCall) -> str | None:
    if isinstance(call, BadCall):
        return call.error
    if call.name != TOOL.name:
        return f"there is no tool '{call.name}'; there is: {TOOL.name}"
    return TOOL.fault(call.arguments)
