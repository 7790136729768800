"""Rules in place of the scoring of generators, and conditions in addition to it.

A generator's full marks must mean that the answer is right. Where they do not, or where its scoring
would run what the model wrote, the answer is judged here.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rlvr_gym import formulas

Entry = Mapping[str, Any]
Rule = Callable[[str, Entry], bool]

_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?")
_INTEGERS = re.compile(r"-?[0-9]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[a-z0-9]+")
_NUMBERS = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_NEAR = Fraction(1, 1000)
"""How far a probability may be off, as a share of it."""


def _formula(answer: str, entry: Entry) -> ast.expr:
    return formulas.parse(answer, max(formulas.LONGEST, 2 * len(entry["answer"])))


def _uses_and_gives(answer: str, entry: Entry) -> bool:
    """A formula of the given numbers, each used once, gives the target, or 24."""
    used: Counter[int] = Counter()
    result = formulas.value(_formula(answer, entry), used)
    target = entry["metadata"].get("target", 24)
    return bool(result == target and used == Counter(entry["metadata"]["numbers"]))


def _antiderivative(answer: str, entry: Entry) -> bool:
    reference = formulas.parse(entry["answer"], len(entry["answer"]))
    variable = entry["metadata"]["variable"]
    return formulas.same_derivative(_formula(answer, entry), reference, str(variable))


def _polynomial(answer: str, entry: Entry) -> bool:
    reference = formulas.parse(entry["answer"], len(entry["answer"]))
    return formulas.polynomial(_formula(answer, entry)) == formulas.polynomial(reference)


def _number_list(text: str) -> list[Decimal] | None:
    """Read ``['-69', '7.5']`` or ``[-69, 7.5]``."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    parts = [part.strip().strip("'\"").strip() for part in text[1:-1].split(",")]
    return [Decimal(p) for p in parts] if all(map(_NUMBER.fullmatch, parts)) else None


def _sorted_numbers(answer: str, entry: Entry) -> bool:
    numbers = _number_list(answer)
    return numbers is not None and numbers == _number_list(entry["answer"])


def _sorted_words(answer: str, entry: Entry) -> bool:
    words = [word.strip() for word in answer.split(",")]
    return bool(words == entry["metadata"]["sorted_words"])


def _same_words(answer: str, entry: Entry) -> bool:
    return answer.casefold().split() == str(entry["answer"]).casefold().split()


def _same_text(answer: str, entry: Entry) -> bool:
    return answer.casefold() == str(entry["answer"]).casefold()


def _same_letters(answer: str, entry: Entry) -> bool:
    return "".join(answer.casefold().split()) == str(entry["answer"]).casefold().strip()


def _same_json(answer: str, entry: Entry) -> bool:
    # as text, in which 1, 1.0 and true are different things
    return json.dumps(json.loads(answer)) == json.dumps(json.loads(entry["answer"]))


def _probability(answer: str, entry: Entry) -> bool:
    right = Fraction(entry["answer"])
    return abs(Fraction(answer.strip()) - right) <= _NEAR * right


def _roots(answer: str, entry: Entry) -> bool:
    def numbers(text: str) -> list[Decimal]:
        text = text.strip("'\" ")
        return sorted(Decimal(part.strip()) for part in text.split(",")) if text else []

    return numbers(answer) == numbers(entry["answer"])


def _signed_number(answer: str, entry: Entry) -> bool:
    text = answer.strip().removeprefix("$").removesuffix("%").replace(",", "")
    return bool(_NUMBER.fullmatch(text)) and Decimal(text) == Decimal(entry["answer"])


JUDGED: Mapping[str, tuple[Rule, str]] = {
    "countdown": (_uses_and_gives, "it evaluates the answer"),
    "puzzle24": (_uses_and_gives, "it evaluates the answer, and takes other numbers"),
    "intermediate_integration": (_antiderivative, "it evaluates the answer"),
    "simple_integration": (_antiderivative, "it evaluates the answer"),
    "polynomial_multiplication": (_polynomial, "it evaluates the answer"),
    "number_sorting": (_sorted_numbers, "each number may be off by 1, or NaN"),
    "word_sorting": (_sorted_words, "more words may follow"),
    "letter_jumble": (_same_words, "more words may follow"),
    "spell_backward": (_same_text, "rounding gives full marks to letters too many"),
    "figlet_font": (_same_letters, "ten right letters are enough"),
    "game_of_life": (_same_json, "more rows and columns may follow"),
    "coin_flip": (_probability, "0 is close enough to most of its probabilities"),
    "polynomial_equations": (_roots, "text is passed over, and no number means that no root is"),
    "gsm_symbolic": (_signed_number, "it does not see the sign of a number"),
}
"""Generators that are judged by a rule of this package, with what is wrong with their own."""


def _as_many_numbers(answer: str, entry: Entry) -> bool:
    return len(_NUMBERS.findall(answer)) == len(_NUMBERS.findall(entry["answer"]))


def _interval(answer: str, entry: Entry) -> bool:
    numbers, right = (list(map(Decimal, _NUMBERS.findall(t))) for t in (answer, entry["answer"]))
    return numbers == right and _words(answer) <= {"day", "days"}


def _moves(answer: str, entry: Entry) -> bool:
    return not answer.strip("UDLRudlr \n\r\t,")


def _presses(answer: str, entry: Entry) -> bool:
    return not answer.strip("ABCabc \n\r\t,→->")


def _fraction(answer: str, entry: Entry) -> bool:
    return _whole(answer) == _whole(entry["answer"]) and _words(answer) <= {"frac", "dfrac"}


def _whole_numbers(answer: str, entry: Entry) -> bool:
    return _whole(answer) == _whole(entry["answer"]) and not _words(answer)


def _whole(text: str) -> list[str]:
    return _INTEGERS.findall(text)


def _words(text: str) -> set[str]:
    return set(_LETTERS.findall(text.casefold()))


def _grid(answer: str, entry: Entry) -> bool:
    return not answer.strip("01 \n\r\t,[]")


def _same_claims(answer: str, entry: Entry) -> bool:
    def words(text: str) -> list[str]:
        return sorted(word for word in _WORD.findall(text.casefold()) if word != "and")

    return words(answer) == words(entry["answer"])


ALSO: Mapping[str, tuple[Rule, str]] = {
    "advanced_geometry": (_as_many_numbers, "more numbers may follow"),
    "fraction_simplification": (_fraction, "another fraction may follow"),
    "kakurasu": (_grid, "everything but 0 and 1 is passed over"),
    "knights_knaves": (_same_claims, "denials and other text are passed over"),
    "quantum_lock": (_presses, "everything but A, B and C is passed over"),
    "sokoban": (_moves, "everything but moves is passed over"),
    "survo": (_whole_numbers, "everything but numbers is passed over"),
    "time_intervals": (_interval, "more text may follow, and .5 is .005 seconds"),
}
"""Conditions in addition to the generator's full marks, with what it does not see."""


def reference(task: str, entry: Entry) -> str:
    """Return the reference of a problem as the question asks for it."""
    if task == "power_function":  # three significant figures; the generator gives all of them
        return f"{float(entry['answer']):.2e}"
    return str(entry["answer"])


def is_sound(task: str, entry: Entry) -> bool:
    """Whether the reference of a problem passes its rule, if it is judged by one.

    An integral that the generator could not solve is left out.
    """
    if task not in JUDGED:
        return True
    try:
        return JUDGED[task][0](str(entry["answer"]), entry)
    except (ArithmeticError, ValueError):
        return False
