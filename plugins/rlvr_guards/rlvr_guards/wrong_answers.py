"""Responses that must fail, made by corrupting one that must pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from rlvr_core.api import Json, Problem

NOTHING: Mapping[str, str] = {
    "an empty answer": "",
    "'I do not know.'": "I do not know.",
    "random words": "garden although window basalt under maybe quickly oboe tram",
    "a long filler": "and so it goes on and on, word after word. " * 60,
}
"""Responses that answer no problem, by kind."""
BRIEF = 40
"""Maximum characters of an answer to change in one place: longer ones are programs or prose."""
ONE_LINE = 200
"""Characters of a response above which only its last line is repeated."""
NUMBER = re.compile(r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)")
LONGEST = 30
"""Maximum characters of a text to read as a number."""
SAME = 1e-3
"""Relative difference below which a verifier may treat two numbers as equal."""
_LETTER = re.compile(r"[A-J]")
_WORD = re.compile(r"[A-Za-z]{3,24}")
_INTEGER = re.compile(r"(?<![\d.])\d+(?![\d.])")


def allowed(problem: Problem, options: Mapping[str, Json]) -> float:
    """Return the relative tolerance that a problem or its verifier's options allow."""
    tolerances = (problem.spec.get("tolerance"), options.get("tolerance"))
    return max((float(t) for t in tolerances if isinstance(t, int | float)), default=0.0)


def wrong_responses(
    problem: Problem, response: str, answer: str, options: Mapping[str, Json]
) -> dict[str, str]:
    """Return responses that must fail, by kind.

    Args:
        problem: The problem.
        response: A response that must pass; empty if none is known.
        answer: The answer in it.
        options: The verifier's options.
    """
    tolerance = allowed(problem, options)
    responses = {**NOTHING, "the prompt repeated": prompt_of(problem)}
    changed = wrong_answers(problem, answer, tolerance)
    written = {how: write(response, answer, wrong) for how, wrong in changed.items()}
    responses |= {f"the reference with {how}": text for how, text in written.items()}
    if len(written) >= 2:
        first, second, *rest = (_brief(text) for text in written.values())
        right = _brief(response or write("", answer, answer))
        several = [first, second, right, *rest[:2], first]
        responses["several answers, the right one among them"] = "\n".join(several)
    if echoed := echo(problem, answer, tolerance):
        responses["a number of the prompt"] = write(response, answer, echoed)
    if answer and response.count(answer) == 1 and len(response) > len(answer):
        responses["the form without an answer"] = write(response, answer, "")
    return responses


def wrong_answers(problem: Problem, answer: str, tolerance: float = 0.0) -> dict[str, str]:
    """Return wrong answers close to the right one, by how they differ.

    Empty if no change of the text is certain to change its meaning.
    """
    answer = answer.strip()
    value = plain(answer)
    if value is not None:
        return _wrong_numbers(answer, value, tolerance)
    if _LETTER.fullmatch(answer):
        return {"another letter": "ABCD"[(ord(answer) - ord("A") + 1) % 4]}
    if _WORD.fullmatch(answer):
        return {"two letters more": answer + "qx"}
    brief = len(answer) <= BRIEF and "\n" not in answer
    integers = list(_INTEGER.finditer(answer)) if brief else []
    if not integers:
        return {}
    at, end = integers[-1].span()
    return {"another number in it": f"{answer[:at]}{int(answer[at:end]) + 1}{answer[end:]}"}


def _wrong_numbers(answer: str, value: Fraction, tolerance: float) -> dict[str, str]:
    places = [at for at, one in enumerate(answer) if one.isdigit()]
    first, last = places[0], places[-1]
    changes = {
        "another first digit": _with(answer, first, str(int(answer[first]) % 9 + 1)),
        "another last digit": _with(answer, last, str((int(answer[last]) + 1) % 10)),
        "a digit more": answer[: last + 1] + "7" + answer[last + 1 :],
        "another sign": answer[1:] if answer.startswith("-") else f"-{answer.lstrip('+')}",
    }
    if value.denominator == 1 and answer.lstrip("-").isdigit():
        sign, digits = answer[:first], answer[first:]
        changes |= {
            "one more": str(int(value) + 1),
            "one less": str(int(value) - 1),
            "its first digit left out": sign + digits[1:],
            "its last digit left out": sign + digits[:-1],
        }
    near: dict[str, str] = {}
    for how, wrong in changes.items():
        number = plain(wrong)
        begins = wrong.lstrip("-")[:1]
        if number is None or wrong in near.values() or (begins == "0" and "." not in wrong):
            continue
        if differ(value, number, tolerance):
            near[how] = wrong
    return near


def _with(text: str, at: int, character: str) -> str:
    return text[:at] + character + text[at + 1 :]


def echo(problem: Problem, answer: str, tolerance: float = 0.0) -> str:
    """Return the last number of the prompt that is not the answer; empty if there is none."""
    value = plain(answer)
    if value is None:
        return ""
    for number in reversed(numbers_in(prompt_of(problem))):
        other = plain(number)
        if other is not None and differ(abs(value), other, tolerance):
            return number
    return ""


def write(response: str, answer: str, other: str) -> str:
    """Write another answer in the form of a response; as a sentence if it has no such place."""
    before, place, after = response.rpartition(answer)
    return f"{before}{other}{after}" if place and answer else f"The answer is {other}."


def _brief(response: str) -> str:
    return response if len(response) <= ONE_LINE else response.rstrip().rpartition("\n")[2]


def prompt_of(problem: Problem) -> str:
    """Return a prompt as one text."""
    if isinstance(problem.prompt, str):
        return problem.prompt
    return "\n".join(turn.content for turn in problem.prompt)


@lru_cache(maxsize=8192)  # the same few answers recur
def plain(text: str | None) -> Fraction | None:
    """Return the value of a text that is one number and nothing else; None for others."""
    bare = (text or "").strip().strip("$").rstrip(".").strip()
    if len(bare) > LONGEST or not NUMBER.fullmatch(bare):
        return None
    return Fraction(bare.replace(",", ""))


def differ(value: Fraction, other: Fraction, tolerance: float = 0.0) -> bool:
    """Return whether two numbers are different answers, whatever a verifier's policy.

    A number and its hundredfold may be the same percentage.

    Args:
        value: A number.
        other: Another.
        tolerance: Relative difference that the problem or the config allows.
    """
    if value * 100 == other or other * 100 == value:
        return False
    return abs(value - other) > max(tolerance, SAME) * max(abs(value), abs(other))


def numbers_in(text: str) -> list[str]:
    """Return the numbers in a text, in order, without sign."""
    return [number.lstrip("-+") for number in NUMBER.findall(text)]
