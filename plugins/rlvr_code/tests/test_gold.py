"""Canonical solutions pass, and solutions with one fault do not, on all of MBPP and HumanEval."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugins.rlvr_code.tests import mutants
from rlvr_code.humaneval import HumanEval as HumanEvalData
from rlvr_code.mbpp import SPLITS
from rlvr_code.mbpp import Mbpp as MbppData
from rlvr_code.verifiers import HumanEval, Mbpp
from rlvr_core.api import Completion

DATA = Path(os.environ.get("RLVR_DATA", "../shared/data"))
FULL, CLEAN = DATA / "mbpp" / "mbpp.jsonl", DATA / "mbpp" / "sanitized-mbpp.json"
HUMANEVAL = DATA / "humaneval" / "HumanEval.jsonl.gz"
pytestmark = pytest.mark.skipif(not FULL.exists(), reason=f"no benchmark data in {DATA}")


def mbpp(path=FULL, **options):
    """Every problem of MBPP."""
    loaders = [MbppData(MbppData.Config(path=str(path), split=s, **options)) for s in SPLITS]
    return [problem for loader in loaders for problem in loader.load()]


def humaneval():
    """Every problem of HumanEval."""
    return list(HumanEvalData(HumanEvalData.Config(path=str(HUMANEVAL))).load())


def program(problem):
    """The canonical program and its tests, as one would run them by hand."""
    spec = problem.spec
    if problem.verifier == "code/mbpp":
        setup = [*(spec.get("test_imports") or []), spec.get("test_setup_code") or ""]
        return spec["code"], ["\n".join(setup), *spec["test_list"]]
    code = spec["prompt"] + spec["canonical_solution"]
    return code, [spec["test"], f"check({spec['entry_point']})"]


@pytest.fixture(scope="module")
def verifiers():
    """One of each, in the sandbox that this machine takes."""
    options = {"case_seconds": 30.0, "total_seconds": 60.0}
    made = {
        "code/mbpp": Mbpp(Mbpp.Config(**options)),
        "code/humaneval": HumanEval(HumanEval.Config(**options)),
    }
    yield made
    for verifier in made.values():
        verifier.close()


def judge(verifiers, problem, text):
    """The verdict on a response."""
    return verifiers[problem.verifier].verify(problem, Completion.from_text(text))


@pytest.mark.parametrize("place", range(0, 974, 160))
def test_some_of_mbpp(place, verifiers):
    check(mbpp()[place], verifiers)


@pytest.mark.parametrize("place", [0, 32, 38, 50, 53, 100, 163])
def test_some_of_humaneval(place, verifiers):
    check(humaneval()[place], verifiers)


def check(problem, verifiers):
    """Gold passes, three faults do not; the empty response does not."""
    verifier = verifiers[problem.verifier]
    verifier.check(problem)
    gold = judge(verifiers, problem, verifier.gold(problem))
    assert gold.score == 1.0, (problem.id, gold.detail)
    code, tests = program(problem)
    # helpers that HumanEval's prompt brings are not the response's: they are put back
    wrong = mutants.breaking(code, tests, within=problem.spec.get("entry_point"))
    assert len(wrong) == 3, problem.id
    for mutant in wrong:
        verdict = judge(verifiers, problem, f"```python\n{mutant}\n```")
        assert (verdict.score, verdict.status) == (0.0, "ok"), (problem.id, mutant)
    assert judge(verifiers, problem, "").score == 0.0


@pytest.mark.slow
def test_every_canonical_solution_passes(verifiers):
    for problem in [*mbpp(), *humaneval()]:
        gold = judge(verifiers, problem, verifiers[problem.verifier].gold(problem))
        assert gold.score == 1.0, (problem.id, gold.detail)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.skipif(os.environ.get("RLVR_TEST_ALL") != "1", reason="long: make test-all runs it")
def test_all_of_mbpp_and_humaneval_with_mutants(verifiers):
    for problem in [*mbpp(), *humaneval()]:
        check(problem, verifiers)


@pytest.mark.slow
def test_all_of_the_sanitised_version(verifiers):
    for problem in mbpp(CLEAN, sanitized=True):
        gold = judge(verifiers, problem, verifiers["code/mbpp"].gold(problem))
        assert gold.score == 1.0, (problem.id, gold.detail)


def test_challenge_tests_too(verifiers):
    verifier = Mbpp(Mbpp.Config(challenge=True, case_seconds=30.0, total_seconds=60.0))
    rows = [p for p in mbpp() if p.spec.get("challenge_test_list")]
    verdicts = [verifier.verify(p, Completion.from_text(verifier.gold(p))) for p in rows[:20]]
    verifier.close()
    assert [v.score for v in verdicts] == [1.0] * len(verdicts)


def test_a_raw_continuation_is_judged_like_a_fenced_one(verifiers):
    problem = humaneval()[32]  # its prompt defines a helper that the test uses
    assert judge(verifiers, problem, problem.spec["canonical_solution"]).score == 1.0


def test_helpers_of_the_prompt_are_not_the_responses_to_change(verifiers):
    """HumanEval/38 decodes what a helper of the prompt encodes; two identities must not pass."""
    problem = humaneval()[38]
    cheat = "def encode_cyclic(s):\n    return s\n\ndef decode_cyclic(s):\n    return s\n"
    verdict = judge(verifiers, problem, f"```python\n{cheat}```")
    assert verdict.score == 0.0
