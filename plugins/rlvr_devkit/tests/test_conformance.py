"""The conformance kit: a good verifier passes, and each kind of bad one fails its own check."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from rlvr_core.api import Completion, ComponentConfig, DataError, Example, Problem, Verdict
from rlvr_devkit.conformance.cases import load_cases
from rlvr_devkit.conformance.checks import CHECKS
from rlvr_devkit.conformance.junk import junk
from rlvr_devkit.conformance.subject import Subject

CASES = [
    {"spec": {"answer": "7", "seen": []}, "response": "It is 7", "passed": True, "score": 1.0},
    {"spec": {"answer": "7", "seen": []}, "response": "It is 8", "passed": False, "score": 0},
    {"spec": {"answer": "9", "seen": []}, "response": "9", "passed": True},
]


class Good:
    class Config(ComponentConfig):
        top: float = 1.0
        """Score of a right answer."""

    def __init__(self, config):
        self.config = config

    def check(self, problem: Problem):
        if not isinstance(problem.spec.get("answer"), str):
            raise DataError("no answer")

    def gold(self, problem):
        return problem.spec["answer"]

    def verify(self, problem: Problem, completion: Completion):
        passed = completion.text.endswith(problem.spec["answer"])
        return Verdict(self.config.top if passed else 0.0, passed=passed)

    def verify_group(self, problem, completions):
        return [self.verify(problem, completion) for completion in completions]


class Lenient(Good):
    def verify(self, problem, completion):
        return Verdict(1.0, passed=True)


class Strict(Good):
    def verify(self, problem, completion):
        return Verdict(0.0, passed=False)


class WrongGold(Good):
    def gold(self, problem):
        return "no"


class Moody(Good):
    calls = itertools.count()

    def verify(self, problem, completion):
        return Verdict(0.5, passed=True, detail=str(next(self.calls)))


class Endless(Good):
    def verify(self, problem, completion):
        return Verdict(float("inf"), passed=True)


class Generous(Good):
    def verify(self, problem, completion):
        return Verdict(2.0, passed=True)


class Raising(Good):
    def verify(self, problem, completion):
        if "\0" in completion.text:
            raise ValueError("NUL")
        return super().verify(problem, completion)


class NoVerdict(Good):
    def verify(self, problem, completion):
        return 1.0 if not completion.text else super().verify(problem, completion)


class Writing(Good):
    def verify(self, problem, completion):
        problem.spec["seen"].append(completion.text)
        return super().verify(problem, completion)


class Unpicklable(Good):
    def __init__(self, config):
        super().__init__(config)
        self.test = lambda: True


class Forgetful(Good):
    def __init__(self, config):
        super().__init__(config)
        self.scale = 1.0

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.scale = 0.5

    def verify(self, problem, completion):
        verdict = super().verify(problem, completion)
        return Verdict(verdict.score * self.scale, passed=verdict.passed)


class LooseConfig(Good):
    class Config(ComponentConfig, extra="allow"):
        top: float = 1.0
        """Score of a right answer."""


class UnexplainedConfig(Good):
    class Config(ComponentConfig):
        top: float = 1.0


class UnwritableConfig(Good):
    class Config(ComponentConfig, ser_json_bytes="base64"):
        top: float = 1.0
        """Score of a right answer."""
        marker: bytes = b"\x80"
        """Is not read back as it is written."""


class Crashing(Good):
    def check(self, problem):
        problem.spec["answer"].strip()


class Fussy(Good):
    def check(self, problem):
        raise DataError("never good enough")


class Comparing(Good):
    def verify_group(self, problem, completions):
        return [Verdict(0.0, passed=False) for _ in completions]


def failing(verifier, *, cases=CASES, **options):
    subject = Subject("verifier", verifier, Example(options, cases))
    failed = set()
    for check in CHECKS["verifier"]:
        try:
            if not check.needs or hasattr(verifier, check.needs):
                check.run(subject)
        except Exception:
            failed.add(check.id)
    return failed


def test_good_verifier_passes():
    assert failing(Good) == set()
    assert failing(Good, top=0.5, cases=[{**CASES[0], "score": 0.5}, CASES[1]]) == set()


@pytest.mark.parametrize(
    ("verifier", "ids"),
    [
        (Lenient, {"right-and-wrong"}),
        (Strict, {"right-and-wrong", "gold"}),
        (WrongGold, {"gold"}),
        (Moody, {"right-and-wrong", "deterministic", "group"}),
        (Endless, {"right-and-wrong", "junk"}),
        (Generous, {"right-and-wrong", "junk"}),
        (Raising, {"junk"}),
        (NoVerdict, {"junk"}),
        (Writing, {"deterministic"}),
        (Unpicklable, {"deterministic"}),
        (Forgetful, {"deterministic"}),
        (LooseConfig, {"config"}),
        (UnwritableConfig, {"config"}),
        (UnexplainedConfig, {"options"}),
        (Crashing, {"check"}),
        (Fussy, {"check"}),
        (Comparing, {"group"}),
    ],
)
def test_bad_verifier_fails_its_check(verifier, ids):
    assert failing(verifier) == ids


def test_cases_must_show_both_outcomes():
    assert "right-and-wrong" in failing(Good, cases=[CASES[0]])
    assert "right-and-wrong" in failing(Good, cases=[CASES[1]])


def test_wrong_score_names_the_case(tmp_path):
    file = tmp_path / "cases.jsonl"
    rows = [{"spec": {"answer": "7"}, "response": "7", "score": 0.5}, *CASES]
    file.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    check = next(check for check in CHECKS["verifier"] if check.id == "right-and-wrong")
    with pytest.raises(AssertionError, match=re.escape(f"{file}:2: must score 0.5")):
        check.run(Subject("verifier", Good, Example(cases=file)))


def test_malformed_cases_are_reported_together():
    rows = [
        {"spec": {}, "response": "x"},
        {"response": "x", "passed": True},
        {"spec": {}, "response": 3, "passed": True},
        {"spec": {}, "response": "x", "passed": 1},
        {"spec": {}, "response": "x", "score": True},
        {"spec": {}, "response": "x", "pased": True},
    ]
    with pytest.raises(DataError) as caught:
        load_cases(rows)
    assert [c.where for c in caught.value.complaints] == [f"case {n}" for n in range(6)]
    with pytest.raises(DataError, match="no cases"):
        load_cases([])


def test_junk_has_what_the_promise_says():
    texts = junk("PROMPT", "RIGHT", "WRONG")
    assert "" in texts.values()
    assert any(len(text) >= 100_000 for text in texts.values())
    assert any("\0" in text for text in texts.values())
    assert any("\ud800" in text for text in texts.values())
    assert any(text.count("{") > text.count("}") for text in texts.values())
    assert texts["the prompt"] == "PROMPT"
    assert "RIGHT" in texts["several answers"]
    assert "WRONG" in texts["several answers"]
