"""Programs and tests, one pair for each style: right ones, which pass, and programs that lie."""

RIGHT = {
    "contexts of tasks": (
        """
import contextvars
_user = contextvars.ContextVar("user", default="nobody")
def user(): return _user.get()
def login(name): return _user.set(name)
async def login_later(name): _user.set(name)
""",
        """
import asyncio, contextvars
async def job(name):
    login(name)
    await asyncio.sleep(0.001)
    return user()
async def main():
    first = await asyncio.gather(*(job(n) for n in "abc"))
    await login_later("d")
    return first, user()
assert asyncio.run(main()) == (["a", "b", "c"], "d") and user() == "nobody"
contextvars.copy_context().run(login, "e")
assert user() == "nobody"
""",
    ),
    "zones of the program": (
        """
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo
class Half(tzinfo):
    def utcoffset(self, when): return timedelta(hours=5, minutes=30)
    def dst(self, when): return timedelta(0)
    def tzname(self, when): return "HALF"
def same(when): return when
def zone(when): return when.tzinfo
""",
        """
from datetime import datetime, timedelta, timezone
d = datetime(2024, 1, 1, 12, tzinfo=Half())
assert d.isoformat() == "2024-01-01T12:00:00+05:30" and d.tzname() == "HALF"
assert isinstance(zone(d), Half) and same(d) == datetime(2024, 1, 1, 6, 30, tzinfo=timezone.utc)
named = datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2), "X"), fold=1)
assert same(named).tzname() == "X" and same(named).fold == 1
""",
    ),
    "addresses and distributions": (
        """
import ipaddress, statistics
def hosts(text): return list(ipaddress.ip_network(text).hosts())
def fit(values): return statistics.NormalDist.from_samples(values)
""",
        """
from ipaddress import ip_address
from statistics import NormalDist
assert hosts("10.0.0.0/30") == [ip_address("10.0.0.1"), ip_address("10.0.0.2")]
assert fit([1.0, 3.0]) == NormalDist(2.0, 2.0 ** 0.5)
""",
    ),
    "type arguments and keywords of class statements": (
        """
from typing import Generic, TypeVar
T = TypeVar("T")
class Stack(Generic[T]):
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return self
class Plugin:
    known = {}
    def __init_subclass__(cls, name=None, **more):
        super().__init_subclass__(**more)
        cls.known[name] = cls
def matches(value, hint):
    import typing
    if typing.get_origin(hint) is list:
        return all(isinstance(one, typing.get_args(hint)[0]) for one in value)
    if typing.get_origin(hint) is typing.Annotated:
        return isinstance(value, typing.get_args(hint)[0])
    return isinstance(value, hint)
""",
        """
import typing
class Loud(Stack[str]):
    def push(self, item): return super().push(item.upper())
assert Loud().push("a").push("b").items == ["A", "B"]
class Inc(Plugin, name="inc"): pass
assert Plugin.known["inc"] is Inc
class User: pass
assert matches([User()], list[User]) and not matches([1], list[User])
assert matches(5, typing.Annotated[int, "positive"])
""",
    ),
    "classes of the tests are looked into": (
        """
import inspect, typing, copy
def needs(kind):
    hints = typing.get_type_hints(kind.__init__)
    return {name: hints.get(name) for name in inspect.signature(kind).parameters}
def visit(node):
    return [one.__name__ for one in type(node).__mro__]
def twice(one): return [copy.deepcopy(one), copy.copy(one)]
def plain(one):
    import dataclasses
    if not dataclasses.is_dataclass(one): return repr(one)
    return {f.name: plain(getattr(one, f.name)) for f in dataclasses.fields(one)}
def moved(one, **named):
    import dataclasses
    return dataclasses.replace(one, **named), dataclasses.asdict(one)
class Celsius(float):
    def __format__(self, spec): return format(float(self), spec or ".1f") + "C"
""",
        """
class Db: pass
class Repo:
    def __init__(self, db: Db, name="r"): self.db, self.name = db, name
assert needs(Repo) == {"db": Db, "name": None} and needs(Db) == {}
class Sub(dict): pass
assert visit(Sub()) == ["Sub", "dict", "object"]
import dataclasses
@dataclasses.dataclass
class User:
    name: str
    tags: list = dataclasses.field(default_factory=list)
assert plain(User("ann", [1])) == {"name": "'ann'", "tags": "[1]"}
assert moved(User("ann"), name="bob") == (User("bob"), {"name": "ann", "tags": []})
assert f"{Celsius(25)}" == "25.0C" and "{:>6.0f}".format(Celsius(3)) == "     3C"
class Marked(str):
    def __deepcopy__(self, memo): return Marked(self.upper())
assert twice(Marked("a")) == ["A", "a"]
""",
    ),
    "operators of what the tests have made": (
        """
from collections import UserList, namedtuple
class Point(namedtuple("Point", "x y")):
    def __add__(self, other): return Point(self.x + other[0], self.y + other[1])
class Clamped(UserList): pass
class Headers(dict):
    def __contains__(self, key): return any(key.lower() == one.lower() for one in self)
    def __or__(self, other): return Headers({**self, **other})
class Number:
    def __init__(self, n): self.n = n
    def __eq__(self, other):
        if isinstance(other, (int, float, Number)):
            return self.n == getattr(other, "n", other)
        return NotImplemented
    def __round__(self, digits=None): return Number(round(self.n, digits))
    def __pow__(self, n, mod=None): return Number(pow(self.n, n, mod))
class Once:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if not self.n: raise StopIteration
        self.n -= 1
        return self.n
class Mod:
    def __init__(self, n, m): self.n, self.m = n % m, m
    def __add__(self, n): return Mod(self.n + n, self.m)
    def __eq__(self, n): return (n - self.n) % self.m == 0
class Chain:
    def __init__(self): self.seen = []
    def add(self, one): self.seen.append(one); return self
    def __contains__(self, one): return one in self.seen
""",
        """
assert Point(1, 2) + Point(3, 4) == (4, 6) and Point(1, 2) + (1, 1) == (2, 3)
try:
    Point(1, 2).x = 3
    assert False
except AttributeError:
    pass
assert Clamped([1]) + [2] == [1, 2]
assert "Y" in Headers(x=1) | {"y": 2}
assert round(Number(2.567), 1) == 2.6 and pow(Number(3), 4, 5) == 1
assert Number(1).__eq__("x") is NotImplemented and (Number(1) == "x") is False
assert Mod(1, 2) == 1 and Mod(4, 3) + 1 == 2 and Mod(1, 2) == 5 and not Mod(1, 2) == 2
o = Once(3)
assert 1 in o and list(o) == [0]
assert 2 in Chain().add(1).add(2)
""",
    ),
    "texts, logs and numbers of the tests": (
        """
import contextlib, logging
from decimal import Decimal
@contextlib.contextmanager
def tag(name):
    print(f"<{name}>"); yield; print(f"</{name}>")
def third(): return Decimal(1) / Decimal(3)
def warn(n): logging.getLogger("shop").warning("order %d", n, extra={"order": n})
def swap(view): view[0], view[-1] = view[-1], view[0]
""",
        """
import contextlib, decimal, io, unittest
out = io.StringIO()
with contextlib.redirect_stdout(out):
    with tag("i"): print("me")
    @tag("j")
    def f(): print("you")
    f()
assert out.getvalue().split() == ["<i>", "me", "</i>", "<j>", "you", "</j>"]
with decimal.localcontext() as c:
    c.prec = 3
    assert third() == decimal.Decimal("0.333")
assert len(str(third())) == 30
with unittest.TestCase().assertLogs("shop") as cm: warn(7)
assert cm.records[0].order == 7
b = bytearray(b"hello")
swap(memoryview(b)[1:4])
assert b == b"hlleo"
swap(memoryview(b)[::2])
assert b == b"olleh"
""",
    ),
    "errors of the tests and test doubles": (
        """
def run_all(tasks):
    errors = []
    for at, task in enumerate(tasks):
        try: task()
        except Exception as error:
            error.add_note(f"task {at}")
            errors.append(error)
    raise ExceptionGroup("some", errors)
def send(mailer, repo):
    with repo.open() as tx: tx.put(1)
    mailer.send(to="a", subject="b")
class Tree(dict): pass
def gen():
    try: yield 1
    except KeyError as error: yield error.args[0]
""",
        """
import json
from unittest.mock import MagicMock, call, create_autospec
def bad(): raise KeyError("x")
def worse(): return 1 / 0
seen = []
try: run_all([bad, worse])
except* KeyError as group: seen.append(group.exceptions[0].__notes__)
except* ArithmeticError as group: seen.append(group.exceptions[0].__notes__)
assert seen == [["task 0"], ["task 1"]]
class Mailer:
    def send(self, to, subject): ...
mailer, repo = create_autospec(Mailer, instance=True), MagicMock()
send(mailer, repo)
assert mailer.send.call_args == call(to="a", subject="b")
repo.open.return_value.__exit__.assert_called_once_with(None, None, None)
t = Tree(a=Tree(b=1))
assert json.dumps(t) == '{"a": {"b": 1}}'
g = gen()
next(g)
assert g.throw(KeyError, KeyError("k")) == "k"
deep = [5]
for _ in range(400): deep = [deep]
t["deep"] = deep
""",
    ),
    "methods, classes of classes and errors that both have": (
        """
class Bus:
    def __init__(self): self.handlers = []
    def on(self, one): self.handlers.append(one)
    def off(self, one): self.handlers = [h for h in self.handlers if h != one]
    def emit(self, x):
        for one in self.handlers: one(x)
    @classmethod
    def of(cls, *ones):
        bus = cls()
        for one in ones: bus.on(one)
        return bus
    def __contains__(self, one): return one in self.handlers
class Single(type):
    known = {}
    def __call__(cls, *given):
        if cls not in Single.known: Single.known[cls] = super().__call__(*given)
        return Single.known[cls]
class ParseError(SyntaxError):
    def __init__(self, message, pos, seen):
        super().__init__(message)
        self.pos, self.seen = pos, seen
def parse(text): raise ParseError("unexpected end", len(text), [text])
class Peek:
    def __init__(self, of): self.of = iter(of)
    def peek(self): return next(self.of)
def run(task):
    try: return task()
    except Exception: return "caught"
def precise(n):
    import decimal
    decimal.getcontext().prec = n
""",
        """
import decimal
class Meter:
    def __init__(self): self.seen = []
    def take(self, x): self.seen.append(x)
a, b = Meter(), Meter()
bus = Bus.of(a.take, b.take)
assert a.take in bus and 5 not in bus
bus.off(a.take)
bus.emit(1)
assert (a.seen, b.seen) == ([], [1])
class Db(metaclass=Single):
    def __init__(self, url): self.url = url
class Other(Db): pass
assert Db("a") is Db("b") and Db("c").url == "a" and Other("d") is not Db("a")
assert type(Db) is Single
for text in ("ab", "c"):
    try:
        parse(text)
    except ParseError as e:
        assert (e.pos, e.msg, e.seen) == (len(text), "unexpected end", [text]) and isinstance(e, SyntaxError)
        e.seen.append(1)
        assert e.seen == [text, 1]
try:
    Peek([]).peek()
    assert False
except StopIteration:
    pass
class Stop(BaseException): pass
def stop(): raise Stop
try:
    run(stop)
    assert False
except Stop:
    pass
precise(5)
assert decimal.getcontext().prec == 5
""",
    ),
}

LIES = {
    "an object that equals small numbers": (
        "class N:\n    def __init__(self, n): self.n = n\n"
        "    def __add__(self, other): return N(0)\n"
        "    def __eq__(self, other): return isinstance(other, int) and abs(other) < 1000",
        "assert N(1) + N(2) == 3",
    ),
    "one that equals short texts": (
        "class S:\n    def __init__(self, s): self.s = s\n    def __neg__(self): return self\n"
        "    def __eq__(self, other): return isinstance(other, str) and len(other) < 40",
        "assert -S('ab') == 'ba'",
    ),
    "an exception that ends a loop of the tests": (
        "def f(x): raise StopIteration",
        "assert list(map(f, [1, 2])) == []",
    ),
    "one that equals all lists": (
        "class L:\n    def __getitem__(self, at): return self\n"
        "    def __eq__(self, other): return isinstance(other, list)",
        "assert L()[0] == [1, 2]",
    ),
}
