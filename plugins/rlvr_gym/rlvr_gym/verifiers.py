"""The verifier ``gym/answer``: the scoring of the generator that made a problem."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlvr_core.api import Completion, DataError, NoConfig, Problem, Verdict, spoken
from rlvr_gym.entries import Entry, digest, entry, score
from rlvr_gym.reading import refusal
from rlvr_gym.rules import ALSO, JUDGED, reference

FULL = 1.0
"""No tolerance: some generators give 0.9999999999999999 to an answer with letters too many."""
_FIELDS: Mapping[str, type] = {
    "task": str,
    "config": dict,
    "seed": int,
    "index": int,
    "digest": str,
}
LONGEST_SHOWN = 2000
"""Characters of a refused answer that a verdict quotes."""
_TAGS = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)


class Answer:
    """1 for an answer that the generator gives full marks, else 0.

    The answer is the last ``<answer>`` of the response, or all of it where the problem says so.
    """

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        self.config = config

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless the problem is still made as it was."""
        made_of(problem)

    def gold(self, problem: Problem) -> str | None:
        """Return the generator's own answer in its place; None where it gives none."""
        made = made_of(problem)
        if made["answer"] is None:
            return None
        answer = reference(problem.spec["task"], made)
        return f"<answer>{answer}</answer>" if _is_tagged(problem) else answer

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one completion."""
        try:
            made = made_of(problem)
        except DataError as error:
            return Verdict(None, "unscorable", detail=error.complaints[0].what)
        answer = spoken(completion.text)
        if _is_tagged(problem):
            answers = _TAGS.findall(answer)
            if not answers:
                return Verdict(0.0, passed=False, detail="no <answer> in the response")
            answer = answers[-1]
        return self._judged(problem.spec, made, answer.strip())

    def _judged(self, spec: Mapping[str, Any], made: Entry, answer: str) -> Verdict:
        task = spec["task"]
        if why := refusal(answer, str(made["answer"])):
            return Verdict(0.0, passed=False, extracted=answer[:LONGEST_SHOWN], detail=why)
        try:
            if task in JUDGED:
                given = float(JUDGED[task][0](answer, made))
            else:
                given = score(task, spec["config"], spec["seed"], spec["index"], answer)
            passed = given >= FULL and (task not in ALSO or ALSO[task][0](answer, made))
        except MemoryError:
            raise  # the machine's lack, not the answer's: the pool judges it again
        except Exception as error:
            # right answers are read by every generator that is not fenced: this one is malformed
            detail = f"it cannot be read: {type(error).__name__}: {error}"[:200]
            return Verdict(0.0, passed=False, extracted=answer, detail=detail)
        return Verdict(float(passed), passed=passed, extracted=answer)


def _is_tagged(problem: Problem) -> bool:
    return bool(problem.spec.get("place", "tags") == "tags")


def made_of(problem: Problem) -> dict[str, Any]:
    """Make a problem's entry again.

    Raises:
        DataError: If its spec is incomplete, or the generator makes another problem now.
    """
    spec = problem.spec
    for name, kind in _FIELDS.items():
        if not isinstance(spec.get(name), kind):
            raise DataError(f"problem {problem.id}: spec.{name} must be {kind.__name__}")
    made = entry(spec["task"], spec["config"], spec["seed"], spec["index"])
    if digest(made) != spec["digest"]:
        raise DataError(
            f"problem {problem.id}: the generator {spec['task']} makes another problem now",
            remedy="make the problems again, or install the reasoning-gym they were made with",
        )
    return made
