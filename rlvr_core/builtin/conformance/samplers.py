"""Promises of samplers."""

from __future__ import annotations

from typing import Any

from rlvr_core.api import (
    Completion,
    Draw,
    Drop,
    Extend,
    Group,
    Judged,
    Keep,
    Outcome,
    Problem,
    Source,
    Verdict,
)
from rlvr_core.builtin.conformance.subject import Check, Subject, as_json, demand

_N, _PROMPTS = 4, 3


def _sources() -> list[Source]:
    """Return one source of twelve problems of different length and difficulty."""
    problems = tuple(
        Problem(
            f"p{i}", "?" * (1 + i % 5), "v", {"answer": str(i)}, "conformance", tags={"level": i}
        )
        for i in range(12)
    )
    return [Source("conformance", problems)]


def _started(subject: Subject) -> Any:
    sampler = subject.build()
    sampler.start(_sources(), n=_N, prompts_per_step=_PROMPTS, seed=11)
    got = sampler.prompts_per_step
    demand(got == _PROMPTS, f"prompts_per_step is {got!r}, not the {_PROMPTS} of start")
    return sampler


def _group(draw: Draw, n: int) -> Group:
    """Return the judged group of a draw; its pass rate depends only on the problem."""
    place = int(draw.problem.id[1:])
    members = []
    for index in range(n):
        passed = index < place % 5
        completion = Completion((1,), (5, 6), (-1.0, -1.0), (True, True), f"x{index}", "stop")
        verdict = Verdict(float(passed), passed=passed)
        members.append(Judged(completion, {"v": verdict}, float(passed), passed))
    return Group(draw.problem, tuple(members), 0)


def _step(sampler: Any, step: int) -> list[Draw]:
    """Simulate a step: draw, decide on every group, report the outcomes."""
    draws = sampler.draw(_PROMPTS, step=step)
    known = {problem.id for source in _sources() for problem in source.problems}
    demand(len(draws) <= _PROMPTS, f"{len(draws)} draws where {_PROMPTS} were asked for")
    demand(len(draws) > 0, "it draws nothing, though there are problems")
    outcomes = []
    for one in draws:
        demand(isinstance(one, Draw), f"it draws a {type(one).__name__}, not a Draw")
        demand(one.problem.id in known, f"it draws {one.problem.id!r}, which no source has")
        demand(one.n >= 1, f"it draws {one.n} completions")
        group, decision = _decided(sampler, one)
        passed = [member.passed for member in group.members]
        outcomes.append(
            Outcome(
                one.index,
                one.problem.id,
                passed.count(True),
                passed.count(False),
                isinstance(decision, Keep),
            )
        )
    sampler.update(outcomes)
    return list(draws)


def _decided(sampler: Any, draw: Draw) -> tuple[Group, Keep | Drop]:
    n = draw.n
    for _ in range(100):
        group = _group(draw, n)
        decision, repeated = sampler.observe(group), sampler.observe(group)
        demand(decision == repeated, f"observe says {decision}, then {repeated} of the same group")
        if isinstance(decision, Extend):
            n += decision.n
            continue
        what = f"observe gives a {type(decision).__name__}, not Keep, Drop or Extend"
        demand(isinstance(decision, Keep | Drop), what)
        final: Keep | Drop = decision
        return group, final
    raise AssertionError("a group is extended without end")


def sampler_draws(subject: Subject) -> None:
    """Check draws and decisions on groups over a few epochs."""
    sampler, index = _started(subject), 0
    for step in range(10):
        for draw in _step(sampler, step):
            demand(draw.index == index, f"draw {index} of the run has the index {draw.index}")
            index += 1
        more = sampler.refill(_PROMPTS, _PROMPTS)
        demand(more == 0, f"refill asks for {more} more problems, though all groups were kept")


def sampler_follows_from_its_arguments(subject: Subject) -> None:
    """Check that two copies with the same observations draw the same."""
    one, other = _started(subject), _started(subject)
    for step in range(6):
        here, there = _step(one, step), _step(other, step)
        demand(here == there, f"two copies draw different problems in step {step}")


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
    Check("draws", "known problems, as many as asked for, numbered in order", sampler_draws),
    Check(
        "copies", "copies that are told the same draw the same", sampler_follows_from_its_arguments
    ),
    Check("resumes", "its state is JSON, and all it needs to continue", sampler_resumes),
)
