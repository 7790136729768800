"""Whose a name in test code is: only the program's own are answered by the program."""

from __future__ import annotations

import json

import pytest

from rlvr_code import source
from rlvr_code.acecode import AceCode
from rlvr_code.names import whose
from rlvr_code.verifiers import HumanEval, Mbpp
from rlvr_core.api import Completion, DataError, Problem
from tests.support.tables import table


def judge(verifier, spec, code):
    """The verdict on a program."""
    made = verifier(verifier.Config(case_seconds=20.0, total_seconds=60.0))
    try:
        problem = Problem("p", "", "code/x", spec, "code/x")
        return made.verify(problem, Completion.from_text(f"```python\n{code}\n```"))
    finally:
        made.close()


@pytest.mark.parametrize(("test", "reference", "right", "forged"), table(__file__, "forged"))
def test_what_only_the_reference_or_nobody_imports_is_not_the_programs(
    test, reference, right, forged
):
    spec = {"test_list": [test]} | ({"code": reference} if reference else {})
    verdict = judge(Mbpp, spec, right)
    assert verdict.score == 1.0, verdict.detail
    assert judge(Mbpp, spec, forged).score == 0.0


def test_a_name_of_nobody_in_a_check_is_not_asked_of_the_program():
    spec = {
        "prompt": "def f(x):\n",
        "entry_point": "f",
        "test": "def check(c):\n    assert same(c(1), 2)",
    }
    verdict = judge(HumanEval, spec, "def same(*a): return True\ndef f(x): return 0")
    assert (verdict.score, "same" in verdict.detail) == (0.0, True)


@pytest.mark.parametrize(
    ("tests", "code", "program"),
    [
        (["assert gcd(4, 6) == 2"], None, ("gcd",)),  # though the library has one
        (["c = Counter()\nassert c.up() == 1"], None, ("Counter",)),
        (["assert f(lambda x: x + 1) == [y for y in (1, 2)]"], None, ("f",)),
        (["try:\n    f(1)\nexcept ValueError as e:\n    assert str(e)"], None, ("f",)),
        (["def g(a): return a + b\nassert f(g)"], None, ("b", "f")),
        (["assert f() == cache"], "def f():\n    global cache\n    cache = 1", ("cache", "f")),
    ],
)
def test_the_programs_names(tests, code, program):
    assert whose("p", tests, "", code).program == program


@pytest.mark.parametrize(
    ("tests", "code", "said"),
    [
        (["assert same(f(1), 2)"], "def f(x): return 2", "use same, which neither"),
        (["assert isclose(sqrt(4), 2)"], None, "which of isclose, sqrt"),
    ],
)
def test_a_name_that_is_nobodys_or_anybodys_is_refused(tests, code, said):
    with pytest.raises(DataError, match=said):
        whose("p", tests, "", code)


def test_a_library_that_is_not_there_fails_only_the_tests_that_use_it():
    spec = {"test_list": ["assert f(1) == 2", "assert np_.array(f(1)) == 2"]}
    spec["code"] = "import numpy_is_not_here as np_\ndef f(x): return 2"
    verdict = judge(Mbpp, spec, "def f(x): return 2")
    assert verdict.parts == {"tests": 0.5}, verdict.detail


def test_rows_of_acecode_with_unclear_names_are_left_out_and_counted(tmp_path, caplog):
    tests = (["assert isclose(sqrt(4), 2)"], ["assert sqrt(4) == 2"], ["assert f(1) ==", "sqrt"])
    rows = [{"id": str(n), "question": "q", "test_cases": one} for n, one in enumerate(tests)]
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(f"{json.dumps(row)}\n" for row in [*rows, {"id": "3", "question": "q"}])
    )
    found = AceCode(AceCode.Config(path=str(path))).load()
    assert [one.id for one in found] == ["acecode_1", "acecode_2"]
    assert "left out rows: 1 with unclear names, 1 without tests" in caplog.text


def test_imports_of_a_program():
    code = "import os.path, re\nfrom math import pi, e as euler\nfrom heapq import *"
    assert source.imports(code, {"os", "euler"}) == [
        "import os.path",
        "from math import e as euler",
    ]
    assert source.star_imports(code) == ["from heapq import *"]
