"""Conversion of verdicts to plain JSON, and the calls that a worker process makes for them.

The trainer never unpickles anything that a verifier or an environment returns. Workers import this
module, so it imports nothing heavy.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import asdict, fields
from numbers import Real
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any

from rlvr_core.api import Completion, Json, Problem, Span, Usage, Verdict, VerifierTraits, traits_of
from rlvr_core.plugins.functions import component
from rlvr_core.workers.process import ComponentSpec

STATUSES = ("ok", "unscorable", "timeout", "busy", "error")
MAX_DETAIL = 500
"""Characters of a verdict's detail that are kept."""
MAX_EXTRACTED = 20_000
"""Characters of an extracted answer that are kept."""
MAX_PARTS = 1_000
"""Largest number of named partial scores in a verdict."""
MAX_SPANS = 100_000
"""Largest number of spans in a verdict."""
PlainVerdict = list[Json]
"""``[score, status, passed, parts, extracted, detail, usage, spans]``, JSON-serialisable."""


class VerifierSpec(ComponentSpec):
    """How a worker constructs a verifier.

    Attributes:
        target: ``module:Class`` or ``module:function``.
        config: Values of its ``Config``.
    """

    __slots__ = ()

    def load(self) -> Any:
        """Import the class; a plain function is wrapped in one."""
        return component("verifier", resolve_name(self.target))


ALONE, TOGETHER = b"alone", b"together"
_VALUES = {cls: attrgetter(*(field.name for field in fields(cls))) for cls in (Problem, Completion)}


def pack(value: Problem | Completion) -> bytes:
    """Pickle a problem or completion, in half the time that pickling a frozen dataclass takes."""
    values = _VALUES.get(type(value))  # None for a subclass
    return pickle.dumps(value if values is None else (type(value), values(value)), -1)


def _unpack(packed: bytes) -> Any:
    value = pickle.loads(packed)
    return value[0](*value[1]) if isinstance(value, tuple) else value


def judge(verifier: Any, how: bytes, problem: bytes, *completions: bytes) -> list[PlainVerdict]:
    """Call a verifier in its worker process.

    Every call gets freshly unpickled objects, so that a verifier that modifies its input cannot
    affect other calls.

    Args:
        verifier: The verifier to call.
        how: ``TOGETHER`` for one call of ``verify_group``.
        problem: The pickled problem.
        completions: The pickled completions.
    """
    answers = [_unpack(completion) for completion in completions]
    if how == TOGETHER:
        verdicts = verifier.verify_group(_unpack(problem), answers)
        if not isinstance(verdicts, list | tuple):
            raise TypeError(f"verify_group gave {type(verdicts).__name__}, not a list of verdicts")
        if len(verdicts) != len(answers):
            raise ValueError(
                f"verify_group gave {len(verdicts)} verdicts for {len(answers)} completions"
            )
    else:
        verdicts = [verifier.verify(_unpack(problem), answer) for answer in answers]
    plain = [plain_verdict(*pair) for pair in zip(verdicts, answers, strict=True)]
    limits = traits_of(verifier, VerifierTraits).reward_range
    if limits is not None:
        for score, *_ in plain:
            if score is not None and not limits[0] <= score <= limits[1]:
                raise ValueError(f"score {score} is outside of its reward_range {tuple(limits)}")
    return plain


def plain_verdict(verdict: object, completion: Completion | None = None) -> PlainVerdict:
    """Validate a verdict and convert it to plain JSON.

    Args:
        verdict: Return value of a verifier or an environment.
        completion: The completion it judges, to validate its spans; None while it is still being
            generated.

    Raises:
        TypeError: If it is not a verdict or a field has the wrong type.
        ValueError: If a number in it is not finite, score and status disagree, or a span is out of
            range.
    """
    if not isinstance(verdict, Verdict):
        raise TypeError(f"returned {type(verdict).__name__}, not a Verdict")
    if verdict.status not in STATUSES:
        raise ValueError(f"status {verdict.status!r} is none of {', '.join(STATUSES)}")
    if (verdict.score is None) == (verdict.status == "ok"):
        raise ValueError(f"score {verdict.score!r} does not go with status {verdict.status!r}")
    if verdict.passed is not None and verdict.passed not in (True, False):
        raise TypeError(f"passed is {verdict.passed!r}, not True, False or None")
    if len(verdict.parts) > MAX_PARTS:
        raise ValueError(f"{len(verdict.parts)} parts; {MAX_PARTS} are the most")
    extracted = _text(verdict.extracted, "extracted", MAX_EXTRACTED)
    return [
        None if verdict.score is None else _finite(verdict.score, "score"),
        verdict.status,
        None if verdict.passed is None else bool(verdict.passed),
        {str(name): _finite(part, f"part {name}") for name, part in verdict.parts.items()},
        extracted,
        _text(verdict.detail, "detail", MAX_DETAIL) or "",
        None if verdict.usage is None else asdict(verdict.usage),
        _plain_spans(verdict, completion) if verdict.spans else [],
    ]


def _plain_spans(verdict: Verdict, completion: Completion | None) -> list[Json]:
    if len(verdict.spans) > MAX_SPANS:
        raise ValueError(f"{len(verdict.spans)} spans; {MAX_SPANS} are the most")
    if completion is not None:
        completion.spans_in_tokens(verdict.spans)
    elif any(span.unit != "turn" for span in verdict.spans):
        raise ValueError("an environment gives spans of turns: it does not see tokens")
    return [
        [span.start, span.end, _finite(span.score, "score of a span"), span.unit]
        for span in verdict.spans
    ]


def _text(value: object, what: str, limit: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}, not text")
    return value if len(value) <= limit else value[:limit] + " ..."


def _finite(value: object, what: str) -> float:
    if not isinstance(value, (float, Real)):  # the first without asking an abstract class
        raise TypeError(f"{what} is {type(value).__name__}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}")
    return number


def from_plain(value: Sequence[Json]) -> Verdict:
    """Rebuild the verdict that was passed to ``plain_verdict``."""
    score, status, passed, parts, extracted, detail, usage, spans = value
    spent, stretches = usage and Usage(**usage), tuple(Span(*span) for span in spans)
    return Verdict(score, status, passed, parts, extracted, detail, spent, stretches)
