"""Verdicts on honest and careless programs; hostile ones are in test_attacks.py."""

from __future__ import annotations

import pytest

from rlvr_code.verifiers import Call, HumanEval, Mbpp, Stdin
from rlvr_core.api import Completion, DataError, Problem
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.verdicts import VerifierSpec
from tests.support.tables import table

KINDS = {"mbpp": Mbpp, "humaneval": HumanEval, "call": Call, "stdin": Stdin}
_made = {}


def judge(verifier, spec, text, **options):
    """The verdict on a response, fenced for it."""
    key = (verifier, tuple(sorted(options.items())))
    if key not in _made:
        _made[key] = verifier(
            verifier.Config(case_seconds=20.0, total_seconds=60.0)
            if not options
            else verifier.Config(**options)
        )
    problem = Problem("p", "", "code/x", spec, "code/x")
    return _made[key].verify(problem, Completion.from_text(f"```python\n{text}\n```"))


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    for verifier in _made.values():
        verifier.close()
    _made.clear()


def asserts(*tests, **more):
    return {"test_list": list(tests), **more}


@pytest.mark.parametrize("attack", ["import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_t64_exit_code_0_is_no_pass(attack):
    spec = asserts("assert f(1) == 2")
    assert judge(Mbpp, spec, attack).score == 0.0
    assert judge(Mbpp, spec, f"def f(x):\n    {attack}").score == 0.0
    human = {
        "prompt": "def f(x):\n",
        "entry_point": "f",
        "test": "def check(c):\n    assert c(1) == 2",
    }
    assert judge(HumanEval, human, f"def f(x):\n    {attack}").score == 0.0


def test_t65_a_printed_result_is_no_result():
    spec = asserts("assert f(1) == 2")
    assert judge(Mbpp, spec, "def f(x):\n    print('{\"passed\": 1}', 'OK')").score == 0.0


def test_t66_many_tests_are_bundled_with_limits_and_an_early_end():
    spec = {"inputs": [f"{n}\n" for n in range(60)], "outputs": [f"{n}\n" for n in range(60)]}
    good = judge(Stdin, spec, "print(input())")
    assert (good.score, good.detail) == (1.0, "all 60 tests pass")
    slow = "n = int(input())\nif n >= 2:\n    while True: pass\nprint(n)"
    bad = judge(Stdin, spec, slow, score="fraction", case_seconds=0.5, total_seconds=60.0)
    assert bad.parts["tests"] == 2 / 60  # and not 58 time limits later
    assert "test 3 of 60" in bad.detail
    assert "limit" in bad.detail


def test_the_sum_of_all_tests_is_limited():
    spec = {"inputs": ["1\n"] * 50, "outputs": ["1\n"] * 50}
    slow = "import time\ntime.sleep(0.3)\nprint(input())"
    verdict = judge(Stdin, spec, slow, score="fraction", case_seconds=5.0, total_seconds=1.0)
    assert 0 < verdict.score < 1
    assert verdict.passed is False


@pytest.mark.parametrize(("score", "expected"), [("all", 0.0), ("fraction", 2 / 3)])
def test_all_or_nothing_or_a_fraction(score, expected):
    code = "def f(x):\n    return x if x < 3 else 0\nif __name__ == '__main__':\n    print(f(int(input())))"
    options = {"score": score, "case_seconds": 20.0, "total_seconds": 60.0}
    tests = asserts(*(f"assert f({n}) == {n}" for n in (1, 2, 3)))
    given = {"inputs": ["1", "2", "3"], "outputs": ["1", "2", "3"]}
    calls = {"fn_name": "f", "inputs": [[1], [2], [3]], "outputs": [1, 2, 3]}
    for verifier, spec in ((Mbpp, tests), (Stdin, given), (Call, calls)):
        assert judge(verifier, spec, code, **options).score == pytest.approx(expected)


def test_a_test_that_ends_the_program_costs_only_itself():
    code = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    if x == 2:\n        while True: pass\n    return x"
    options = {"score": "fraction", "case_seconds": 1.0, "total_seconds": 60.0}
    tests = asserts(*(f"assert f({n}) == {n}" for n in range(5)))
    calls = {"fn_name": "f", "inputs": [[n] for n in range(5)], "outputs": list(range(5))}
    assert judge(Mbpp, tests, code, **options).score == pytest.approx(3 / 5)
    assert judge(Call, calls, code, **options).score == pytest.approx(3 / 5)


@pytest.mark.parametrize(("tests", "code"), table(__file__, "values"))
def test_ordinary_values_cross(tests, code):
    verdict = judge(Mbpp, asserts(*tests, code=code), code)
    assert verdict.score == 1.0, verdict.detail


@pytest.mark.parametrize("code", table(__file__, "wrong programs"))
def test_wrong_programs_fail(code):
    verdict = judge(Mbpp, asserts("assert f(1) == 2"), code)
    assert (verdict.score, verdict.status, verdict.passed) == (0.0, "ok", False)
    assert verdict.detail


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        ("1 2\n3\n", True),
        ("1 2 3", True),
        ("1  2\n\n3\n\n", True),
        ("1 2", False),
        ("1 2 3 4", False),
        ("1 2 3.0", False),
        ("", False),
    ],
)
def test_output_is_compared_by_words(output, passes):
    spec = {"inputs": [""], "outputs": ["1 2\n3\n"]}
    assert judge(Stdin, spec, f"print({output!r}, end='')").passed is passes


def test_decimals_may_differ_a_little():
    spec = {"inputs": [""], "outputs": ["0.3333333333 x\n"]}
    assert judge(Stdin, spec, "print(1/3, 'x')").passed
    assert not judge(Stdin, spec, "print(0.33, 'x')").passed
    assert not judge(Stdin, spec, "print('nan', 'x')").passed
    assert not judge(Stdin, spec, "print(1/3, 'x')", tolerance=0.0, case_seconds=20.0).passed


@pytest.mark.parametrize(("expected", "code", "passes"), table(__file__, "returned"))
def test_returned_values_are_compared_as_json(expected, code, passes):
    spec = {"fn_name": "f", "inputs": [[0], [1]], "outputs": [expected, 5]}
    assert judge(Call, spec, f"def f(n): return 5 if n else {code}").passed is passes


def test_calls_of_a_class_with_the_usual_imports_and_wrapped_values():
    code = "class Solution:\n    def f(self, xs: List[int]) -> int:\n        return sum(xs)"
    spec = {"fn_name": "f", "inputs": [[[1, 2]], [[3]]], "outputs": [[3], [3]], "wrapped": True}
    assert judge(Call, spec, code).score == 1.0
    assert judge(Call, spec | {"wrapped": False}, code).score == 0.0
    lines = judge(Call, spec, "def f(xs):\n    return 1 / 0")
    assert "division by zero" in lines.detail


def test_functions_may_have_the_name_of_a_module():
    for test in ("assert bisect([1]) == 2", "import math\nassert copy(math.inf) == 2"):
        name = "bisect" if "bisect" in test else "copy"
        assert judge(Mbpp, asserts(test), f"def {name}(x): return 2").score == 1.0
        assert judge(Mbpp, asserts(test), f"def {name}(x): return 3").score == 0.0
        assert judge(Mbpp, asserts(test), "").score == 0.0


def test_output_may_be_as_long_as_it_should_be():
    spec = {"inputs": ["3000000"], "outputs": ["1\n" * 3_000_000]}
    options = {"case_seconds": 60.0, "total_seconds": 120.0}
    verdict = judge(Stdin, spec, "print('1\\n' * int(input()), end='')", **options)
    assert verdict.score == 1.0, verdict.detail
    verdict = judge(Stdin, spec, "print('1\\n' * 20 * int(input()), end='')", **options)
    assert verdict.score == 0.0
    assert "too much output" in verdict.detail


def test_order_may_be_free():
    spec = {"fn_name": "f", "inputs": [[]], "outputs": [[1, 2, 3]]}
    options = {"order": "any", "case_seconds": 20.0, "total_seconds": 60.0}
    assert judge(Call, spec, "def f(): return [3, 1, 2]", **options).passed
    assert not judge(Call, spec, "def f(): return [3, 1, 1]", **options).passed


@pytest.mark.parametrize(
    ("verifier", "spec", "said"),
    table(__file__, "refused", KINDS),
)
def test_t46_problems_that_cannot_be_judged_are_refused(verifier, spec, said):
    with pytest.raises(DataError, match=said):
        verifier(verifier.Config()).check(Problem("p", "", "code/x", spec, "code/x"))


def test_gold_answers_pass_their_verifier():
    spec = {"inputs": ["3\n"], "outputs": ["9\n"], "solutions": ["n = int(input())\nprint(n * n)"]}
    problem = Problem("p", "", "code/stdin", spec, "code/stdin")
    verifier = Stdin(Stdin.Config())
    text = verifier.gold(problem)
    assert verifier.verify(problem, Completion.from_text(text)).score == 1.0
    verifier.close()


def test_verifiers_work_in_the_pool_and_end_with_it():
    spec = VerifierSpec("rlvr_code.verifiers:Mbpp", {"case_seconds": 20.0})
    problem = Problem("p", "", "code/mbpp", asserts("assert f(2) == 4"), "code/mbpp")
    texts = ["def f(x): return x * x", "def f(x): return 5", "import os; os._exit(0)"]
    with VerifierPool({"code/mbpp": spec}, workers=1, timeout=120.0, memory_mb=2048) as pool:
        completions = [Completion.from_text(f"```python\n{text}\n```") for text in texts]
        rows = pool.submit_group(problem, completions, ["code/mbpp"]).result(120)
    assert [row["code/mbpp"].score for row in rows] == [1.0, 0.0, 0.0]
