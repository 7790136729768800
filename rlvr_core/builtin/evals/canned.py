"""Answers that every evaluation of a problem has its verifiers judge, whatever the model said.

Right ones in the usual forms, wrong ones, and texts of all lengths and characters: two evaluations
whose verifiers judge these alike have hardly been judged by different rules.
"""

from __future__ import annotations

import random
import string
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import GivesGold, Json, Problem
from rlvr_core.guards.wrong_answers import wrong_responses

if TYPE_CHECKING:
    from rlvr_core.api.services import Host

FORMS: Mapping[str, str] = {
    "alone": "{}",
    "in a sentence": "The answer is {}.",
    "in upper case": "THE ANSWER IS {}",
    "after hashes": "Let me think.\n#### {}",
    "boxed": "So it is $\\boxed{{{}}}$.",
    "in tags": "<think>Let me think.</think>\n<answer>{}</answer>",
    "in JSON": '{{"answer": "{}"}}',
    "in a block": "```\n{}\n```",
    "behind much text": "and so it goes on and on, word after word.\n" * 40 + "{}",
    "before other text": "{}\nand so it goes on and on, word after word.",
    "twice": "{0}\n{0}",
    "with spaces": "  {}  \n",
}
"""Usual forms of an answer."""
STATED = ("gold_answer", "answer", "gold", "target", "reference", "ground_truth", "label")
"""Fields of a problem's spec that hold an answer."""
_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 100, 150, 250, 500, 1000, 3000)
_SIGNS = string.ascii_lowercase + string.digits + ".,:;!?-+*/=()[]{}<>_#$%&\"'\\\n"
_WORDS = ("the", "answer", "is", "yes", "no", "and", "because", "so", "A", "B", "C", "D", "0", "7")


def canned(
    problem: Problem, verifier: Any, options: Mapping[str, Json], host: Host
) -> dict[str, str]:
    """Return the answers by a name that says their kind and ends in a checksum of the text.

    Args:
        problem: The problem.
        verifier: The verifier, which may know a right answer.
        options: Its options.
        host: The loaded plugins.
    """
    gold = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
    gold = gold if isinstance(gold, str) else ""
    stated = next((str(problem.spec[key]) for key in STATED if _plain(problem.spec.get(key))), "")
    found: dict[str, str] = {"the gold answer": gold} if gold else {}
    found |= wrong_responses(problem, gold, stated or gold, options)
    for one in dict.fromkeys((stated, gold)):
        if one:
            found |= {f"{one[:20]!r} {how}": form.format(one) for how, form in FORMS.items()}
    found |= _any_text()
    # those of one kind are spread, as slow verifiers judge only the first
    names = sorted(found, key=lambda name: zlib.crc32(name.encode("utf-8", "replace")))
    return {f"{name} [{_checksum(found[name])}]": found[name] for name in names}


def _any_text() -> dict[str, str]:
    """Return texts of all lengths, of words and of signs, and each sign alone."""
    draw = random.Random(0)
    found = {f"sign {one!r}": one for one in _SIGNS}
    for size in _LENGTHS:
        signs = draw.choices(_SIGNS + " " * 8, k=size)
        found[f"{size} signs"] = "".join(signs)
        found[f"{size} words"] = " ".join(draw.choices(_WORDS, k=size))
        found[f"{size} letters, none of them {signs[0]!r}"] = "".join(
            draw.choices([one for one in string.ascii_letters if one != signs[0]], k=size)
        )
    return found


def _plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
