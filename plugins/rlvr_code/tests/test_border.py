"""Where tests run: apart from the program, so that only data crosses, or in its own process."""

from __future__ import annotations

import pytest

from plugins.rlvr_code.tests.programs import read
from rlvr_code.verifiers import HumanEval, Mbpp, Pytest
from rlvr_core.api import Completion, DataError, Problem

PROGRAMS = read("border/programs.txt")


@pytest.fixture(scope="module")
def judge():
    """The verdict on a program; raises if the problem is refused."""
    made = {
        kind: kind(kind.Config(case_seconds=30.0, total_seconds=60.0))
        for kind in (Mbpp, Pytest, HumanEval)
    }

    def verdict(program, tests, kind=Mbpp, **spec):
        field = {Mbpp: "test_list", Pytest: "tests"}.get(kind)
        whole = {field: tests, **spec} if field else spec
        problem = Problem("p", "", "code/x", whole, "code/border")
        made[kind].check(problem)
        return made[kind].verify(problem, Completion.from_text(f"```python\n{program}\n```"))

    yield verdict
    for one in made.values():
        one.close()


STYLES = read("border/styles.txt")


@pytest.mark.parametrize("name", STYLES)
def test_styles_that_right_programs_pass(name, judge):
    code = PROGRAMS[name.partition(" ")[0]]
    verdict = judge(code, [STYLES[name]], code=code)
    assert verdict.score == 1.0, verdict.detail


def test_classes_of_the_setup_are_there_for_program_and_tests(judge):
    setup = "class Node:\n    def __init__(self, value, next=None):\n        self.value, self.next = value, next\n"
    code = "def flip(node):\n    last = None\n    while node:\n        last = Node(node.value, last)\n        node = node.next\n    return last"
    tests = [
        "n = flip(Node(1, Node(2)))\nassert (n.value, n.next.value, n.next.next) == (2, 1, None)"
    ]
    assert judge(code, tests, test_setup_code=setup).score == 1.0
    assert (
        judge(code.replace("node.value, last", "1, last"), tests, test_setup_code=setup).score == 0
    )


@pytest.mark.parametrize(
    "test",
    read("border/wrong.txt").values(),
)
def test_objects_that_agree_with_everything_pass_nothing(test, judge):
    verdict = judge(PROGRAMS["liar"], [test])
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict


@pytest.mark.parametrize(
    "given",
    [
        "(x for x in [SECRET])",
        "Own().method",
        "iter([SECRET])",
    ],
)
def test_an_object_of_the_tests_leads_nowhere(given, judge):
    setup = "SECRET = 8713\nclass Own:\n    _hidden = 8713\n    def method(self): return 1\n"
    verdict = judge(PROGRAMS["looks"], [f"assert f({given}) == SECRET"], test_setup_code=setup)
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict


def test_files_of_pytest_and_unittest(judge):
    assert judge(PROGRAMS["median"], PROGRAMS["file"], Pytest).score == 1.0
    for fault in (
        ("xs[half - 1] + ", "1 + "),
        ('InputError("empty")', "ValueError"),
        ("print(", "str("),
    ):
        verdict = judge(PROGRAMS["median"].replace(*fault), PROGRAMS["file"], Pytest)
        assert (verdict.score, verdict.status) == (0.0, "ok"), fault
    third = judge(PROGRAMS["median"].replace("print(", "str("), PROGRAMS["file"], Pytest)
    assert third.parts["tests"] < 1.0


@pytest.mark.parametrize(
    "tests",
    read("border/skipped.txt").values(),
)
def test_skipped_tests_and_ended_programs_do_not_pass(tests, judge):
    code = "import os\ndef f(x):\n    os._exit(0)"
    assert judge(code, tests, Pytest).score == 0.0
    assert (
        judge("def f(x):\n    import unittest\n    raise unittest.SkipTest", tests, Pytest).score
        == 0.0
    )


@pytest.mark.parametrize("tests", ["", "def helper(): return f(1)\n", "from solution import f\n"])
def test_files_without_tests_are_refused(tests, judge):
    with pytest.raises(DataError):
        judge("def f(): pass", tests, Pytest)


def test_tests_that_are_only_defined_are_run(judge):
    test = "def test_f():\n    assert f(1) == 2"
    assert judge("def f(x): return 2", [test]).score == 1.0
    assert judge("def f(x): return 3", [test]).score == 0.0


LOGS = (
    "import logging\ndef f(x): return 2 * x\ndef log(): logging.getLogger('a').warning('careful')"
)


def test_fixtures(judge):
    verdict = judge(LOGS, PROGRAMS["fixtures"], Pytest)
    assert verdict.score == 1.0, verdict.detail
    assert judge(LOGS.replace("2 * x", "x + 1"), PROGRAMS["fixtures"], Pytest).score == 0.0


@pytest.mark.parametrize("fixture", ["mocker", "capfd"])
def test_fixtures_that_cannot_be_had_are_found_when_loaded(fixture, judge):
    tests = f"import solution\ndef test_f({fixture}): assert solution.f(1) == 2"
    with pytest.raises(DataError, match=fixture):
        judge("def f(x): return 2", tests, Pytest)


@pytest.mark.parametrize(
    "test",
    read("border/methods.txt").values(),
)
def test_calls_of_methods_cross_as_data(test, judge):
    verdict = judge(PROGRAMS["stack"], [test])
    assert (verdict.score, verdict.parts) == (1.0, {"tests": 1.0}), verdict.detail
    wrong = PROGRAMS["stack"].replace("self.items.pop()", "0").replace('"nothing", 7', '"none", 8')
    wrong = wrong.replace("[at]", "[0]").replace("Node(self.items[0])", "Node(9)")
    assert judge(wrong, [test]).parts == {"tests": 0.0}


LIES = read("border/lies.txt")


@pytest.mark.parametrize("name", LIES)
def test_no_program_has_its_tests_run_beside_it_by_what_it_returns(name, judge):
    lie, _, right = LIES[name].partition("\n--- right\n")
    code, _, test = lie.partition("\n--- test\n")
    code = code.replace("{liar}", PROGRAMS["liar"])
    verdict = judge(code, [test], **({"code": right} if right else {}))
    assert (verdict.score, verdict.status, verdict.parts) == (0.0, "ok", {"tests": 0.0}), verdict


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("def f(): return b'cos\\n_exit\\n(I0\\ntR.'", "import pickle\nassert pickle.loads(f()) == 8713"),
        ("def f(): return '__import__(\"os\")._exit(0)'", "assert eval(f()) == 8713"),
    ],
)  # fmt: skip
def test_code_of_the_program_is_not_run_with_the_tests(code, test, judge):
    verdict = judge(code, [test])
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict


HOLDS = "def f(g, xs): return sorted(map(g, xs))"
HOLDS_TEST = "assert f(lambda x: -x, [1, 2]) == [-2, -1]"


def test_tests_that_hold_objects_run_beside_the_program_and_the_verdict_says_so(judge):
    for reference in ({}, {"code": HOLDS}):
        verdict = judge(HOLDS, [HOLDS_TEST, "assert f(abs, []) == []"], **reference)
        assert (verdict.score, verdict.parts) == (1.0, {"tests": 1.0, "in_process": 1.0})
        assert "own process" in verdict.detail
    wrong = judge(HOLDS.replace("sorted", "list"), [HOLDS_TEST.replace("[1, 2]", "[0, 1]")])
    assert (wrong.score, wrong.status, wrong.parts["in_process"]) == (0.0, "ok", 1.0)


@pytest.mark.parametrize(
    "attack",
    read("border/forgeries.txt").values(),
)
def test_cheap_forgeries_fail_beside_the_program_too(attack, judge):
    verdict = judge(attack, [HOLDS_TEST], code=HOLDS)
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict


def test_a_class_that_the_prompt_defines_is_raised_with_its_attributes(judge):
    prompt = (
        "class Cycle(Exception):\n    def __init__(self, nodes):\n"
        "        super().__init__('cycle: ' + ', '.join(nodes))\n        self.nodes = list(nodes)\n\n"
        "def order(deps):\n"
    )
    test = (
        "def check(candidate):\n    try:\n        candidate({})\n        assert False\n"
        "    except Cycle as e:\n        assert e.nodes == ['a', 'b'] and str(e) == 'cycle: a, b'\n"
    )
    spec = {"prompt": prompt, "test": test, "entry_point": "order"}
    spec["canonical_solution"] = "    raise Cycle(['a', 'b'])\n"
    code = "def order(deps): raise Cycle(['a', 'b'])"
    assert judge(code, None, HumanEval, **spec).score == 1.0
    assert judge(code.replace("'b'", "'c'"), None, HumanEval, **spec).score == 0.0


def test_two_functions_and_a_class_that_the_prompt_begins(judge):
    prompt = "class Odd(Exception):\n    'For odd numbers.'\n\ndef half(n):\n    'Half.'\n\ndef twice(n):\n"
    code = "class Odd(Exception): pass\ndef half(n):\n    if n % 2: raise Odd(n)\n    return n // 2\ndef twice(n):\n    return 2 * n\n"
    test = "def check(candidate):\n    assert half(candidate(3)) == 3\n    try:\n        half(3)\n        assert False\n    except Odd as e:\n        assert e.args == (3,)\n"
    spec = {"prompt": prompt, "test": test, "entry_point": "twice", "canonical_solution": ""}
    spec["canonical_solution"] = f"    return 2 * n\n{code}"
    verdict = judge(code, None, HumanEval, **spec)
    assert verdict.score == 1.0, verdict.detail
    assert judge(code.replace("// 2", "// 3"), None, HumanEval, **spec).score == 0.0


@pytest.mark.parametrize(
    ("kind", "raises"),
    [
        ("json.JSONDecodeError", "json.loads('[1,')"),
        ("subprocess.CalledProcessError", "raise subprocess.CalledProcessError(3, 'ls')"),
        ("configparser.NoSectionError", "configparser.ConfigParser().get('a', 'b')"),
        ("UnicodeDecodeError", "b'\\xff'.decode()"),
        ("decimal.InvalidOperation", "decimal.Decimal('x')"),
    ],
)
def test_exceptions_of_the_library_keep_their_class_and_text(kind, raises, judge):
    imports = "import configparser, decimal, json, subprocess\n"
    test = (
        f"{imports}try: f()\nexcept {kind} as e:\n    assert type(e) is {kind}\n"
        f"    try: {raises}\n    except {kind} as mine:\n"
        "        assert (str(e), e.args) == (str(mine), mine.args)\nelse: assert False"
    )
    verdict = judge(f"{imports}def f(): {raises}", [test])
    assert (verdict.score, verdict.parts["tests"]) == (1.0, 1.0), verdict.detail
