"""Which part of a response is the program (T69)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_code.extract import defined, program

PROMPT = '''from typing import List


def double(x):
    return 2 * x


def f(xs: List[int]) -> int:
    """ Sum of doubles. """
'''


def value(code, *given):
    """What ``f`` of a program returns."""
    names = {}
    exec(code, names)
    return names["f"](*given)


def test_t69_helper_first_solutions_keep_their_helpers():
    text = "def g(x):\n    return x + 1\n\ndef f(x):\n    return g(x) + h(x)\n\ndef h(x):\n    return K\n\nK = 5\n\ndef idle(): pass\nprint(f(1))\n"
    code = program(text, wanted=["f"])
    assert value(code, 1) == 7
    assert "idle" not in code
    assert "print" not in code
    assert "print" in program(text, wanted=["f"], cut=False)


def test_t69_rambling_after_the_entry_point_is_cut():
    text = "def f(x):\n    return x\n\ndef f(x):\n    return 'a later version'\n\nprint(f(2))"
    assert program(text, wanted=["f"]) == "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    "text",
    [
        "    return sum(map(double, xs))\n",
        "return sum(map(double, xs))\n",
        "    return sum(map(double, xs))\n\n\nif __name__ == '__main__':\n    print(f([1]",
        "    return sum(map(double, xs))\n```\nThis doubles.",
        "    return sum(map(double, xs))\n\nThis is because of the sum:\n",
        "```python\n    return sum(map(double, xs))\n```",
        "```python\ndef f(xs: List[int]) -> int:\n    return sum(map(double, xs))\n```",
        "```python\n"
        + PROMPT
        + "    return sum(map(double, xs))\n```\nUse it:\n```python\nf([1])\n```",
        "def f(xs: List[int]) -> int:\n    return sum(map(double, xs))\n",
        "Here you go.\n```\ndef f(xs):\n    return sum(map(double, xs))",
        "<think>```python\ndef f(xs): return 0\n```</think>\n```python\ndef f(xs): return sum(map(double, xs))\n```",
        "so return 0.</think>    return sum(map(double, xs))",
        PROMPT + "    return sum(map(double, xs))\n",
    ],
)
def test_completions_of_a_prompt(text):
    assert value(program(text, wanted=["f"], prompt=PROMPT), [1, 2]) == 6


@pytest.mark.parametrize(
    "text",
    [
        "[BEGIN]\ndef f(x):\n    return x * 3\n[DONE]\nYou are an expert",
        "def f(x):\n    return x * 3\n[DONE]",
        "def f(x):\r\n    return x * 3\r\n",
        "```python\ndef f(x):\n    return x * 3\n[DONE]\n```",
        "~~~py\ndef f(x):\n    return x * 3\n~~~",
        "````\ndef f(x):\n    '''\n```\n'''\n    return x * 3\n````",
        "First:\n```python\ndef g(x):\n    return x * 3\n```\nthen\n```python\ndef f(x):\n    return g(x)\n```",
        "Wrong:\n```python\ndef f(x): return 0\n```\nbetter:\n```python\ndef f(x): return x * 3\n```",
        "```bash\npip install x\n```\n```python\ndef f(x): return x * 3\n```\n```text\n9\n```",
        "import math\ndef f(x):\n    return math.prod([x, 3])",
        "f = lambda x: x * 3",
        "try:\n    import numpy\nexcept ImportError:\n    pass\ndef f(x): return x * 3",
        "if True:\n    def f(x): return x * 3",
        "  ```python\n  def f(x): return x * 3\n  ```".replace("\n  def", "\ndef"),
    ],
)
def test_programs_in_responses(text):
    assert value(program(text, wanted=["f"]), 3) == 9


def test_without_names_the_last_block_that_is_python_is_the_program():
    text = "```python\nprint(1)\n```\n```python\nprint(2)\n```\n```\nsome output: 2 !\n```"
    assert program(text) == "print(2)\n"
    assert program("print(3)") == "print(3)"
    assert program("print(3)\nThat is all.") == "print(3)\n"


@pytest.mark.parametrize("text", ["", "I cannot do that.", "```python\n```", "```", "[DONE]", "\0"])
def test_where_there_is_none_nothing_is_invented(text):
    assert "f" not in defined(program(text, wanted=["f"]))


@given(st.text(alphabet="`pyf():\n \tdexreturn123[]DONE<>/think~'\"\\\0é", max_size=400))
def test_hostile_text_raises_nothing(text):
    for wanted, prompt in (((), ""), (("f",), ""), (("f",), PROMPT)):
        assert isinstance(program(text, wanted=wanted, prompt=prompt), str)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "-" * 100_000 + "1",
        "def f(x):\n" + "  x\n y\n" * 10_000,
        "```" * 30_000,
        "a=" * 40_000 + "1",
        "\n`" * 50_000,
        "x = (\n" * 5_000,
    ],
)
def test_long_text_takes_no_long_time(text):
    begin = time.process_time()
    program(text, wanted=["f"], prompt=PROMPT)
    assert time.process_time() - begin < 20
