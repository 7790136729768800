# ruff: noqa: RUF001
import gzip
import json
import os
import random
from pathlib import Path

import pytest

from rlvr_checks.degenerate import Degenerate, gibberish, repetition
from rlvr_core.api import Completion, Problem

SOLUTIONS = Path(os.environ.get("RLVR_DATA", "../shared/data")) / "gsm8k" / "train.jsonl.gz"
PROBLEM = Problem("p", "prompt", "checks/degenerate", {}, "toy")
PROSE = (
    "Each box has 12 pens, and she buys 4 boxes, so she has 12 * 4 = 48 pens. She gives away a "
    "quarter of them, which is 48 / 4 = 12, and keeps 48 - 12 = 36. At two dollars a pen these "
    "are worth 72 dollars. Her brother finds 5 more under the table, so the answer is 41."
)


def verdict(text, **options):
    done = Completion((1,), (2,), (-1.0,), (True,), text, "stop")
    return Degenerate(Degenerate.Config(**options)).verify(PROBLEM, done)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        PROSE,
        "Die Straßenbahn fährt um 8 Uhr ab; sie braucht 25 Minuten. " + PROSE,
        "答えは 42 です。まず 6 と 7 を掛けます。",
        "Пусть x = 3, тогда x + 4 = 7.",
        "Let \u03b1 = \u03c0 / 2, \\frac{\\alpha}{2} = \\frac{\\pi}{4}.",
        "no no no no",
        "def f(x):\n    return x + 1\n\n\nassert f(1) == 2\nassert f(2) == 3\n",
    ],
)
def test_ordinary_text(text):
    found = verdict(text)
    assert (found.score, found.passed, found.detail) == (1.0, None, "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (PROSE + " the answer is 41." * 60, "repetition"),
        ("7" * 400, "repetition"),
        ("Wait, let me check this again. " * 30, "repetition"),
        ("\ufffd\ufffd\ufffd answer \x00\x01", "gibberish"),
        ("qwxzkjv" * 12, "gibberish"),
        ("the числоnumber is четыреfour and пятьfive", "gibberish"),
    ],
)
def test_what_is_none(text, fault):
    found = verdict(text)
    assert found.score == 0.0
    assert fault in found.detail


def test_shares_by_hand():
    assert gibberish("ab\ufffd\ufffd") == 0.5
    assert gibberish("a\tb\nc") == 0.0
    assert repetition("x" * 199) == 0.0
    assert repetition("x" * 4000) > 0.98
    letters = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz ", k=4000))
    assert repetition(letters) < 0.5
    assert verdict("x" * 199).score == 0.0, "a word of 199 letters"
    assert verdict("no " * 66, min_characters=199).score == 1.0


@pytest.mark.skipif(not SOLUTIONS.is_file(), reason="RLVR_DATA has no GSM8K")
def test_solutions_that_people_wrote_are_ordinary():
    with gzip.open(SOLUTIONS, "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["answer"] for line in file]
    assert len(texts) == 7473
    assert [text for text in texts if verdict(text).score != 1.0] == []
