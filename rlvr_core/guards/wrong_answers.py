"""Responses that must fail, made by corrupting one that must pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import islice

from rlvr_core.api import Json, Problem
from rlvr_core.guards.numbers import differ, numbers_in, plain

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
_LETTER = re.compile(r"[A-J]")
_WORD = re.compile(r"[A-Za-z]{3,24}")
_INTEGER = re.compile(r"(?<![\d.])\d+(?![\d.])")


def allowed(problem: Problem, options: Mapping[str, Json]) -> float:
    """Return the relative tolerance that a problem or its verifier's options allow."""
    tolerances = (problem.spec.get("tolerance"), options.get("tolerance"))
    return max((float(one) for one in tolerances if isinstance(one, int | float)), default=0.0)


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
    found = {**NOTHING, "the prompt repeated": prompt_of(problem)}
    changed = wrong_answers(problem, answer, tolerance)
    written = {how: write(response, answer, wrong) for how, wrong in changed.items()}
    found |= {f"the reference with {how}": text for how, text in written.items()}
    if len(written) >= 2:
        one, other, *rest = (_brief(text) for text in written.values())
        right = _brief(response or write("", answer, answer))
        several = [one, other, right, *rest[:2], one]
        found["several answers, the right one among them"] = "\n".join(several)
    if echoed := echo(problem, answer, tolerance):
        found["a number of the prompt"] = write(response, answer, echoed)
    if answer and response.count(answer) == 1 and len(response) > len(answer):
        found["the form without an answer"] = write(response, answer, "")
    return found


def wrong_answers(problem: Problem, answer: str, tolerance: float = 0.0) -> dict[str, str]:
    """Return wrong answers close to the right one, by how they differ.

    Empty if no change of the text is certain to change its meaning.
    """
    answer = answer.strip()
    value = plain(answer)
    if value is not None:
        return _wrong_numbers(answer, value, tolerance)
    if _LETTER.fullmatch(answer):
        other = _another_letter(problem, answer)
        return {"another letter": other} if other else {}
    if _WORD.fullmatch(answer):
        return {"two letters more": answer + "qx"}
    found = list(_INTEGER.finditer(answer)) if len(answer) <= BRIEF and "\n" not in answer else []
    if not found:
        return {}
    at, end = found[-1].span()
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
            "its digits in another order": sign + _reordered(digits),
        }
    found: dict[str, str] = {}
    for how, wrong in changes.items():
        number = plain(wrong)
        begins = wrong.lstrip("-")[:1]
        if number is None or wrong in found.values() or (begins == "0" and "." not in wrong):
            continue
        if differ(value, number, tolerance):
            found[how] = wrong
    return found


def _reordered(digits: str) -> str:
    """Return the digits reordered to another number of the same length; empty if impossible."""
    orders = (digits[::-1], *(digits[at:] + digits[:at] for at in range(1, len(digits))))
    return next((one for one in orders if one != digits and one[0] != "0"), "")


def _with(text: str, at: int, character: str) -> str:
    return text[:at] + character + text[at + 1 :]


def _another_letter(problem: Problem, letter: str) -> str:
    """Return the letter of an option with another text; the next letter if there are no texts."""
    options = problem.spec.get("options")
    if not isinstance(options, list | tuple):
        return "ABCD"[(ord(letter) - ord("A") + 1) % 4]
    texts = [str(one).strip().casefold() for one in options]
    right = ord(letter) - ord("A")
    if right >= len(texts):
        return ""
    around = (*range(right + 1, len(texts)), *range(right))
    return next((chr(ord("A") + at) for at in around if texts[at] != texts[right]), "")


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
    before, found, after = response.rpartition(answer)
    return f"{before}{other}{after}" if found and answer else f"The answer is {other}."


def _brief(response: str) -> str:
    return response if len(response) <= ONE_LINE else response.rstrip().rpartition("\n")[2]


def prompt_of(problem: Problem) -> str:
    """Return a prompt as one text."""
    if isinstance(problem.prompt, str):
        return problem.prompt
    return "\n".join(turn.content for turn in problem.prompt)


def some(kinds: Mapping[str, str], n: int, begin: int) -> dict[str, str]:
    """Return n of the canaries, starting at ``begin``, so that all are used over time."""
    names = list(kinds)
    turn = [names[(begin + at) % len(names)] for at in range(len(names))]
    return {name: kinds[name] for name in islice(turn, n)}
