"""Every reference of every data set is the same as its plain rewritings, and not as others."""

import os
import re
from pathlib import Path

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_math.answer import Answer
from rlvr_math.competition import (
    Aime24,
    Amc23,
    DeepScaler,
    Math,
    Math500,
    MinervaMath,
    OlympiadBench,
)
from rlvr_math.gsm8k import Gsm8k

DATA = Path(os.environ.get("RLVR_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(
    not (DATA / "math").is_dir(), reason=f"no math/ in {DATA}: set RLVR_DATA to its folder"
)
EVERY = 1 if os.environ.get("RLVR_TEST_ALL") else 20
"""One reference of so many is tested."""
SETS = {
    "math-train": (Math, "math/train_7500.jsonl.gz", {}),
    "math-test": (Math, "math/test_5000.jsonl.gz", {"split": "test"}),
    "math500": (Math500, "math/math500.jsonl", {}),
    "deepscaler": (DeepScaler, "math/rllm_train_7474.json.gz", {}),
    "aime24": (Aime24, "math/aime24.jsonl", {}),
    "aime-1983-2023": (Aime24, "math/aime_1983_2023.json.gz", {}),
    "amc23": (Amc23, "math/amc23.jsonl", {}),
    "minerva": (MinervaMath, "math/minerva_math.jsonl", {}),
    "olympiadbench": (OlympiadBench, "math/olympiadbench.jsonl.gz", {}),
    "gsm8k": (Gsm8k, "gsm8k/test.jsonl", {"split": "test"}),
}
_GROUPED = re.compile(r"-?\d{1,3}(?:(?:,|,?\\!\s?|\{,\}|,\\!\s?|\\,)+\s?\d{3})*")
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(\d+)\}")
VERIFIER = Answer(Answer.Config())


def rewritings(reference):
    """Other plain ways to write an answer, each by one small rule."""
    if "\\!" not in reference:
        yield "layout", re.sub(r"\\(?:left|right)(?![A-Za-z])|\\[,;]", "", reference)
    yield "spaces", f" {reference} ."
    yield "big fractions", re.sub(r"\\[tc]?frac(?![A-Za-z])", r"\\dfrac", reference)
    if _FRACTION.fullmatch(reference):
        yield "slash", _FRACTION.sub(r"\1/\2", reference)
    if _GROUPED.fullmatch(reference) and reference.count(",") != 1:
        number = int(re.sub(r"[^\d-]", "", reference))
        yield "digits", str(number)
        yield "commas", f"{number:,}"
        yield "thin spaces", f"{number:,}".replace(",", r"\,")
        yield "braces", f"{number:,}".replace(",", "{,}")
        yield "decimal", f"{number}.0"
    if re.fullmatch(r"[\d\sx+*^()\\{}frac/-]+", reference) and "\\frac" not in reference:
        yield "stars", reference.replace("^", "**")
    yield "unicode minus", reference.replace("-", "\N{MINUS SIGN}")
    yield "unicode pi", re.sub(r"\\pi(?![A-Za-z])", "\N{GREEK SMALL LETTER PI}", reference)
    yield "unicode infinity", re.sub(r"\\infty(?![A-Za-z])", "\N{INFINITY}", reference)
    yield "hidden", f"{reference}\N{ZERO WIDTH SPACE}"
    yield "dollars", f"${reference}$"


def passes(reference, answer):
    problem = Problem("p", "q", "v", {"answer": reference}, "d")
    return VERIFIER.verify(problem, Completion.from_text(f"\\boxed{{{answer}}}")).passed


def load(name):
    loader, path, options = SETS[name]
    if loader is not Gsm8k:
        options = options | {"skip_unanswered": True}
    config = loader.Config(path=str(DATA / path), **options)
    for problem in loader(config).load():
        given = problem.spec["gold_answer" if "gold_answer" in problem.spec else "answer"]
        yield problem.id, str(given).rpartition("####")[2].strip()


@needs_data
@pytest.mark.parametrize("name", SETS)
def test_a_reference_is_the_same_as_its_rewritings(name):
    wrong, tested = [], 0
    for id_, reference in list(load(name))[::EVERY]:
        for rule, text in rewritings(reference):
            tested += 1
            if not passes(reference, text):
                wrong.append((id_, rule, reference, text))
    assert tested
    assert len(wrong) <= tested * 0.002, wrong


def test_thousands_with_spaces_are_one_number():
    assert passes(r"11,\! 111,\! 111,\! 100", "11111111100")
    assert passes(r"11,\! 111,\! 111,\! 100", "11,111,111,100")
    assert not passes(r"11,\! 111,\! 111,\! 100", "11, 111, 111, 100")
    assert not passes(r"11,\! 111,\! 111,\! 100", "100")
