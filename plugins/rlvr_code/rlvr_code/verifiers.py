"""The verifiers: programs against assertions, check functions, outputs and returned values."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_code import extract
from rlvr_code.judge.asserts import Tests, judge
from rlvr_code.judge.cases import Case, judge_calls, judge_output
from rlvr_code.judge.compare import same_output, same_value
from rlvr_code.options import LONGEST, JudgeConfig, Sandboxes, no_program, time_limit, verdict
from rlvr_core import Completion, DataError, Problem, Verdict

PRELUDE = (
    "from typing import *; import bisect, collections, copy, functools, heapq, itertools, math, "
    "random, re, string, sys; from collections import *; from functools import *; "
    "from itertools import *; from heapq import *; from bisect import *; from math import *; "
)


class Mbpp:
    """Right when every assertion of ``spec.test_list`` holds.

    ``spec.test_setup_code`` and ``spec.test_imports`` run before them, with the tests and not with
    the program. ``spec.code``, a reference solution, tells which names are the program's.
    """

    class Config(JudgeConfig):
        """Options of the verifier of assertions."""

        challenge: bool = False
        """Also run the assertions of ``spec.challenge_test_list``."""

    reward_range = (0.0, 1.0)
    beside = ("backend", "python", "image")
    time_limit = staticmethod(time_limit)

    def __init__(self, config: Config) -> None:
        self.config = config
        self._sandboxes = Sandboxes(config)

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless there are tests and they are Python (T46)."""
        self._tests(problem)

    def gold(self, problem: Problem) -> str | None:
        """The reference solution, where there is one."""
        return fenced(problem.spec.get("code"))

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        tests = self._tests(problem)
        if len(completion.text) > LONGEST:
            return no_program(problem, "the response is too long")
        wanted = tests.program
        code = extract.program(completion.text, wanted=wanted, cut=self.config.cut)
        outcome = judge(
            self._sandboxes.programs, self._sandboxes.testers, code, tests, self.config.budget()
        )
        return verdict(outcome, code, self.config.score)

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()

    def _tests(self, problem: Problem) -> Tests:
        spec = problem.spec
        tests = texts(problem, "test_list")
        if self.config.challenge:
            tests += texts(problem, "challenge_test_list")
        if not tests:
            raise DataError(f"{problem.id}: no tests in 'test_list', so any program would pass")
        setup = [*texts(problem, "test_imports"), str(spec.get("test_setup_code") or "")]
        late = "\n".join(setup).replace("\r\n", "\n")
        return Tests(tests, late=late, program=_names(problem.id, tests, late, spec.get("code")))


class HumanEval:
    """Right when ``check`` of ``spec.test`` accepts the function named ``spec.entry_point``.

    What ``spec.prompt`` defines beside that function is defined for the tests too, from the
    prompt and not from the response.
    """

    class Config(JudgeConfig):
        """Options of the verifier of check functions."""

        case_seconds: Annotated[float, Field(gt=0)] = 15.0
        """Seconds that the check may take, all its calls together."""

    reward_range = (0.0, 1.0)
    beside = Mbpp.beside
    time_limit = staticmethod(time_limit)

    def __init__(self, config: Config) -> None:
        self.config = config
        self._sandboxes = Sandboxes(config)

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless prompt, test and entry point are there."""
        self._tests(problem)

    def gold(self, problem: Problem) -> str | None:
        """The canonical solution, where there is one."""
        return fenced(problem.spec.get("canonical_solution"), str(problem.spec["prompt"]))

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        tests = self._tests(problem)
        if len(completion.text) > LONGEST:
            return no_program(problem, "the response is too long")
        code = extract.program(
            completion.text,
            wanted=tests.program,
            prompt=str(problem.spec["prompt"]),
            cut=self.config.cut,
        )
        outcome = judge(
            self._sandboxes.programs, self._sandboxes.testers, code, tests, self.config.budget()
        )
        return verdict(outcome, code, self.config.score)

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()

    def _tests(self, problem: Problem) -> Tests:
        prompt, test, name = (text(problem, key) for key in ("prompt", "test", "entry_point"))
        setup = prompt if name in extract.defined(prompt) else f"{prompt}    pass\n"
        if "check" not in extract.defined(test):
            raise DataError(f"{problem.id}: 'test' defines no function 'check'")
        if name not in extract.defined(setup):
            raise DataError(f"{problem.id}: 'prompt' does not begin the function {name!r}")
        return Tests((f"check({name})",), setup=setup, late=test, program=(name,))


class CasesConfig(JudgeConfig):
    """Options of verifiers with inputs and expected answers."""

    tolerance: Annotated[float, Field(ge=0)] = 1e-6
    """By how much decimal numbers may differ; 0 compares them as they are."""


class Stdin:
    """Right when the program turns each input into the expected output.

    Inputs and outputs are texts in ``spec.inputs`` and ``spec.outputs``; outputs are compared word
    by word, white space is free.
    """

    Config = CasesConfig
    reward_range = (0.0, 1.0)
    beside = Mbpp.beside
    time_limit = staticmethod(time_limit)

    def __init__(self, config: CasesConfig) -> None:
        self.config = config
        self._sandboxes = Sandboxes(config)

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless there is an output for each input, and there are any (T46)."""
        self._cases(problem)

    def gold(self, problem: Problem) -> str | None:
        """The first reference solution, where there is one."""
        return fenced(_first(problem.spec.get("solutions")))

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        cases = self._cases(problem)
        if len(completion.text) > LONGEST:
            return no_program(problem, "the response is too long")
        code = extract.program(completion.text)
        outcome = judge_output(self._sandboxes.programs, code, cases, self.config.budget())
        return verdict(outcome, code, self.config.score)

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()

    def _cases(self, problem: Problem) -> list[Case]:
        tolerance = self.config.tolerance
        given, wanted = pairs(problem)
        return [
            Case(as_text(one), functools.partial(same_output, as_text(other), tolerance=tolerance))
            for one, other in zip(given, wanted, strict=True)
        ]


class Call:
    """Right when the function named ``spec.fn_name`` returns what is expected.

    ``spec.inputs`` has a list of arguments for each call, ``spec.outputs`` the value for each. The
    function may also be a method of a class ``Solution``.
    """

    class Config(CasesConfig):
        """Options of the verifier of calls."""

        order: Literal["strict", "any"] = "strict"
        """``any``: lists may differ in order."""

    reward_range = (0.0, 1.0)
    beside = Mbpp.beside
    time_limit = staticmethod(time_limit)

    def __init__(self, config: Config) -> None:
        self.config = config
        self._sandboxes = Sandboxes(config)

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless a function is named and each call has a value (T46)."""
        self._cases(problem)

    def gold(self, problem: Problem) -> str | None:
        """The first reference solution, where there is one."""
        return fenced(_first(problem.spec.get("solutions")))

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        cases = self._cases(problem)
        if len(completion.text) > LONGEST:
            return no_program(problem, "the response is too long")
        name = text(problem, "fn_name")
        code = extract.program(completion.text, wanted=(name,), cut=self.config.cut)
        if name not in extract.defined(code):
            code = extract.program(completion.text, wanted=("Solution",), cut=self.config.cut)
        code = _with_prelude(code)
        outcome = judge_calls(self._sandboxes.programs, code, name, cases, self.config.budget())
        return verdict(outcome, code, self.config.score)

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()

    def _cases(self, problem: Problem) -> list[Case]:
        text(problem, "fn_name")
        given, wanted = pairs(problem)
        right = self._wrapped if problem.spec.get("wrapped") else self._right
        bad = next((one for one in given if not isinstance(one, list)), None)
        if bad is not None:
            raise DataError(f"{problem.id}: an input must be a list of arguments, not {bad!r:.60}")
        return [
            Case(one, functools.partial(right, other))
            for one, other in zip(given, wanted, strict=True)
        ]

    def _right(self, expected: Any, value: Any) -> bool:
        any_order = self.config.order == "any"
        return same_value(expected, value, self.config.tolerance, any_order=any_order)

    def _wrapped(self, expected: Any, value: Any) -> bool:
        """APPS puts some expected values into a list of their own, and does not say which."""
        return self._right(expected, value) or self._right(expected[0], value)


def _with_prelude(code: str) -> str:
    """A program behind the imports that problem sets of this kind take for granted.

    They stand on the program's first line, so that its lines keep their numbers; imports from
    ``__future__``, which must come first, do without them.
    """
    return code if "__future__" in code else PRELUDE + code


def fenced(code: object, prompt: str = "") -> str | None:
    """A reference program as a response; None if there is none."""
    return f"```python\n{prompt}{code}\n```" if isinstance(code, str) and code.strip() else None


def text(problem: Problem, key: str) -> str:
    """A field of the spec that must be text.

    Raises:
        DataError: If it is not.
    """
    value = problem.spec.get(key)
    if not isinstance(value, str) or not value.strip():
        there = ", ".join(sorted(problem.spec)) or "none"
        raise DataError(
            f"{problem.id}: text in field {key!r} is needed", remedy=f"fields there are: {there}"
        )
    return value


def texts(problem: Problem, key: str) -> tuple[str, ...]:
    """A field of the spec that is a list of texts, perhaps absent.

    Raises:
        DataError: If it is something else.
    """
    value = problem.spec.get(key) or ()
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise DataError(f"{problem.id}: field {key!r} must be a list of texts")
    if isinstance(value, str):
        raise DataError(f"{problem.id}: field {key!r} must be a list of texts, not one text")
    return tuple(one.replace("\r\n", "\n") for one in value if one.strip())


def pairs(problem: Problem) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs.

    Raises:
        DataError: If there are none, or not as many of one as of the other.
    """
    given, wanted = problem.spec.get("inputs"), problem.spec.get("outputs")
    if not isinstance(given, list) or not isinstance(wanted, list) or len(given) != len(wanted):
        raise DataError(f"{problem.id}: 'inputs' and 'outputs' must be lists of the same length")
    if not given:
        raise DataError(f"{problem.id}: no tests, so any program would pass")
    return given, wanted


def as_text(value: Any) -> str:
    """An input or output as text; a list of lines is joined."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(value)


def _first(solutions: object) -> object:
    if isinstance(solutions, str) and solutions.lstrip().startswith("["):
        try:
            solutions = json.loads(solutions)
        except ValueError:
            return solutions
    return solutions[0] if isinstance(solutions, list) and solutions else solutions


def _names(id_: str, tests: Sequence[str], setup: str, code: object) -> tuple[str, ...]:
    """Names in the tests that are the program's: those of the reference, or all unknown ones.

    Raises:
        DataError: If a test is no Python, or names nothing of a program.
    """
    whole = "\n".join([setup, *tests])
    read = extract.used(whole)
    if not read:
        raise DataError(f"{id_}: the tests are no Python, or use no name: {whole!r:.80}")
    if isinstance(code, str) and (own := extract.defined(code.replace("\r\n", "\n")) & read):
        return tuple(sorted(own - extract.imported(code)))
    return tuple(sorted(read - extract.defined(whole) - extract.KNOWN))
