"""Toy sources, groups and outcomes for the tests of samplers."""

from __future__ import annotations

import json

from rlvr_core.api import Completion, Group, Judged, Outcome, Problem, Source, Verdict


def source(name, count, weight=None, *, order=None, used=None, **tags):
    """Problems ``<name>0``, ``<name>1``, ..."""
    problems = tuple(
        Problem(f"{name}{index}", "?", "core/exact", {}, name, tags=tags) for index in range(count)
    )
    return Source(name, problems, weight, order, used)


def started(cls, *sources, seed=0, n=4, prompts_per_step=64, **options):
    """A sampler of a class that stands before its first problem."""
    sampler = cls(cls.Config(**options))
    sampler.start(sources, n=n, prompts_per_step=prompts_per_step, seed=seed)
    return sampler


def ids(draws):
    return [draw.problem.id for draw in draws]


def drawn(sampler, count, step=0):
    return ids(sampler.draw(count, step=step))


def outcomes(draws, successes, n=4):
    """Outcomes of draws; ``successes`` of the ``n`` completions passed (a number, or one by id)."""
    found = []
    for draw in draws:
        id_ = draw.problem.id
        good = successes[id_] if isinstance(successes, dict) else successes
        found.append(Outcome(draw.index, id_, good, n - good, 0 < good < n))
    return found


def member(passed, tokens=1):
    """A judged completion that passed (True), failed (False) or could not be judged (None)."""
    verdict = Verdict(None, "timeout") if passed is None else Verdict(float(passed), passed=passed)
    ids_ = (7,) * tokens
    completion = Completion((1,), ids_, (0.0,) * tokens, (True,) * tokens, "", "stop")
    reward = None if passed is None else float(passed)
    return Judged(completion, {"v": verdict}, reward, passed)


def group(*members, problem="p"):
    return Group(Problem(problem, "?", "v", {}, "toy"), tuple(members), 0)


def through_json(state):
    return json.loads(json.dumps(state))
