"""Programs that are right pass tests of all styles, on either side of the border."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rlvr_code.verifiers import HumanEval, Mbpp
from rlvr_core.api import Completion, DataError, Problem

_SPEC = importlib.util.spec_from_file_location("crossing", Path(__file__).with_name("crossing.py"))
crossing = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(crossing)
_SPEC = importlib.util.spec_from_file_location("styles", Path(__file__).with_name("styles.py"))
styles = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(styles)


@pytest.fixture(scope="module")
def judge():
    """The verdict on a program; raises if the problem is refused."""
    made = {
        kind: kind(kind.Config(case_seconds=30.0, total_seconds=60.0)) for kind in (Mbpp, HumanEval)
    }

    def verdict(kind, code, spec):
        problem = Problem("p", "", "code/x", spec, "code/crossing")
        made[kind].check(problem)
        return made[kind].verify(problem, Completion.from_text(f"```python\n{code}\n```"))

    yield verdict
    for one in made.values():
        one.close()


@pytest.mark.parametrize("style", crossing.STYLES)
def test_objects_and_classes_cross(style, judge):
    verdict = judge(Mbpp, crossing.CLASSES, {"test_list": [crossing.STYLES[style]]})
    assert verdict.score == 1.0, verdict.detail


@pytest.mark.parametrize("style", styles.RIGHT)
def test_a_right_program_of_any_style_passes(style, judge):
    code, test = styles.RIGHT[style]
    verdict = judge(Mbpp, code, {"test_list": [test]})
    assert verdict.score == 1.0, verdict.detail


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
    verdict = judge(HumanEval, "def order(deps): raise Cycle(['a', 'b'])", spec)
    assert verdict.score == 1.0, verdict.detail


def test_what_passes_beside_the_tests_alone_is_said(judge):
    code = "class A:\n    pass\n"
    test = "a = A()\nassert A.__basicsize__ == type(a).__basicsize__ and A.__dictoffset__"
    assert judge(Mbpp, code, {"test_list": [test]}).parts == {"tests": 1.0}
    right = "import sys\nclass A:\n    def f(self): return sys.modules.get('tests')\n"
    looks = "import gc\na = A()\nassert a.f() is None and gc.get_referents(a)[0] is A"
    verdict = judge(Mbpp, right, {"test_list": [looks]})
    assert (verdict.score, verdict.parts["cannot_cross"]) == (0.0, 1.0)
    assert "cannot_cross" in verdict.detail
    wrong = judge(
        Mbpp, "class A:\n    def f(self): return 1\n", {"test_list": ["assert A().f() == 2"]}
    )
    assert wrong.parts == {"tests": 0.0}


@pytest.mark.parametrize("style", styles.LIES)
def test_an_object_that_equals_what_is_near_as_well_does_not_pay(style, judge):
    code, test = styles.LIES[style]
    assert judge(Mbpp, code, {"test_list": [test]}).score == 0.0


@pytest.mark.parametrize("style", crossing.WAITING_STYLES)
def test_what_waits_writes_and_ends_crosses(style, judge):
    verdict = judge(Mbpp, crossing.WAITING, {"test_list": [crossing.WAITING_STYLES[style]]})
    assert verdict.score == 1.0, verdict.detail


@pytest.mark.parametrize("style", crossing.CHECKS)
def test_a_check_uses_names_of_the_response(style, judge):
    prompt, test, name, code = crossing.CHECKS[style]
    spec = {"prompt": prompt, "test": test, "entry_point": name}
    verdict = judge(HumanEval, code, spec)
    assert verdict.score == 1.0, verdict.detail


@pytest.mark.parametrize("place", range(len(crossing.ATTACKS)))
def test_what_crosses_does_not_pay(place, judge):
    code, test = crossing.ATTACKS[place]
    verdict = judge(Mbpp, code, {"test_list": [test]})
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict.detail


@pytest.mark.parametrize(
    ("test", "judging"),
    [
        ("def check(c):\n    assert same(c(1), 2)", True),
        ("def check(c):\n    r = c(1)\n    for x in r:\n        assert valid(x)", True),
        ("def check(c):\n    assert close_to(1, c)", True),
        ("def check(c):\n    fill(3)\n    assert c(1) == Item(2)", False),
        ("def check(c):\n    assert Box(c(1)).size == 2", False),
    ],
)
def test_a_name_that_would_judge_the_program_is_nobodys(test, judging, judge):
    spec = {"prompt": "def f(x):\n", "test": test, "entry_point": "f"}
    code = "def same(*a): return True\nvalid = close_to = same\ndef f(x): return [0]"
    if judging:
        with pytest.raises(DataError, match="no right program would pass"):
            judge(HumanEval, code, spec)
    else:
        assert judge(HumanEval, code, spec).score == 0.0


def test_a_name_that_the_prompt_speaks_of_is_the_programs(judge):
    test = "def check(c):\n    assert is_even(c(1)) is True and is_even(3) is False"
    spec = {
        "prompt": "def f(x):\n    '''x + 1; is_even helps.'''\n",
        "test": test,
        "entry_point": "f",
    }
    code = "def is_even(x): return x % 2 == 0\ndef f(x): return x + 1"
    assert judge(HumanEval, code, spec).score == 1.0


WRONG = {
    "a class derived in a test": (
        "cls.registry.append",
        "cls.registry.insert(0, 0); list().append",
    ),
    "an exception derived in a test": ("self.code = code", "self.code = 0"),
    "members of an enumeration": ("self is Suit.SPADES", "True"),
    "flags": ("READ, WRITE, RUN = 1, 2, 4", "READ, WRITE, RUN = 1, 2, 3"),
    "matching": ("tags: list =", "labels: list ="),
    "named tuples": ("defaults=(0,)", "defaults=(1,)"),
    "signatures": ("by: int = 2", "by: int = 3"),
    "annotations": ("def maybe(x: typing.Optional[int]", "def maybe(x: int"),
    "causes": ("from error", "from None"),
    "what built-in exceptions have": ("FileNotFoundError(2", "FileNotFoundError(3"),
    "a metaclass": ("if not hasattr(cls", "if True or not hasattr(cls"),
    "a decorator on methods": ("inner.count += 1", "inner.count = 1; inner.count += 1"),
    "registrations": ("def _(x: int)", "def _(x: bool)"),
}


@pytest.mark.parametrize("style", WRONG)
def test_a_wrong_program_fails(style, judge):
    right, wrong = WRONG[style]
    assert right in crossing.CLASSES
    spec = {"test_list": [crossing.STYLES[style]]}
    verdict = judge(Mbpp, crossing.CLASSES.replace(right, wrong), spec)
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict.detail


def test_a_class_of_the_prompt_is_compared_by_the_prompts_own_code(judge):
    """A response that redefines it so that its objects equal everything gains nothing."""
    prompt, _, name, code = crossing.CHECKS["objects of a class that the prompt defines"]
    forged = code.replace("    y: int", "    y: int\n    def __eq__(self, other): return True")
    forged = forged.replace("Spot(s.y, s.x)", "Spot(s.x, s.y)")
    test = "def check(c):\n    assert c(Spot(1, 2)) == Spot(2, 1)"
    spec = {"prompt": prompt, "test": test, "entry_point": name}
    assert judge(HumanEval, code, spec).score == 1.0
    assert judge(HumanEval, forged, spec).score == 0.0


HELD = """
import contextlib
class Held:
    def __init__(self, n=0): self.n = n
    def grow(self, by):
        self.n += by
        return self.n
words = {}
def canonical(word): return words.setdefault(word, word)
def same(value): return value
def forget(thing, name): delattr(thing, name)
@contextlib.contextmanager
def lent(thing, **given):
    for name, value in given.items():
        setattr(thing, name, value)
    yield thing
    for name in given:
        delattr(thing, name)
"""


@pytest.mark.parametrize(
    "test",
    [
        "class Thing: pass\nthing = Thing(); thing.a = 1; forget(thing, 'a')\nassert vars(thing) == {}",
        "class Thing: pass\nthing = Thing()\nwith lent(thing, b=2) as got:\n    assert got is thing\n"
        "    assert thing.b == 2\nassert not hasattr(thing, 'b')",
        "class Thing: pass\nthing = Thing()\n@lent(thing, c=3)\ndef use(): return thing.c\n"
        "assert (use(), use()) == (3, 3)",
        "try:\n    forget(object(), 'a')\nexcept AttributeError:\n    pass\nelse:\n    assert False",
        "held = Held(2); held.grow(1); held.__init__(7); assert held.grow(1) == 8",
        "held = Held(2); assert held.__init__() is None and held.n == 0",
        "word = 'ab' * 9; assert same(word) is word",
        "assert canonical('x' * 30) is canonical('x' * 30)",
    ],
)
def test_attributes_go_objects_begin_again_and_texts_stay_the_same(test, judge):
    verdict = judge(Mbpp, HELD, {"test_list": [test]})
    assert verdict.score == 1.0, verdict.detail


@pytest.mark.parametrize(
    ("kind", "raises"),
    [
        ("json.JSONDecodeError", "json.loads('[1,')"),
        ("asyncio.IncompleteReadError", "raise asyncio.IncompleteReadError(b'a', 3)"),
        ("subprocess.CalledProcessError", "raise subprocess.CalledProcessError(3, 'ls')"),
        ("configparser.NoSectionError", "configparser.ConfigParser().get('a', 'b')"),
        ("UnicodeDecodeError", "b'\\xff'.decode()"),
        ("decimal.InvalidOperation", "decimal.Decimal('x')"),
    ],
)
def test_exceptions_of_the_library_keep_their_class_and_text(kind, raises, judge):
    imports = "import asyncio, configparser, decimal, json, subprocess\n"
    test = (
        f"{imports}try: f()\nexcept {kind} as e:\n    assert type(e) is {kind}\n"
        f"    try: {raises}\n    except {kind} as mine:\n"
        "        assert (str(e), e.args) == (str(mine), mine.args)\n"
        "        assert {k: v for k, v in vars(e).items()} == vars(mine)\nelse: assert False"
    )
    verdict = judge(Mbpp, f"{imports}def f(): {raises}", {"test_list": [test]})
    assert verdict.score == 1.0, verdict.detail
    calls_back = (
        f"{imports}def f():\n    {raises}\ntry: g(f)\nexcept {kind}: pass\nelse: assert False"
    )
    caught = f"{imports}def g(f):\n    try: f()\n    except {kind}: raise"
    assert judge(Mbpp, caught, {"test_list": [calls_back]}).score == 1.0


def test_assertions_that_are_python_only_together(judge):
    """As lists of lines are that somebody took from a file."""
    tests = [
        "try: g(1); assert False",
        "except ValueError: pass",
        "for x in (2, 3):",
        "    assert g(x) == x",
    ]
    right = "def g(x):\n    if x < 2: raise ValueError\n    return x"
    assert judge(Mbpp, right, {"test_list": tests}).score == 1.0
    wrong = judge(Mbpp, "def g(x): return x", {"test_list": tests})
    assert (wrong.score, wrong.status) == (0.0, "ok")
    assert judge(Mbpp, "def g(x):\n    raise ValueError", {"test_list": tests}).score == 0.0
    for broken in (["assert g(2) == ", "assert g(2) == 2"], ["else: pass", "assert g(2) == 2"]):
        with pytest.raises(DataError):
            judge(Mbpp, right, {"test_list": broken})
