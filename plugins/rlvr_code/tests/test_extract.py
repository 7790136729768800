"""Which part of a response is the program (T69)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_code.extract import program
from rlvr_code.source import OverBudgetError, defined
from rlvr_core.testing.clock import cpu_limit
from tests.support.tables import table

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


@pytest.mark.parametrize("text", table(__file__, "completions"))
def test_completions_of_a_prompt(text):
    assert value(program(text, wanted=["f"], prompt=PROMPT), [1, 2]) == 6


@pytest.mark.parametrize("text", table(__file__, "responses"))
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
    with cpu_limit(20.0):
        program(text, wanted=["f"], prompt=PROMPT)


CHAIN = "".join(f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(1000))


@pytest.mark.parametrize("text", [CHAIN, f"```python\n{CHAIN}```", f"{CHAIN}(((", CHAIN * 6])
def test_chained_definitions_are_followed_in_one_pass(text):
    with cpu_limit(5.0):
        assert program(text, wanted=["f0"]).count("return f999(x)") >= 1


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx\n```\n" * 10_000,
        "```python\ndef g(x):\n~~~\n" * 8_000,
        "if x: f = 1\n" + "elif x: f = 2\n" * 2_000,
        "".join(f"{' ' * n}if x:\n" for n in range(99)) + " " * 99 + "f = 1\n",
        "lambda:(" * 5_000,
        "not " * 40_000,
        "def g(x):\n  return 1\n" + "x\n" * 20_000 + "x y\n" * 20,
    ],
)
def test_deep_and_broken_text_costs_little_and_raises_nothing_else(text):
    with cpu_limit(10.0), contextlib.suppress(OverBudgetError):
        assert isinstance(program(text, wanted=["f"]), str)


def test_work_beyond_the_budget_is_refused(monkeypatch):
    monkeypatch.setattr("rlvr_code.source.WORK", 10_000)
    with pytest.raises(OverBudgetError):
        program("def g(x): pass\n" * 1_000, wanted=["f"])


def test_what_stands_in_a_closed_fence_is_taken_as_it_is():
    """And its end is not cut off until it compiles, as that of an open text is."""
    broken = "def f(x):\n    return 3 * x\nprint(f(1)\n"
    assert program(f"```python\n{broken}```", wanted=["f"]) == broken
    assert program(f"```python\n{broken}```") == broken
    for text in (broken, f"```python\n{broken}"):
        assert value(program(text, wanted=["f"]), 3) == 9
        assert program(text, wanted=["f"], trim=False).rstrip().endswith("print(f(1)")


def test_an_answer_that_does_not_compile_is_not_replaced_by_a_draft():
    draft, answer = "def f(x): return 3 * x\n", "def f(x):\n    return 3 * x)\n"
    assert program(f"```python\n{draft}```\n```python\n{answer}```", wanted=["f"]) == answer
    shown = f"```python\n{draft}```\n```\n>>> f(3)\n9\n```\n```python\nprint(f(3)) # 9 !\n```"
    assert program(shown, wanted=["f"]) == draft


def test_output_shown_in_a_fence_without_language_is_no_program():
    assert program("```python\nprint(2 + 3)\n```\nIt prints:\n```\n5\n```") == "print(2 + 3)\n"


def test_fences_in_lists_are_as_far_in_as_their_lines():
    text = "1. So:\n   ```python\n   def f(x):\n       return x * 3\n   ```\n"
    assert value(program(text, wanted=["f"]), 3) == 9
