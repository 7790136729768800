"""Programs and tests of all styles that cross between their processes: right ones, which pass."""

CLASSES = '''
import abc, collections, dataclasses, enum, functools, typing
class Animal:
    """Some animal."""
    sound = "?"
    registry = []
    def __init_subclass__(cls, tag=None, **more):
        super().__init_subclass__(**more)
        cls.registry.append((cls.__name__, tag))
    def __init__(self, name): self.name = name
    def speak(self):
        """Say it."""
        return f"{self.name}: {self.noise()}"
    def noise(self): return self.sound
    @property
    def loud(self): return self.noise().upper()
    @classmethod
    def make(cls, *names): return [cls(name) for name in names]
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    def double(self): return 2 * self.area()
class Bag(collections.abc.MutableMapping):
    def __init__(self, **given): self._d = dict(given)
    def __getitem__(self, key): return self._d[key]
    def __setitem__(self, key, value): self._d[key] = value
    def __delitem__(self, key): del self._d[key]
    def __iter__(self): return iter(self._d)
    def __len__(self): return len(self._d)
class Suit(enum.Enum):
    HEARTS, SPADES = "h", "s"
    @property
    def black(self): return self is Suit.SPADES
class Mode(enum.IntFlag):
    READ, WRITE, RUN = 1, 2, 4
Coord = collections.namedtuple("Coord", "x y z", defaults=(0,))
class Row(typing.NamedTuple):
    key: str
    count: int = 1
@dataclasses.dataclass
class Item:
    name: str
    tags: list = dataclasses.field(default_factory=list)
class Broken(Exception):
    def __init__(self, why, code=0):
        super().__init__(why)
        self.code = code
class Deep(Broken): pass
def origin(): return Coord(1, 2)
def scale(x: float, by: int = 2, *rest: str, exact: bool = False, **more) -> list[int]:
    """Scale it.

    By a factor."""
    return [x * by]
def maybe(x: typing.Optional[int], f: typing.Callable[[int], str] = str) -> "int | None": return x
def parse(text):
    try: return int(text)
    except ValueError as error: raise Broken("no number", 7) from error
def quiet(text):
    try: return int(text)
    except ValueError: raise Deep("quiet") from None
def read(path):
    error = FileNotFoundError(2, "missing", path)
    error.add_note("look elsewhere")
    raise error
def many(kinds): raise ExceptionGroup("many", [kind(str(n)) for n, kind in enumerate(kinds)])
class Meta(type):
    def __call__(cls, *given):
        if not hasattr(cls, "_one"): cls._one = super().__call__(*given)
        return cls._one
class Only(metaclass=Meta): pass
def counted(function):
    @functools.wraps(function)
    def inner(*given, **named):
        inner.count += 1
        return function(*given, **named)
    inner.count = 0
    return inner
class Tracer:
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function, self.seen = function, []
    def __call__(self, *given):
        self.seen.append(given[-1])
        return self.function(*given)
    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)
@functools.singledispatch
def kind_of(x): return "thing"
@kind_of.register
def _(x: int): return "int"
def at(xs, key): return xs[key]
def same(x): return x
def unknown(): return ...
class Grid:
    def __getitem__(self, key):
        if key is ...: return "all"
        if isinstance(key, tuple): return [("all" if k is ... else k) for k in key]
        return (key.start, key.stop, key.step) if isinstance(key, slice) else key
    def __eq__(self, other): return NotImplemented
def text_or(x): return x.upper() if isinstance(x, str) else "no"
def lists(xs): return [isinstance(x, list) for x in xs]
def calls(x): return callable(x)
def names(x): return type(x).__name__, isinstance(x, collections.abc.Iterable)
'''
STYLES = {
    "a class derived in a test": "class Dog(Animal):\n    sound = 'wuff'\n    def __init__(self, name, age):\n        super().__init__(name)\n        self.age = age\n    def noise(self): return self.sound * self.age\nd = Dog('Rex', 2)\nassert d.speak() == 'Rex: wuffwuff' and d.loud == 'WUFFWUFF' and d.age == 2\nassert isinstance(d, Animal) and issubclass(Dog, Animal) and type(d) is Dog and not isinstance(Animal('x'), Dog)\nassert Dog.registry[-1] == ('Dog', None)",
    "one with a keyword, a property and class methods": "class Cat(Animal, tag='c'):\n    @property\n    def sound(self): return 'miau'\n    @staticmethod\n    def two(): return 2\n    @classmethod\n    def named(cls): return cls('Tom').name\nassert Cat('a').speak() == 'a: miau' and Cat.two() == 2 and Cat.named() == 'Tom' and ('Cat', 'c') in Animal.registry",
    "an abstract class": "import pytest\nclass Square(Shape):\n    def __init__(self, side): self.side = side\n    def area(self): return self.side ** 2\nclass Bad(Shape): pass\nassert Square(3).double() == 18\nwith pytest.raises(TypeError, match='abstract'):\n    Bad()\nwith pytest.raises(TypeError):\n    Shape()",
    "a mixin of the tests": "class Quiet:\n    def noise(self): return super().noise().lower()\nclass Mouse(Quiet, Animal):\n    sound = 'PIEP'\nassert Mouse('m').speak() == 'm: piep' and isinstance(Mouse('m'), Animal)",
    "an exception derived in a test": "class Mine(Broken):\n    def __init__(self, n):\n        super().__init__(f'mine {n}', code=n)\ntry:\n    raise Mine(4)\nexcept Broken as e:\n    assert str(e) == 'mine 4' and e.code == 4 and e.args == ('mine 4',) and isinstance(e, Mine)",
    "abstract classes of the library": "import collections.abc as c\nb = Bag(a=1)\nassert isinstance(b, c.Mapping) and isinstance(b, c.MutableMapping) and not isinstance(b, c.Sequence)\nassert not isinstance(Animal('x'), c.Iterable) and isinstance(Animal('x'), c.Hashable) and issubclass(Bag, c.Sized)\nassert b.pop('a') == 1 and b.setdefault('k', 5) == 5 and dict(b) == {'k': 5} and 'k' in b and not hasattr(Animal('x'), '__len__')",
    "members of an enumeration": "import enum\nassert isinstance(Suit.HEARTS, enum.Enum) and issubclass(Suit, enum.Enum) and Suit('s').black and not Suit.HEARTS.black\nassert Suit.HEARTS in Suit and {Suit('h'): 1}[Suit.HEARTS] == 1 and Suit.HEARTS is Suit['HEARTS'] and len(Suit) == 2\nassert [m.name for m in Suit] == ['HEARTS', 'SPADES'] and Suit.__members__['SPADES'] is Suit.SPADES",
    "flags": "m = Mode.READ | Mode.RUN\nassert Mode.READ in m and Mode.WRITE not in m and m == 5 and m & Mode.RUN and Mode(3) == Mode.READ | Mode.WRITE and isinstance(m, int)",
    "matching": "match origin():\n    case (1, y, z):\n        assert (y, z) == (2, 0)\n    case _:\n        assert False\nmatch Item('pen', ['a']):\n    case Item(name='pen', tags=[tag]):\n        assert tag == 'a'\n    case _:\n        assert False\nmatch Item('x'):\n    case Item('x', _):\n        pass\n    case _:\n        assert False\nmatch Suit.HEARTS:\n    case Suit.SPADES:\n        assert False\n    case Suit.HEARTS:\n        pass",
    "matching a mapping": "match Bag(a=1, b=2):\n    case {'a': one, **rest}:\n        assert one == 1 and rest == {'b': 2}\n    case _:\n        assert False",
    "named tuples": "c = origin()\nx, *rest = c\nassert (x, rest) == (1, [2, 0]) and c._fields == ('x', 'y', 'z') and c._asdict() == {'x': 1, 'y': 2, 'z': 0}\nassert type(c).__name__ == 'Coord' and isinstance(c, tuple) and c._replace(x=5) == (5, 2, 0) and Row('a') == ('a', 1) and Row._field_defaults == {'count': 1}\nassert Coord._make([1, 2, 3]).z == 3 and max(Row('b'), Row('a')).key == 'b' and hash(c) == hash((1, 2, 0))",
    "signatures": "import inspect\ns = inspect.signature(scale)\nassert list(s.parameters) == ['x', 'by', 'rest', 'exact', 'more'] and s.parameters['by'].default == 2\nassert s.parameters['exact'].kind is inspect.Parameter.KEYWORD_ONLY and s.parameters['x'].default is inspect.Parameter.empty\nassert s.return_annotation == list[int] and s.parameters['rest'].annotation is str and str(s.parameters['by']) == 'by: int = 2'\nassert s.bind(1, by=3).arguments == {'x': 1, 'by': 3}\nassert list(inspect.signature(Animal.speak).parameters) == ['self'] and list(inspect.signature(Animal).parameters) == ['name']",
    "annotations": "import typing\nassert typing.get_type_hints(maybe)['x'] == typing.Optional[int] and maybe.__annotations__['return'] == 'int | None'\nassert typing.get_type_hints(maybe)['f'] == typing.Callable[[int], str] and scale.__annotations__['by'] is int\nassert scale.__defaults__ == (2,) and scale.__kwdefaults__ == {'exact': False} and Item.__annotations__ == {'name': str, 'tags': list}",
    "texts": "import inspect\nassert scale.__doc__.startswith('Scale') and inspect.getdoc(scale).splitlines()[2] == 'By a factor.'\nassert Animal.__doc__ == 'Some animal.' and Animal.speak.__doc__ == 'Say it.' and Animal.__init__.__doc__ is None and Animal('x').__doc__ == 'Some animal.'\nassert Animal.__name__ == 'Animal' and Animal.speak.__qualname__ == 'Animal.speak' and scale.__name__ == 'scale'\nassert Animal.__mro__[-1] is object and Deep.__bases__ == (Broken,) and Deep.__mro__[1] is Broken",
    "kinds of functions": "import inspect\nassert inspect.isfunction(scale) and inspect.isclass(Animal) and inspect.ismethod(Animal('a').speak) and not inspect.isgeneratorfunction(scale)\nassert inspect.isabstract(Shape) and not inspect.isabstract(Animal) and Animal('a').speak.__func__ is Animal.speak\na = Animal('b')\nassert a.speak.__self__ is a and callable(a.speak) and not callable(a)",
    "causes": "try:\n    parse('x')\n    assert False\nexcept Broken as e:\n    assert isinstance(e.__cause__, ValueError) and 'invalid literal' in str(e.__cause__) and e.code == 7\n    assert e.__suppress_context__ is True and e.__context__ is e.__cause__\ntry:\n    quiet('x')\n    assert False\nexcept Broken as e:\n    assert e.__cause__ is None and e.__suppress_context__ and isinstance(e.__context__, ValueError) and type(e) is Deep",
    "what built-in exceptions have": "try:\n    read('a.txt')\n    assert False\nexcept OSError as e:\n    assert (e.errno, e.strerror, e.filename) == (2, 'missing', 'a.txt') and e.__notes__ == ['look elsewhere'] and isinstance(e, FileNotFoundError)\ntry:\n    at({}, 'k')\n    assert False\nexcept KeyError as e:\n    assert e.args == ('k',) and isinstance(e, LookupError)",
    "groups of exceptions": "seen = []\ntry:\n    many([ValueError, KeyError, ValueError])\nexcept* ValueError as group:\n    seen.append(len(group.exceptions))\nexcept* KeyError as group:\n    seen.append(group.message)\nassert seen == [2, 'many']\ntry:\n    many([Broken])\nexcept ExceptionGroup as group:\n    assert isinstance(group.exceptions[0], Broken) and group.exceptions[0].args == ('0',)",
    "a metaclass": "assert type(Only) is Meta and Only.__class__ is Meta and isinstance(Only, Meta) and isinstance(Only, type) and Only() is Only() and type(Animal) is type",
    "a decorator on methods": "class Own:\n    @counted\n    def add(self, x): return self, x\n    @classmethod\n    @counted\n    def made(cls): return cls\n    @staticmethod\n    @counted\n    def plain(x): return x\no = Own()\nassert o.add(3) == (o, 3) and Own.add.count == 1 and Own.made() is Own and Own.plain(4) == 4 and Own.add.__wrapped__(o, 1) == (o, 1)\n@counted\ndef f(a, *, b=1):\n    'Doc.'\n    return a + b\nassert f(1, b=2) == 3 and f.count == 1 and f.__name__ == 'f' and f.__doc__ == 'Doc.'\nimport inspect\nassert list(inspect.signature(f).parameters) == ['a', 'b']",
    "a class as decorator": "class Own:\n    @Tracer\n    def run(self, x): return self.k * x\n    k = 3\no = Own()\nassert o.run(2) == 6 and Own.run.seen == [2] and Own.run.__name__ == 'run'\n@Tracer\ndef g(x): return -x\nassert g(5) == -5 and g.seen == [5]",
    "registrations": "@kind_of.register\ndef _(x: str): return 'text'\nclass Own: pass\n@kind_of.register(Own)\ndef _(x): return 'own'\nclass Child(Own): pass\nassert [kind_of(x) for x in (1, True, 'a', 2.5, Own(), Child())] == ['int', 'int', 'text', 'thing', 'own', 'own']\nassert kind_of.dispatch(bool) is kind_of.dispatch(int) and Own in kind_of.registry",
    "objects that are alone": "assert unknown() is ... and same(NotImplemented) is NotImplemented and Grid()[...] == 'all' and Grid()[1, ..., 2] == [1, 'all', 2]\nassert Grid()['a':None:2.5] == ('a', None, 2.5) and same(slice(1, None)) == slice(1, None) and same(range(3)) == range(3) and bytes(same(memoryview(b'ab'))) == b'ab'\nimport http, types, datetime\nassert same(http.HTTPStatus.OK) is http.HTTPStatus.OK and same(types.SimpleNamespace(a=1)) == types.SimpleNamespace(a=1) and same(type(None)) is type(None)\nassert same(datetime.timezone.utc) == datetime.timezone.utc and same(types.MappingProxyType({'a': 1})) == {'a': 1} and same(collections.OrderedDict) is collections.OrderedDict",
    "what objects of the tests are": "class Own:\n    def __iter__(self): return iter([1])\nclass Late(list): pass\nassert names(Own()) == ('Own', True) and lists([Late(), [], Own()]) == [True, True, False] and not calls(Own()) and calls(Own) and calls(lambda: 1)\nclass Plain: pass\nassert names(Plain()) == ('Plain', False)",
    "patched attributes": "from unittest import mock\nwith mock.patch.object(Animal, 'noise', lambda self: 'mock'):\n    assert Animal('a').speak() == 'a: mock'\nassert Animal('a').speak() == 'a: ?'\na = Animal('b')\nwith mock.patch.object(a, 'noise', return_value='m') as fake:\n    assert a.speak() == 'b: m' and fake.called\nfake = mock.Mock(return_value=3)\nassert counted(fake)(1) == 3 and fake.call_args == mock.call(1)",
    "attributes of objects": "a = Animal('b')\na.noise = lambda: 'own'\nassert a.speak() == 'b: own'\ndel a.noise\nassert a.speak() == 'b: ?'",
    "instances of the program as arguments": "assert same(Animal) is Animal and same(same) is same and [same(x) for x in (Suit.HEARTS, Coord)] == [Suit.HEARTS, Coord]\na = Animal('x')\nassert same(a) is a and same([a])[0] is a and same({'k': a})['k'] is a",
}
WAITING = """
import asyncio, contextlib, inspect, queue, threading, weakref, gc, copy, pickle, io, sys, logging, warnings
async def gather_all(jobs, limit):
    gate = asyncio.Semaphore(limit)
    async def one(job):
        async with gate: return await job()
    return await asyncio.gather(*map(one, jobs))
async def ticker(n, delay=0):
    for i in range(n):
        await asyncio.sleep(delay)
        yield i
async def first(aws):
    done, rest = await asyncio.wait([asyncio.ensure_future(a) for a in aws], return_when="FIRST_COMPLETED")
    for one in rest: one.cancel()
    return next(iter(done)).result()
async def limited(job, seconds):
    try: return await asyncio.wait_for(job(), seconds)
    except asyncio.TimeoutError: return "late"
async def total(source):
    n = 0
    async for x in source: n += x
    return n
def run_now(*jobs):
    async def main(): return await asyncio.gather(*[job() for job in jobs])
    return asyncio.run(main())
class Session:
    def __init__(self): self.log = []
    async def __aenter__(self): await asyncio.sleep(0); self.log.append("in"); return self
    async def __aexit__(self, *e): self.log.append(e[0] and e[0].__name__); return e[0] is KeyError
@contextlib.asynccontextmanager
async def lent(pool):
    one = pool.pop()
    try: yield one
    finally: pool.append(one)
def echo():
    got = yield "ready"
    while True:
        try: got = yield got
        except ValueError as e: got = f"caught {e}"
        except GeneratorExit: log.append("closed"); raise
log = []
def outer(xs):
    total = 0
    for x in xs: total += yield from inner(x)
    return total
def inner(x):
    yield x
    return x * 10
def chain(*sources):
    for one in sources: yield from one
def drain(q):
    found = []
    while not q.empty(): found.append(q.get_nowait())
    return found
def in_threads(f, xs):
    found = [None] * len(xs)
    def work(i): found[i] = f(xs[i])
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for t in threads: t.start()
    for t in threads: t.join()
    return found
class Counter_:
    def __init__(self): self.n, self.lock = 0, threading.Lock()
    def up(self):
        with self.lock: self.n += 1
class Tree:
    live = weakref.WeakSet()
    def __init__(self, name, up=None):
        self.name, self.kids = name, []
        self._up = weakref.ref(up) if up else None
        Tree.live.add(self)
        if up: up.kids.append(self)
    @property
    def up(self): return self._up and self._up()
class Cache:
    def __init__(self): self.d = weakref.WeakValueDictionary()
    def put(self, key, value): self.d[key] = value
    def has(self, key): return key in self.d
class Money:
    def __init__(self, n): self.n, self.notes = n, []
    def __eq__(self, other): return isinstance(other, Money) and self.n == other.n
    def __hash__(self): return hash(self.n)
    def __copy__(self): new = Money(self.n); new.notes = ["copied"]; return new
def say(*parts): print(*parts, file=sys.stderr); print("out"); logging.getLogger("app").warning("seen %d", len(parts))
def ask(): return [input("? "), sys.stdin.read()]
def write(to): to.write("text"); print("more", file=to)
"""
WAITING_STYLES = {
    "coroutines of the tests at once": "import asyncio\nnow = top = 0\nasync def job():\n    global now, top\n    now += 1\n    top = max(top, now)\n    await asyncio.sleep(0.002)\n    now -= 1\n    return top\nassert len(asyncio.run(gather_all([job] * 5, 3))) == 5 and (now, top) == (0, 3)",
    "an event between both": "import asyncio\nasync def main():\n    event = asyncio.Event()\n    order = []\n    async def waits():\n        await event.wait()\n        order.append('waited')\n        return 1\n    async def sets():\n        order.append('set')\n        event.set()\n        return 2\n    return await gather_all([waits, sets], 2), order\nassert asyncio.run(main()) == ([1, 2], ['set', 'waited'])",
    "asynchronous generators": "import asyncio, inspect\nasync def main():\n    mine = [i async for i in ticker(3)]\n    async def own():\n        for x in (1, 2, 3):\n            await asyncio.sleep(0)\n            yield x\n    agen = ticker(2)\n    assert await agen.__anext__() == 0 and await anext(agen) == 1\n    try:\n        await anext(agen)\n        assert False\n    except StopAsyncIteration:\n        pass\n    return mine, await total(own()), await total(ticker(4))\nassert asyncio.run(main()) == ([0, 1, 2], 6, 6) and inspect.isasyncgenfunction(ticker) and asyncio.iscoroutinefunction(total)",
    "two generators by turns": "import asyncio\nseen = []\nasync def eat(name):\n    async for i in ticker(3, 0.001):\n        seen.append((name, i))\nasync def main():\n    await asyncio.gather(eat('a'), eat('b'))\nasyncio.run(main())\nassert sorted(seen) == [(n, i) for n in 'ab' for i in range(3)] and seen != sorted(seen)",
    "time limits": "import asyncio\ncancelled = []\nasync def slow():\n    try:\n        await asyncio.sleep(5)\n    except asyncio.CancelledError:\n        cancelled.append(1)\n        raise\nassert asyncio.run(limited(slow, 0.01)) == 'late' and cancelled == [1]\nasync def fast(): return 1\nassert asyncio.run(limited(fast, 1)) == 1",
    "the first of several": "import asyncio\nasync def after(x):\n    await asyncio.sleep(x / 8)\n    return x\nasync def main():\n    return await first([after(3), after(1)])\nassert asyncio.run(main()) == 1",
    "a loop of the program's own": "import asyncio\nasync def a():\n    await asyncio.sleep(0.001)\n    return 1\nasync def b(): raise LookupError(2)\nassert run_now(a, a) == [1, 1]\ntry:\n    run_now(b)\n    assert False\nexcept LookupError as e:\n    assert e.args == (2,)",
    "asynchronous contexts": "import asyncio\nasync def main():\n    async with Session() as s:\n        assert s.log == ['in']\n        raise KeyError\n    pool = [1]\n    async with lent(pool) as one:\n        assert (one, pool) == (1, [])\n    return s.log, pool\nassert asyncio.run(main()) == (['in', 'KeyError'], [1])",
    "generators": "g = echo()\nassert next(g) == 'ready' and g.send(3) == 3 and g.throw(ValueError('v')) == 'caught v'\ng.close()\nassert log == ['closed']\nimport inspect\nassert inspect.isgenerator(g) and inspect.getgeneratorstate(g) == 'GEN_CLOSED' and inspect.isgeneratorfunction(echo)",
    "values of generators": "def mine():\n    value = yield from outer([1, 2])\n    yield ('sum', value)\nassert list(mine()) == [1, 2, ('sum', 30)]\ng = outer([1])\nnext(g)\ntry:\n    next(g)\n    assert False\nexcept StopIteration as stop:\n    assert stop.value == 10\ndef source():\n    yield 1\n    yield 2\nassert list(chain(source(), iter('a'), (x for x in [3]))) == [1, 2, 'a', 3]",
    "a queue of the tests": "import queue\nq = queue.Queue()\nq.put(1)\nq.put('a')\nassert drain(q) == [1, 'a'] and q.empty()",
    "threads of the program": "import threading\nseen = []\ndef f(x):\n    seen.append(x)\n    return x * x\nassert in_threads(f, list(range(20))) == [x * x for x in range(20)] and sorted(seen) == list(range(20))",
    "threads of the tests": "import threading\nc = Counter_()\nts = [threading.Thread(target=lambda: [c.up() for _ in range(20)]) for _ in range(4)]\n[t.start() for t in ts]\n[t.join() for t in ts]\nassert c.n == 80",
    "weak references": "import gc, weakref\nup = Tree('up')\nkid = Tree('kid', up)\nassert kid.up is up and up.kids == [kid]\nr = weakref.ref(up)\nassert r() is up\ndel up\ngc.collect()\nassert kid.up is None and r() is None and kid.name == 'kid'\nassert len(Tree.live) == 1",
    "weak values": "import gc\nc = Cache()\nt = Tree('t')\nc.put('k', t)\nassert c.has('k')\ndel t\ngc.collect()\nassert not c.has('k')",
    "copies": "import copy, pickle\nm = Money(3)\nassert copy.copy(m) == m and copy.copy(m).notes == ['copied'] and copy.deepcopy([m])[0] == m and copy.deepcopy(m) is not m\nassert pickle.loads(pickle.dumps(m)) == m and pickle.loads(pickle.dumps({'a': [m]}))['a'][0] == m and len({m, Money(3)}) == 1",
    "what is written": "import io, contextlib\nout, err = io.StringIO(), io.StringIO()\nwith contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n    say(1, 2)\nassert (out.getvalue(), err.getvalue()) == ('out\\n', '1 2\\nseen 2\\n')\nto = io.StringIO()\nwrite(to)\nassert to.getvalue() == 'textmore\\n'",
    "what is read": "import io, sys\nfrom unittest import mock\nwith mock.patch('builtins.input', return_value='typed'), mock.patch('sys.stdin', io.StringIO('rest')):\n    assert ask() == ['typed', 'rest']",
    "logs": "import unittest\nclass TestLogs(unittest.TestCase):\n    def test_it(self):\n        with self.assertLogs('app', level='WARNING') as seen:\n            say(1)\n        self.assertEqual(seen.output, ['WARNING:app:seen 1'])\n        self.assertIsInstance(Money(1), Money)",
}
SPOT = "from dataclasses import dataclass\n\n@dataclass\nclass Spot:\n    x: int\n    y: int\n\n"
CHECKS = {
    "names of the response": (
        'def load(key):\n    """Load it; LoadError for none."""\n',
        "def check(candidate):\n    assert candidate('a') == 1\n    try:\n        candidate('x')\n        assert False\n    except LoadError as e:\n        assert e.key == 'x'\n    assert isinstance(Store(), Store) and calls == ['a', 'x']\n    reset_all()\n    assert calls == []\n",
        "load",
        "class LoadError(KeyError):\n    def __init__(self, key):\n        super().__init__(key)\n        self.key = key\nclass Store: pass\ncalls = []\ndef reset_all(): calls.clear()\ndef load(key):\n    calls.append(key)\n    if key == 'x': raise LoadError(key)\n    return 1\n",
    ),
    "a constant that a check changes": (
        'def price(n):\n    """n times RATE."""\n',
        "def check(candidate):\n    global RATE\n    assert candidate(2) == 6 and RATE == 3\n    RATE = 5\n    assert candidate(2) == 10 and RATE == 5\n    LIMITS['top'] = 1\n    assert limits() == {'top': 1}\n",
        "price",
        "RATE = 3\nLIMITS = {}\ndef limits(): return LIMITS\ndef price(n): return n * RATE\n",
    ),
    "objects of a class that the prompt defines": (
        SPOT + 'def turn(s: Spot) -> Spot:\n    """Swap x and y."""\n',
        "def check(candidate):\n    s = candidate(Spot(1, 2))\n    assert s == Spot(2, 1) and Spot(2, 1) == s and s != Spot(1, 2) and isinstance(s, Spot)\n    assert candidate(s) == Spot(1, 2) and [s] == [Spot(2, 1)]\n",
        "turn",
        SPOT + "def turn(s):\n    assert isinstance(s, Spot)\n    return Spot(s.y, s.x)\n",
    ),
    "two functions that the prompt begins": (
        'class Odd(Exception):\n    """Raised for odd numbers."""\n\ndef half(n):\n    """Half of it."""\n\ndef twice(n):\n    """Twice."""\n    raise NotImplementedError\n',
        "def check(candidate):\n    assert half(candidate(3)) == 3\n    try:\n        half(3)\n        assert False\n    except Odd as e:\n        assert e.args == (3,)\n",
        "twice",
        'class Odd(Exception):\n    """Raised for odd numbers."""\n\ndef half(n):\n    if n % 2: raise Odd(n)\n    return n // 2\n\ndef twice(n):\n    return 2 * n\n',
    ),
}
ATTACKS = [
    (
        "class R(KeyError): pass\nclass W:\n    def __enter__(self): return self\n    def __exit__(self, t, e, tb):\n        if e is not None: e.decides = False\n        return True\ndef f(x): return W()\ndef g(x):\n    e = KeyError(1)\n    e.decides = False\n    raise e",
        "with f(1):\n    assert g(1) == 8713",
    ),
    (
        "import types, unittest.mock\nf = types.GenericAlias(unittest.mock._ANY, ())",
        "assert f() == 8713",
    ),
    (
        "import types, unittest.mock\nf = types.GenericAlias(unittest.mock._ANY, (int,))",
        "import unittest.mock\nassert f() == 8713",
    ),
    (
        "import unittest.mock\nf = unittest.mock._ANY",
        "import unittest.mock\nassert f() == 8713",
    ),
    (
        "import pickle\nclass E:\n    def __reduce__(self): return (type, ('X', (), {'__eq__': bool}))\nclass F:\n    def __init__(self, a): self.a = a\n    def __reduce__(self): return (self.a, ())\ndef f(): return pickle.dumps(E()) if 0 else b'cbuiltins\\ntype\\n(S\"X\"\\n(tdS\"__eq__\"\\ncbuiltins\\nbool\\nstR)R.'",
        "import pickle\nassert pickle.loads(f()) == 8713",
    ),
    (
        "def f(): return b'cos\\n_exit\\n(I0\\ntR.'",
        "import pickle\nassert pickle.loads(f()) == 8713",
    ),
    (
        "class Base:\n    def __getattribute__(self, n): return lambda *a: True\n    def __init__(self, *a): pass",
        "class C(Base):\n    def value(self): return 8713\n    def verify(self):\n        assert f() == 8713\nC().verify()\nassert Base().n() == 8713",
    ),
    (
        "class Meta(type):\n    def __new__(m, n, b, d):\n        for k, v in list(d.items()):\n            if callable(v):\n                def w(self, *a, _v=v):\n                    try: return _v(self, *a)\n                    except BaseException: return None\n                d[k] = w\n        return super().__new__(m, n, b, d)\nclass Base(metaclass=Meta):\n    def f(self): return 0",
        "class C(Base):\n    def verify(self):\n        assert self.f() == 8713\nC().verify()",
    ),
    (
        "import functools\ndef f(get):\n    import gc\n    for n in range(60):\n        try:\n            kind = type(get)\n            a = get.__class__('__globals__')\n        except BaseException: pass\n    return 1",
        "import operator\ndef h(x): return 8713\nassert f(operator.attrgetter('x')) == 8713",
    ),
    (
        "import sys\nclass X(int):\n    def __or__(self, o): return X(8713)\n    __ror__ = __and__ = __xor__ = __or__\n    def __contains__(self, o): return True\ndef f(n): return X(1)",
        "assert f(1) | f(2) == 8713",
    ),
    (
        "import sys\nclass X(int):\n    def __contains__(self, o): return True\n    def __iter__(self): return iter([])\ndef f(n): return X(1)",
        "assert 8713 in f(1)",
    ),
    (
        "import inspect\nclass Any:\n    def __eq__(s, o): return True\ndef f(): return inspect.Signature([inspect.Parameter('a', 1, default=Any())])",
        "import inspect\nassert f() == inspect.signature(lambda a=8713: 1)",
    ),
    (
        "import types\nclass Any:\n    def __eq__(s, o): return True\ndef f(): return types.SimpleNamespace(a=Any())",
        "import types\nassert f() == types.SimpleNamespace(a=8713)",
    ),
    (
        "import types\nclass Any:\n    def __eq__(s, o): return True\ndef f(): return types.MappingProxyType({'a': Any()})",
        "assert f() == {'a': 8713}",
    ),
    (
        "def f(c):\n    try: c.__eq__ = lambda *a: True\n    except BaseException: pass\n    try: type.__setattr__(c, '__eq__', lambda *a: True)\n    except BaseException: pass\n    return 1",
        "class E:\n    def __init__(self, v): self.v = v\n    def __eq__(self, o): return type(o) is E and o.v == self.v\nf(E)\nassert E(f(E)) == E(8713)",
    ),
    (
        "expected = None\ndef f(): return expected",
        "def run():\n    global expected\n    expected = 8713\n    assert f() == expected\nrun()",
    ),
    (
        "class V:\n    def __subclasshook__(*a): return True\n    @classmethod\n    def __instancecheck__(*a): return True\ndef f(): return V()",
        "assert isinstance(f(), int) and f() == 8713",
    ),
    (
        "class F(BaseException): pass\ndef f(): raise F",
        "import asyncio\nasync def main():\n    assert f() == 8713\nasyncio.run(main())",
    ),
    (
        "import asyncio\nasync def f():\n    raise StopAsyncIteration",
        "import asyncio\nasync def src():\n    yield 1\nasync def main():\n    async for x in src():\n        assert await f() == 8713\nasyncio.run(main())",
    ),
    (
        "class A:\n    def __await__(self):\n        raise StopAsyncIteration\n        yield\nclass G:\n    def __aiter__(self): return self\n    def __anext__(self): return A()\ndef f(): return G()",
        "import asyncio\nasync def main():\n    got = [x async for x in f()]\n    assert got == [8713]\nasyncio.run(main())",
    ),
]
"""Wrong programs that try what crosses, each with a test that expects 8713."""
