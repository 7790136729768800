"""What both processes can change: each sees the other's changes, and an object stays the same."""

from __future__ import annotations

import array
from collections import Counter, OrderedDict, defaultdict, deque

import pytest

from rlvr_code.inside import codec, shared
from rlvr_code.verifiers import Mbpp, Pytest
from rlvr_core.api import Completion, DataError, Problem


def refuse(value):
    raise codec.UnfitError(type(value).__name__)


class Side:
    """One of two processes, without the process."""

    def __init__(self, first):
        self.table = shared.Shared(first)

    def write(self, value):
        pen = codec.Pen(refuse, self.table)
        fields = codec.Fields({"sync": self.table.changes(pen), "value": value})
        try:
            text = codec.dumps(fields, refuse, self.table)
        except codec.UnfitError:
            self.table.sent(False)
            raise
        self.table.sent(True)
        return text

    def read(self, text):
        return codec.loads(text, lambda tag, inner: self.table.read(tag, inner, self.find))["value"]

    def find(self, tag, inner):
        return self.table.read(tag, inner, self.find)


@pytest.fixture
def sides():
    return Side(0), Side(1)


VALUES = [
    [1, "a", [2.5], None],
    {"k": [1], (1, 2): {"n": 3}},
    {1, 2, "x"},
    bytearray(b"ab\x00"),
    deque([1, [2]], maxlen=3),
    Counter("aab"),
    OrderedDict([("b", 1), ("a", [2])]),
    defaultdict(list, {"a": [1]}),
    array.array("d", [1.5, float("inf")]),
    ([1], ({"a": set()},)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_arrives_as_it_was(sides, value):
    here, there = sides
    found = there.read(here.write(value))
    assert found == value
    assert type(found) is type(value)
    assert here.read(there.write(found)) is value or type(value) is tuple


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1], lambda x: x.append(2)),
        ([1, 2], lambda x: x.sort(reverse=True)),
        ([True], lambda x: x.__setitem__(0, 1)),  # equal, and yet another
        ({"a": 1, "b": 2}, lambda x: x.pop("a")),
        ({"a": 1, "b": 2}, lambda x: x.update(a=x.pop("a"))),  # another order alone
        ({1}, lambda x: x.add(2)),
        (bytearray(b"a"), lambda x: x.extend(b"b")),
        (deque([1, 2]), lambda x: x.rotate(1)),
        (Counter("a"), lambda x: x.update("ab")),
        (OrderedDict(a=1, b=2), lambda x: x.move_to_end("a")),
        (defaultdict(list), lambda x: x["new"].append(1)),
        (array.array("i", [1]), lambda x: x.append(5)),
    ],
    ids=range(12),
)
def test_a_later_change_arrives_in_the_same_object(sides, value, change):
    here, there = sides
    found = there.read(here.write(value))
    change(value)
    there.read(here.write(None))
    assert repr(found) == repr(value)
    change_back = repr(value)
    found.clear() if hasattr(found, "clear") else found.pop()
    here.read(there.write(None))
    assert repr(value) == repr(found) != change_back


def test_one_object_is_one_object_wherever_it_stands(sides):
    here, there = sides
    row = [0]
    grid = there.read(here.write([row, row, {"again": row}]))
    assert grid[0] is grid[1] is grid[2]["again"]
    grid[0].append(7)
    here.read(there.write(None))
    assert row == [0, 7]
    row.append(row)
    there.read(here.write(None))
    assert grid[0][2] is grid[0]


def test_what_nobody_can_reach_is_forgotten_by_both(sides):
    here, there = sides
    for _ in range(50):
        there.read(here.write([[1], {"a": [2]}]))
        here.read(there.write(None))
    there.read(here.write(None))
    assert len(here.table._entries) < 5
    assert len(there.table._entries) < 5


def test_a_message_that_cannot_be_written_loses_nothing(sides):
    here, there = sides
    value, other = [1], [2]
    found = there.read(here.write(value))
    value.append(2)
    with pytest.raises(codec.UnfitError):
        here.write([other, object()])
    there.read(here.write(None))
    assert found == [1, 2]
    assert there.read(here.write(other)) == [2]


@pytest.mark.parametrize(
    "inner",
    [
        b'{"t":"same","v":7}',
        b'{"t":"same","v":[]}',
        b'{"t":"new","v":[0,"list",[]]}',
        b'{"t":"new","v":[true,"list",[]]}',
        b'{"t":"new","v":["1","list",[]]}',
        b'{"t":"new","v":[1,"object",[]]}',
        b'{"t":"new","v":[1,"list",5]}',
        b'{"t":"new","v":[1,"dict",[1]]}',
        b'{"t":"new","v":[1,"dict",[[[],1]]]}',
        b'{"t":"new","v":[1,"deque",[-1,[]]]}',
        b'{"t":"new","v":[1,"array",["w",[]]]}',
        b'{"t":"new","v":[1,"defaultdict",[5,[]]]}',
        b'{"t":"sync","v":[[[0,5]],[]]}',
        b'{"t":"sync","v":[[],[[]]]}',
    ],
)
def test_what_a_forger_writes_is_no_value(sides, inner):
    here, there = sides
    there.read(here.write([1]))
    with pytest.raises(codec.UnfitError):
        here.read(b'{"t":"dict","v":[["value",' + inner + b"]]}")


PROGRAM = """
from collections import defaultdict
LOG = []
class Stack:
    shared = []
    def __init__(self, items=()): self.items = list(items); self.seen = {}
    def push(self, x): self.items.append(x); self.seen.setdefault(x, []).append(len(self.items))
    def keep(self, data): self.data = data
    def total(self): return sum(self.data)
def log(x): LOG.append(x); return LOG
def default(x, acc=[]): acc.append(x); return acc
def same(x): return x
def pair(): box = []; return box, box.append
def windows(xs):
    w = []
    for x in xs: w.append(x); yield w
def each(f, xs):
    for x in xs: f(x, xs)
def tree(): return defaultdict(lambda: defaultdict(int))
def echo():
    got = None
    while True: got = yield got
def mod7(n): return Mod7(n)
class Mod7:
    def __init__(self, n): self.n = n % 7
    def __eq__(self, other): return self.n == (other.n if isinstance(other, Mod7) else other % 7)
    def __hash__(self): return self.n
"""
HOLD = [
    "s = Stack()\nv = s.items\ns.push(4)\nassert v == [4] and v is s.items",
    "s = Stack()\nv = s.seen\ns.push(4); s.push(4)\nassert v == {4: [1, 2]}\nassert v[4] is s.seen[4]",
    "s = Stack()\nxs = [1]\ns.keep(xs)\nxs.append(5)\nassert s.total() == 6 and s.data is xs",
    "s = Stack()\ns.items += [1]\ns.items[0] = 9\nassert s.items == [9]",
    "a = log(1)\nb = log(2)\nassert a == [1, 2] and a is b is LOG",
    "a = default(1)\ndefault(2)\nassert a == [1, 2]",
    "a = [1]\nd = {'a': a}\nassert same(d)['a'] is a and same((a, 1))[0] is a",
    "box, put = pair()\nput(1)\nassert box == [1]\nbox.append(2)\nput(3)\nassert box == [1, 2, 3]",
    "g = windows([1, 2])\nw = next(g)\nnext(g)\nassert w == [1, 2]",
    "seen = []\nxs = [1, 2]\n"
    "def f(x, all_):\n    seen.append(x)\n    if len(all_) < 3: all_.append(3)\n"
    "each(f, xs)\nassert seen == [1, 2, 3] == xs",
    "t = tree()\nt['a']['b'] += 2\nassert t == {'a': {'b': 2}} and t['x']['y'] == 0",
    "v = Stack.shared\nStack.shared.append(1)\nassert v == [1] and Stack().shared is v\nv.clear()",
    "g = echo()\nnext(g)\nassert g.send(5) == 5\ng.close()\n"
    "try:\n    g.send(1)\n    assert False\nexcept StopIteration:\n    pass",
    "x = same([])\nx.append(x)\nassert same(x)[0] is x",
    "assert Mod7(3) == 10 and len({Mod7(1), Mod7(8)}) == 1",
]
STYLES = {
    "a class body uses the program": (
        "class Stack:\n    def __init__(self): self.n = 0",
        "class T:\n    shared = Stack()\n    kinds = (Stack, int)\nassert T.shared.n == 0",
    ),
    "a field named like a method": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    count: int\ndef f(): return P(3)",
        "assert f().count == 3 and f().index(3) == 0 and f() == (3,)",
    ),
    "views of dictionaries": (
        "def f(d): return d.keys()",
        "d = {'a': 1}\nk = f(d)\nassert k == {'a'} and k & {'a', 'b'} == {'a'}\n"
        "d['b'] = 2\nassert list(k) == ['a', 'b']",
    ),
    "exceptions of the tests": (
        "def f(g, kinds, default):\n    try: return g()\n    except kinds as e: return default(e)",
        "class Odd(ValueError): pass\nwhy = Odd('no')\ndef g(): raise why\n"
        "assert f(g, (Odd, KeyError), lambda e: e is why and type(e) is Odd)\n"
        "assert f(g, ValueError, lambda e: str(e)) == 'no'\n"
        "try:\n    f(g, KeyError, None)\n    assert False\nexcept Odd as e:\n    assert e is why",
    ),
    "classes of the tests": (
        "def f(kind, xs): return [x for x in xs if isinstance(x, kind)]\n"
        "def g(kind): return kind.__name__, sorted(k for k in vars(kind) if k[0] != '_')\n"
        "def name(x): return type(x).__name__",
        "class A:\n    size = 1\na = A()\nassert f(A, [1, a]) == [a] and g(A) == ('A', ['size'])\n"
        "assert name(a) == 'A'",
    ),
    "parameters of a callback": (
        "import inspect\ndef f(g): return list(inspect.signature(g).parameters), g(1), g(1, c=5)",
        "def g(a, b=2, *rest, c=3, **more): return a, b, c\n"
        "assert f(g) == (['a', 'b', 'rest', 'c', 'more'], (1, 2, 3), (1, 2, 5))",
    ),
    "the limit of recursion": (
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)",
        "import sys\nsys.setrecursionlimit(4000)\nassert f(2500) == 2500",
    ),
    "a method patched and put back": (
        "class Api:\n    def get(self): return 1\ndef f(): return Api().get()",
        "from unittest.mock import patch\n"
        "with patch.object(Api, 'get', return_value=5):\n    assert f() == 5\nassert f() == 1",
    ),
    "tasks that wait for each other": (
        "import asyncio\nasync def put(q, xs):\n    for x in xs: await q.put(x); await asyncio.sleep(0.01)\n"
        "async def get(q, n): return [await q.get() for _ in range(n)]\n"
        "def queue(): return asyncio.Queue(1)\nasync def slow(): await asyncio.sleep(9)",
        "import asyncio\nasync def main():\n    q = queue()\n"
        "    task = asyncio.create_task(put(q, [1, 2]))\n    found = await get(q, 2)\n    await task\n"
        "    try: await asyncio.wait_for(slow(), 0.05)\n"
        "    except asyncio.TimeoutError: found.append('late')\n    return found\n"
        "assert asyncio.run(main()) == [1, 2, 'late']",
    ),
    "a coroutine of the tests": (
        "async def f(g, x): return await g(await g(x))",
        "import asyncio\nasync def g(x):\n    await asyncio.sleep(0)\n    return x + 1\n"
        "assert asyncio.run(f(g, 1)) == 3",
    ),
    "a descriptor in a class of the tests": (
        "class Pos:\n    def __set_name__(self, o, n): self.n = '_' + n\n"
        "    def __get__(self, i, o=None): return self if i is None else getattr(i, self.n, 0)\n"
        "    def __set__(self, i, v):\n        if v < 0: raise ValueError(v)\n"
        "        setattr(i, self.n, v)",
        "class A:\n    x = Pos()\na = A()\na.x = 3\nassert a.x == 3 and A().x == 0\n"
        "try:\n    a.x = -1\n    assert False\nexcept ValueError:\n    pass",
    ),
    "a class of one letter": (
        "class V:\n    def __init__(self, x): self.x = x\n"
        "    def __mul__(self, k): return V(self.x * k)\n    __rmul__ = __mul__\n"
        "    def __eq__(self, other): return self.x == other.x",
        "v = V(2)\nassert v * 3 == V(6) and 3 * v == V(6) and v.x == 2",
    ),
}
FIXTURES = """
import logging, pytest
from unittest.mock import patch
import solution
made = []
@pytest.fixture(params=[1, pytest.param(2, id="two")])
def n(request): return request.param
@pytest.fixture(autouse=True)
def always(): made.append("always")
@pytest.fixture(scope="module")
def once():
    made.append("once")
    return {}
def test_params(n, once):
    once[n] = solution.f(n)
    assert solution.f(n) == 2 * n
def test_each_was_run(once):
    assert once == {1: 2, 2: 4} and made.count("once") == 1 and made.count("always") == 3
class TestOwn:
    @pytest.fixture
    def three(self): return 3
    def test_own(self, three): assert solution.f(three) == 6
@patch("solution.f", return_value=9)
def test_patched(fake, once, capsys):
    print(solution.f(1))
    out, err = capsys.readouterr()
    assert (out, err) == ("9\\n", "")
def test_logged(caplog):
    solution.log()
    assert "careful" in caplog.text and caplog.record_tuples[0][1] == logging.WARNING
"""
LOGS = (
    "import logging\ndef f(x): return 2 * x\ndef log(): logging.getLogger('a').warning('careful')"
)
FAIL = [
    "s = Stack()\nv = s.items\ns.push(4)\nassert v == []",
    "a = log(1)\nlog(2)\nassert a == [1]",
    "a = [1]\nassert same(list(a)) is a",
    "s = Stack()\nxs = [1]\ns.keep(xs)\nxs.append(5)\nassert s.total() == 1",
]


@pytest.fixture(scope="module")
def verdict():
    verifier = Mbpp(Mbpp.Config(case_seconds=30.0, total_seconds=60.0))

    def judge(code, test):
        problem = Problem("p", "", "code/x", {"test_list": [test]}, "code/shared")
        verifier.check(problem)
        return verifier.verify(problem, Completion.from_text(f"```python\n{code}\n```"))

    yield judge
    verifier.close()


@pytest.mark.parametrize("test", HOLD)
def test_state_that_calls_change_is_one(verdict, test):
    found = verdict(PROGRAM, test)
    assert found.score == 1.0, found.detail


@pytest.mark.parametrize("style", STYLES)
def test_styles_that_cross(verdict, style):
    found = verdict(*STYLES[style])
    assert found.score == 1.0, found.detail


def test_fixtures_have_parameters_and_scopes():
    verifier = Pytest(Pytest.Config(case_seconds=30.0, total_seconds=60.0))
    problem = Problem("p", "", "code/x", {"tests": FIXTURES}, "code/shared")
    try:
        verifier.check(problem)
        right = verifier.verify(problem, Completion.from_text(f"```python\n{LOGS}\n```"))
        wrong = LOGS.replace("2 * x", "x + 1")  # right for 1 alone
        other = verifier.verify(problem, Completion.from_text(f"```python\n{wrong}\n```"))
    finally:
        verifier.close()
    assert right.score == 1.0, right.detail
    assert other.score == 0.0


@pytest.mark.parametrize("fixture", ["tmp_path", "mocker", "capfd"])
def test_fixtures_that_cannot_be_had_are_found_when_loaded(fixture):
    verifier = Pytest(Pytest.Config())
    tests = f"import solution\ndef test_f({fixture}): assert solution.f(1) == 2"
    with pytest.raises(DataError, match=fixture):
        verifier.check(Problem("p", "", "code/x", {"tests": tests}, "code/shared"))


@pytest.mark.parametrize("test", FAIL)
def test_a_wrong_expectation_of_it_fails(verdict, test):
    assert verdict(PROGRAM, test).score == 0.0


@pytest.mark.parametrize(
    "code",
    [
        # changes what it was given, and what it has given, whenever it is called
        "kept = []\ndef f(x):\n    for one in kept: one.clear()\n    kept.append(x)\n    x.clear()\n    return x",
        # changes the result while that is compared
        "class E:\n    __hash__ = None\n    def __eq__(self, other):\n        out[:] = []\n        return True\n"
        "out = []\ndef f(x):\n    out[:] = [E() for _ in x]\n    return out",
    ],
)
def test_changing_later_does_not_solve(verdict, code):
    tests = (
        "want = [1, 2]\nxs = [2, 1]\ngot = f(xs)\nassert got == want\nassert f([4, 3]) == [3, 4]"
    )
    assert verdict(code, tests).score == 0.0
