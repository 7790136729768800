"""Functions of the running program: how other processes find them, and which they cannot have."""

from __future__ import annotations

import importlib.util
import sys
import textwrap

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.script.ship import reference


@pytest.fixture
def main(tmp_path, monkeypatch):
    """Runs source as the main program does, and gives its names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(source):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(source))
        module = type(sys)("__main__")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
        return module

    return run


def loaded(use):
    """What the file of a reference defines, in a module of its own."""
    path, _, name = use.rpartition(":")
    spec = importlib.util.spec_from_file_location("somewhere_else", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def test_a_function_goes_with_all_it_uses_and_nothing_else(main):
    program = main(
        """
        import math
        import re as regular
        from collections import Counter
        from math import sqrt as root

        WEIGHTS = {"a": 1.0, "b": [2, 3]}
        WORD = regular.compile("[a-z]+", regular.I)
        unrelated = open(__file__)

        def twice(f):
            return lambda *args: 2 * f(*args)

        class Base:
            unrelated = 3

        class Counts(Base):
            def of(self, text):
                return Counter(WORD.findall(text))["a"]

        def again(n):
            return 0 if n == 0 else 1 + again(n - 1)

        alias = again

        def score(text, floor=math.floor(1.5)):
            unrelated = Counts().of(text)
            return root(4) + WEIGHTS["b"][1] + unrelated + floor + alias(2)
        """
    )
    use = reference(program.score)
    assert loaded(use)("a B a") == program.score("a B a") == 2 + 3 + 2 + 1 + 2
    assert reference(program.score) == use


def test_what_changed_is_another_file(main):
    one = reference(main("def f(text):\n    return 1.0\n").f)
    other = reference(main("def f(text):\n    return 2.0\n").f)
    assert one != other
    assert (loaded(one)(""), loaded(other)("")) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("source", "name", "says"),
    [
        ("f = lambda text: 1.0", "f", "a lambda"),
        ("def g():\n    def f(text): ...\n    return f\nf = g()", "f", "inside of something"),
        ("model = object()\ndef f(text):\n    return model", "f", "uses 'model', a object"),
        ("x = 3", "x", "is a int, not a function or a class"),
    ],
)
def test_what_cannot_be_sent_is_named(main, source, name, says):
    with pytest.raises(ConfigError) as caught:
        reference(getattr(main(source), name))
    assert says in str(caught.value)


def test_what_no_source_is_known_of_is_told(main):
    program = main("exec('def f(text): return 1.0')")
    with pytest.raises(ConfigError, match="the source of f cannot be found"):
        reference(program.f)


def test_what_is_in_a_file_is_named_by_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ship_me.py").write_text("def f(text):\n    return 1.0\n")
    import ship_me

    assert reference(ship_me.f) == "./ship_me.py:f"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert reference(ship_me.f) == f"{tmp_path}/ship_me.py:f"
    del sys.modules["ship_me"]


def test_what_is_in_a_package_is_named_by_its_module():
    from rlvr_core.verify.exact import Exact

    assert reference(Exact) == "rlvr_core.verify.exact:Exact"
