"""Where tests run: apart from the program, so that only data crosses, or in its own process."""

from __future__ import annotations

import pytest

from rlvr_code.verifiers import HumanEval, Mbpp, Pytest
from rlvr_core.api import Completion, DataError, Problem


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


VECTOR = """
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __mul__(self, k): return Vector(self.x * k, self.y * k)
    __rmul__ = __mul__
    def __neg__(self): return Vector(-self.x, -self.y)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __eq__(self, other): return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)
    def __hash__(self): return hash((self.x, self.y))
    def __lt__(self, other): return abs(self) < abs(other)
    def __iter__(self): return iter((self.x, self.y))
    def __getitem__(self, at): return (self.x, self.y)[at]
    def __len__(self): return 2
    def __repr__(self): return f"Vector({self.x}, {self.y})"
    def __format__(self, spec): return f"<{self.x:{spec}}>"
"""
MORE = """
import asyncio, contextlib, dataclasses, enum, functools, random, sys, typing, warnings
class AppError(ValueError):
    def __init__(self, text, code): super().__init__(text); self.code = code
class NotFound(AppError): pass
def find(key): raise NotFound(f"no {key}", 404)
class Log:
    def __init__(self): self.events = []
    def __enter__(self): self.events.append("in"); return self
    def __exit__(self, kind, error, trace): self.events.append(kind); return kind is KeyError
@dataclasses.dataclass(order=True)
class Point: x: int; y: int = 0
class Pair(typing.NamedTuple):
    a: int
    b: int = 2
    def total(self): return self.a + self.b
class Color(enum.Enum): RED = 1; BLUE = 2
class Level(enum.IntEnum): LOW = 1; HIGH = 10
async def later(x): await asyncio.sleep(0); return x + 1
async def count(n):
    for i in range(n): yield i
def greet(name): print("hi", name)
def ask(): return int(input("n? ")) + len(sys.stdin.readline())
def memo(function):
    known = {}
    @functools.wraps(function)
    def inner(*given):
        if given not in known: known[given] = function(*given)
        return known[given]
    return inner
def steps():
    x = 0
    while True: x += (yield x) or 1
class Stack(list):
    def push(self, x): self.append(x)
def total(shapes): return sum(shape.area() for shape in shapes)
def same(xs): xs.append(0); return xs
def draw(n): return [random.random() for _ in range(n)]
def old(): warnings.warn("old", DeprecationWarning); return 1
def helper(x): return x
def uses(x): return helper(x) + 1
version = "1.0"
hits = 0
def hit():
    global hits
    hits += 1
"""
STYLES = [
    (VECTOR, "assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6) and Vector(1, 2) != Vector(2, 1)"),
    (VECTOR, "assert 2 * Vector(1, 2) == Vector(2, 4) and -Vector(1, 2) == Vector(-1, -2)"),
    (VECTOR, "assert abs(Vector(3, 4)) == 5 and Vector(1, 2) != (1, 2) and Vector(1, 2)[1] == 2"),
    (VECTOR, "assert len({Vector(1, 2), Vector(1, 2), Vector(0, 1)}) == 2 and list(Vector(1, 2)) == [1, 2]"),
    (VECTOR, "assert repr([Vector(1, 2)]) == '[Vector(1, 2)]' and f'{Vector(1, 2):.1f}' == '<1.0>'"),
    (VECTOR, "assert sorted([Vector(3, 4), Vector(1, 0)])[0] == Vector(1, 0) and 2 in Vector(1, 2)"),
    (VECTOR, "import copy\nv = Vector(1, 2)\nw = copy.copy(v)\nassert v == w and v is not w\nx, y = v\nassert (x, y) == (1, 2)"),
    (MORE, "try:\n    find('a')\nexcept AppError as e:\n    assert (e.code, str(e), type(e).__name__) == (404, 'no a', 'NotFound')\nelse:\n    assert False"),
    (MORE, "import pytest\nwith pytest.raises(NotFound, match='no a') as info:\n    find('a')\nassert info.value.code == 404 and issubclass(NotFound, ValueError)"),
    (MORE, "log = Log()\nwith log as inner:\n    inner.events.append('body')\nassert log.events == ['in', 'body', None]"),
    (MORE, "with Log():\n    raise KeyError('k')\ntry:\n    with Log():\n        raise OSError\n    assert False\nexcept OSError:\n    pass"),
    (MORE, "import dataclasses\nassert Point(1) == Point(1, 0) < Point(1, 2) and dataclasses.asdict(Point(1)) == {'x': 1, 'y': 0}"),
    (MORE, "p = Pair(1)\nassert p == (1, 2) and p.a == 1 and p.total() == 3 and p._replace(b=5) == Pair(1, 5) and isinstance(p, Pair)"),
    (MORE, "assert Color.RED is Color(1) and Color['BLUE'].value == 2 and list(Color) == [Color.RED, Color.BLUE]"),
    (MORE, "assert Level.HIGH > Level.LOW and Level.HIGH == 10 and Level.HIGH.name == 'HIGH'"),
    (MORE, "import asyncio\nasync def main():\n    return [i async for i in count(3)], await asyncio.gather(later(1), later(2))\nassert asyncio.run(main()) == ([0, 1, 2], [2, 3])\nassert asyncio.run(later(1)) == 2"),
    (MORE, "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n    greet('you')\nassert out.getvalue() == 'hi you\\n'"),
    (MORE, "import io, sys\nfrom unittest.mock import patch\nsys.stdin = io.StringIO('ab\\n')\nwith patch('builtins.input', return_value='4'):\n    assert ask() == 7"),
    (MORE, "from unittest.mock import patch\nwith patch('builtins.print') as p:\n    greet('you')\np.assert_called_once_with('hi', 'you')"),
    (MORE, "n = []\n@memo\ndef square(x):\n    'doc'\n    n.append(x)\n    return x * x\nassert square(3) == square(3) == 9 and n == [3] and square.__name__ == 'square' and square.__doc__ == 'doc'"),
    (MORE, "s = steps()\nassert (next(s), s.send(5), next(s)) == (0, 5, 6)\ns.close()"),
    (MORE, "s = Stack()\ns.push(1)\nassert s == [1] and len(s) == 1 and s + [2] == [1, 2] and isinstance(s, list) and isinstance(s, Stack)"),
    (MORE, "class Square:\n    def __init__(self, a): self.a = a\n    def area(self): return self.a ** 2\nassert total([Square(2), Square(3)]) == 13"),
    (MORE, "a = [1]\nassert same(a) is a and a == [1, 0]"),
    (MORE, "import random\nrandom.seed(5)\na = draw(9)\nrandom.seed(5)\nassert a == draw(9)"),
    (MORE, "import warnings\nwith warnings.catch_warnings(record=True) as w:\n    warnings.simplefilter('always')\n    assert old() == 1\nassert w[0].category is DeprecationWarning"),
    (MORE, "from unittest.mock import patch\nimport solution\nwith patch('solution.helper', return_value=7) as m:\n    assert solution.uses(1) == 8\n    m.assert_called_once_with(1)\nassert solution.uses(1) == 2"),
    (MORE, "assert version == '1.0'\nhit()\nhit()\nassert hits == 2"),
    (MORE, "assert type(Point(1)) is Point and type(Point(1)).__name__ == 'Point' and type(later.__name__) is str"),
    (MORE, "import pickle\nassert pickle.loads(pickle.dumps(Point(1))) == Point(1)"),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(STYLES)))
def test_styles_that_right_programs_pass(place, judge):
    code, test = STYLES[place]
    verdict = judge(code, [test], code=code)
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


LIAR = """
class Vector:
    def __init__(self, *given): pass
    def __getattr__(self, name): return Vector()
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __contains__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __mul__ = __sub__
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __enter__(self): return self
    def __exit__(self, *error): return True
    def __call__(self, *given): return Vector()
    def __iter__(self): return iter([])
def f(*given): return Vector()
class Same(Exception):
    def __eq__(self, other): return True
def g(*given): raise Same
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert f(1) == 8713",
        "assert 8713 == f(1)",
        "assert abs(f(1) - 8713) < 1e-9",
        "assert f(1) - 8713 == 0",
        "assert -1e-9 < 8713 - f(1) < 1e-9",
        "assert f(1) <= 8713 <= f(2) and f(1) + 1 > 8713",
        "assert 8713 in f(1)",
        "assert f(1) in [8713]",
        "assert f(1) in {8713: 1}",
        "assert f(1).size == 8713",
        "assert [f(1)] == [8713]",
        "assert Vector(1, 2).length() == 8713",
        "with f(1):\n    assert f(1) == 8713",
        "with f(1):\n    assert g(1) == 8713",
        "with f(1):\n    raise AssertionError",
        "import unittest\nclass TestF(unittest.TestCase):\n    def test_f(self):\n        with f(1):\n            self.assertEqual(g(1), 8713)",
        "def test_f():\n    assert f(1) == 8713",
        "import pytest\nassert f(1) == pytest.approx(8713)",
        "import math\nassert math.isclose(f(1), 8713)",
        "try:\n    g(1)\nexcept Exception as e:\n    assert e == 8713",
    ],
)
def test_objects_that_agree_with_everything_pass_nothing(test, judge):
    verdict = judge(LIAR, [test])
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict


LOOKS = """
FOUND = []
def look(one, *names):
    for name in names:
        try: one = getattr(one, name)
        except BaseException: return None
    return one
def f(one):
    for names in (("__class__", "__init__", "__globals__"), ("method", "__globals__"),
                  ("method", "__self__"), ("gi_frame", "f_globals"), ("__dict__",), ("_hidden",),
                  ("frame", "f_globals"), ("gi_frame",), ("method", "__code__"), ("kind", "method")):
        value = look(one, *names)
        if isinstance(value, dict) and "SECRET" in value: FOUND.append(value["SECRET"])
        if value == 8713: FOUND.append(value)
    return FOUND[0] if FOUND else 0
"""


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
    verdict = judge(LOOKS, [f"assert f({given}) == SECRET"], test_setup_code=setup)
    assert (verdict.score, verdict.status) == (0.0, "ok"), verdict


FILE = """
import unittest
import pytest
from solution import median, InputError

@pytest.fixture
def numbers():
    yield [3, 1, 2]

def test_odd(numbers):
    assert median(numbers) == 2

@pytest.mark.parametrize("given, expected", [([4, 1, 2, 3], 2.5), ([1], 1)])
def test_even(given, expected):
    assert median(given) == pytest.approx(expected)

def test_empty():
    with pytest.raises(InputError, match="empty"):
        median([])

def test_output(capsys, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt="": "1 2 3")
    import solution
    solution.main()
    assert capsys.readouterr().out == "2\\n"

class TestMedian(unittest.TestCase):
    def setUp(self):
        self.numbers = [1, 2]
    def test_pair(self):
        self.assertAlmostEqual(median(self.numbers), 1.5)

class TestPlain:
    def test_one(self):
        assert median([7]) == 7
"""
MEDIAN = """
class InputError(ValueError): pass
def median(xs):
    if not xs: raise InputError("empty")
    xs = sorted(xs)
    half = len(xs) // 2
    return xs[half] if len(xs) % 2 else (xs[half - 1] + xs[half]) / 2
def main():
    print(median([int(x) for x in input().split()]))
"""


def test_files_of_pytest_and_unittest(judge):
    assert judge(MEDIAN, FILE, Pytest).score == 1.0
    for fault in (
        ("xs[half - 1] + ", "1 + "),
        ('InputError("empty")', "ValueError"),
        ("print(", "str("),
    ):
        verdict = judge(MEDIAN.replace(*fault), FILE, Pytest)
        assert (verdict.score, verdict.status) == (0.0, "ok"), fault
    third = judge(MEDIAN.replace("print(", "str("), FILE, Pytest)
    assert third.parts["tests"] < 1.0


@pytest.mark.parametrize(
    "tests",
    [
        "import pytest\n@pytest.mark.skip\ndef test_f():\n    assert f(1) == 2",
        "import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('no')\n    def test_f(self):\n        self.assertEqual(f(1), 2)",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        f(1)\n        self.skipTest('no')",
        "def test_f():\n    f(1)\n    assert f(1) == 2",
    ],
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


FIXTURES = """
import logging, pytest
from unittest.mock import patch
import solution
made = []
@pytest.fixture(autouse=True)
def always(): made.append("always")
@pytest.fixture
def one(always):
    yield 1
    made.append("end")
def test_ends(one):
    assert one == 1 and made == ["always"]
def test_again(one):
    assert made == ["always", "end", "always"] and solution.f(1) == 2
class TestOwn:
    @pytest.fixture
    def three(self): return 3
    def test_own(self, three): assert solution.f(three) == 6
@patch("solution.f", return_value=9)
def test_patched(fake, one, capsys):
    print(solution.f(1))
    assert capsys.readouterr() == ("9\\n", "")
def test_logged(caplog, tmp_path):
    solution.log()
    (tmp_path / "file").write_text("x")
    assert "careful" in caplog.text
"""
LOGS = (
    "import logging\ndef f(x): return 2 * x\ndef log(): logging.getLogger('a').warning('careful')"
)


def test_fixtures(judge):
    verdict = judge(LOGS, FIXTURES, Pytest)
    assert verdict.score == 1.0, verdict.detail
    assert judge(LOGS.replace("2 * x", "x + 1"), FIXTURES, Pytest).score == 0.0


@pytest.mark.parametrize("fixture", ["mocker", "capfd"])
def test_fixtures_that_cannot_be_had_are_found_when_loaded(fixture, judge):
    tests = f"import solution\ndef test_f({fixture}): assert solution.f(1) == 2"
    with pytest.raises(DataError, match=fixture):
        judge("def f(x): return 2", tests, Pytest)


STACK = """
class Stack:
    size = 3
    def __init__(self, items=()): self.items = list(items)
    def push(self, x): self.items.append(x)
    def pop(self):
        if not self.items: raise Empty("nothing", 7)
        return self.items.pop()
    def node(self): return Node(self.items[0])
    def __len__(self): return len(self.items)
    def __getitem__(self, at): return self.items[at]
class Node:
    def __init__(self, value): self.value, self.next = value, None
class Empty(LookupError):
    def __init__(self, why, code): super().__init__(why); self.code = code
"""


@pytest.mark.parametrize(
    "test",
    [
        "s = Stack()\ns.push(1)\ns.push('a')\nassert s.pop() == 'a' and len(s) == 1 and s.items == [1]",
        "s = Stack([4, 5])\nassert s[1] == 5 and list(s) == [4, 5] and s and not Stack()",
        "s = Stack([4])\nassert s.node().value == 4 and s.node().next is None and Stack.size == 3",
        "s = Stack()\ns.items = [7]\nassert s.pop() == 7 and not hasattr(s, 'nothing')",
        "try:\n    Stack().pop()\nexcept Empty as e:\n    assert (str(e), e.code) == ('nothing', 7)\nelse:\n    assert False",
        "import pytest\nwith pytest.raises(LookupError, match='noth'):\n    Stack().pop()",
    ],
)
def test_calls_of_methods_cross_as_data(test, judge):
    verdict = judge(STACK, [test])
    assert (verdict.score, verdict.parts) == (1.0, {"tests": 1.0}), verdict.detail
    wrong = STACK.replace("self.items.pop()", "0").replace('"nothing", 7', '"none", 8')
    wrong = wrong.replace("[at]", "[0]").replace("Node(self.items[0])", "Node(9)")
    assert judge(wrong, [test]).parts == {"tests": 0.0}


LIES = [  # program, test, and a right program where that matters
    (LIAR, "assert f(1) == [1, 2]", "def f(x): return [1, 2]"),
    (LIAR, "assert f(1) == 3 and [] == []", "def f(x): return 3"),
    ("import types, unittest.mock\nf = types.GenericAlias(unittest.mock._ANY, ())", "assert f() == 8713", None),
    ("import unittest.mock\nf = unittest.mock._ANY", "assert f() == 8713", "def f(): return 8713"),
    ("class X(int):\n    def __or__(self, o): return X(8713)\n    __ror__ = __or__\ndef f(n): return X(1)", "assert f(1) | f(2) == 8713", None),
    ("class X(int):\n    def __contains__(self, o): return True\ndef f(n): return X(1)", "assert 8713 in f(1)", None),
    ("import types\nclass Any:\n    def __eq__(s, o): return True\ndef f(): return types.SimpleNamespace(a=Any())", "import types\nassert f() == types.SimpleNamespace(a=8713)", None),
    ("import types\nclass Any:\n    def __eq__(s, o): return True\ndef f(): return types.MappingProxyType({'a': Any()})", "assert f() == {'a': 8713}", None),
    ("def f(x): raise StopIteration", "assert list(map(f, [1, 2])) == []", None),
    ("kept = []\ndef f(x):\n    for one in kept: one.clear()\n    kept.append(x)\n    x.clear()\n    return x", "want = [1, 2]\nxs = [2, 1]\ngot = f(xs)\nassert got == want\nassert f([4, 3]) == [3, 4]", None),
    ("class E:\n    __hash__ = None\n    def __eq__(self, other):\n        out[:] = []\n        return True\nout = []\ndef f(x):\n    out[:] = [E() for _ in x]\n    return out", "assert f([2, 1]) == [1, 2]", "def f(x): return sorted(x)"),
    ("class Stack:\n    def __getattr__(self, name): return lambda *a: Any()\nclass Any:\n    def __eq__(self, o): return True\n    def __len__(self): return 3\n    def __bool__(self): return True", "s = Stack()\nassert s.pop() == 1", None),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(LIES)))
def test_no_program_has_its_tests_run_beside_it_by_what_it_returns(place, judge):
    code, test, right = LIES[place]
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
    [
        "import os\nos._exit(0)",
        "import os\ndef f(*a): os._exit(0)",
        "import sys\ndef f(*a): sys.exit(0)",
        "def f(*a): print('PASS', '{\"passed\": 1}')",
        "import builtins\nbuiltins.len = builtins.isinstance = lambda *a: True\nbuiltins.AssertionError = KeyError\ndef f(*a): return []",
        "import builtins, json\nbuiltins.exec = json.dumps = json.loads = lambda *a, **k: ''\ndef f(*a): return []",
        "import json, os, struct\ndef f(*a):\n    body = json.dumps(['0' * 32, '']).encode()\n    os.write(3, struct.pack('!cI', b'r', len(body)) + body)",
        "import sys\ndef f(*a):\n    one, seen = sys._getframe(), []\n    while one:\n        seen += [v for v in one.f_locals.values() if isinstance(v, str) and len(v) == 32]\n        one = one.f_back\n    return [-2, -1] if seen else 0",
        "import os\ndef f(*a):\n    while True:\n        try: os.fork()\n        except OSError: return 0",
    ],
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
