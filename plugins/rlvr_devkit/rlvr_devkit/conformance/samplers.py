"""Promises of samplers."""

from __future__ import annotations

from typing import Any

from rlvr_core.api import Draw, Drop, Extend, Group, Keep, Outcome, Problem, Source
from rlvr_devkit.conformance.made import group
from rlvr_devkit.conformance.subject import Check, Subject, as_json, demand

_N, _PROMPTS = 4, 3
_PROBLEMS = tuple(
    Problem(f"p{i}", "?" * (1 + i % 5), "v", {"answer": str(i)}, "conformance", tags={"level": i})
    for i in range(12)
)
"""Problems of different length and difficulty."""


def _started(subject: Subject) -> Any:
    sampler = subject.build()
    sources = [Source("conformance", _PROBLEMS)]
    sampler.start(sources, n=_N, prompts_per_step=_PROMPTS, seed=11)
    return sampler


def _step(sampler: Any, step: int) -> list[Draw]:
    """Simulate a step: draw, decide on every group, report the outcomes."""
    draws = list(sampler.draw(_PROMPTS, step=step))
    demand(len(draws) <= _PROMPTS, f"{len(draws)} draws where {_PROMPTS} were asked for")
    demand(len(draws) > 0, "it draws nothing, though there are problems")
    outcomes = []
    for draw in draws:
        demand(isinstance(draw, Draw), f"it draws a {type(draw).__name__}, not a Draw")
        demand(draw.problem in _PROBLEMS, f"it draws {draw.problem.id!r}, which no source has")
        demand(draw.n >= 1, f"it draws {draw.n} completions")
        judged, decision = _decided(sampler, draw)
        passed = [member.passed for member in judged.members]
        counts = passed.count(True), passed.count(False)
        outcomes.append(Outcome(draw.index, draw.problem.id, *counts, isinstance(decision, Keep)))
    sampler.update(outcomes)
    return draws


def _decided(sampler: Any, draw: Draw) -> tuple[Group, Keep | Drop]:
    """Return the group of a draw and what becomes of it; its pass rate is the problem's."""
    n, right = draw.n, int(draw.problem.id[1:]) % 5
    for _ in range(100):
        judged = group([float(i < right) for i in range(n)], draw.problem)
        decision, repeated = sampler.observe(judged), sampler.observe(judged)
        demand(decision == repeated, f"observe says {decision}, then {repeated} of the same group")
        if isinstance(decision, Keep | Drop):
            return judged, decision
        what = f"observe gives a {type(decision).__name__}, not Keep, Drop or Extend"
        demand(isinstance(decision, Extend), what)
        n += decision.n
    raise AssertionError("a group is extended without end")


def sampler_draws(subject: Subject) -> None:
    """Check draws, and that two copies with the same observations draw the same."""
    sampler, other, index = _started(subject), _started(subject), 0
    got = sampler.prompts_per_step
    demand(got == _PROMPTS, f"prompts_per_step is {got!r}, not the {_PROMPTS} of start")
    for step in range(10):
        draws, there = _step(sampler, step), _step(other, step)
        demand(draws == there, f"two copies draw different problems in step {step}")
        for draw in draws:
            demand(draw.index == index, f"draw {index} of the run has the index {draw.index}")
            index += 1
        more = sampler.refill(_PROMPTS, _PROMPTS), other.refill(_PROMPTS, _PROMPTS)
        demand(not any(more), f"refill asks for {more[0]} more problems, though all were kept")


def sampler_resumes(subject: Subject) -> None:
    """Check that ``state_dict`` is JSON, and all that a sampler needs to continue exactly."""
    sampler = _started(subject)
    for step in range(3):
        _step(sampler, step)
    resumed = _started(subject)
    resumed.load_state_dict(as_json(sampler.state_dict(), "state_dict"))
    for step in range(3, 9):
        whole, again = _step(sampler, step), _step(resumed, step)
        demand(whole == again, f"after a resume step {step} draws {again}, not {whole}")


SAMPLER_CHECKS: tuple[Check, ...] = (
    Check("draws", "known problems, numbered in order; copies draw the same", sampler_draws),
    Check("resumes", "its state is JSON, and all it needs to continue", sampler_resumes),
)
