"""The verifiers: programs against assertions, check functions, outputs and returned values."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_code import extract, languages, source
from rlvr_code.inside.fixtures import FIXTURES
from rlvr_code.inside.suite import defined, missing_fixtures
from rlvr_code.inside.tester import RUN
from rlvr_code.judge.asserts import Tests, judge, judge_beside
from rlvr_code.judge.cases import Case, judge_calls, judge_output, size
from rlvr_code.judge.compare import as_text, nothing_expected, same_output, same_value
from rlvr_code.judge.outcome import Outcome
from rlvr_code.names import Names, of_check, whose
from rlvr_code.options import JudgeConfig, ProgramVerifier, Sandboxes
from rlvr_core.api import DataError, Problem

PRELUDE = (
    "from typing import *; import bisect, collections, copy, functools, heapq, itertools, math, "
    "random, re, string, sys; from collections import *; from functools import *; "
    "from itertools import *; from heapq import *; from bisect import *; from math import *\n"
)


SHARED = re.compile(
    r"\b(patch|mock|monkeypatch|capsys|caplog|redirect_\w+|catch_warnings|assertLogs|stdin|environ|"
    r"open|seed|tmp_path|tempfile)\b"
)
"""Things other than values that tests share with the program: then they run in its process."""


class Asserted(ProgramVerifier[Tests]):
    """Base of the verifiers of test code.

    Tests run apart from the program, and only data crosses. Where that cannot be done, they run in
    the program's process; the reference solution says so, or without one the tests themselves:
    never the program that is judged.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._objects: dict[int, bool] = {}

    def gold(self, problem: Problem) -> str | None:
        """The reference solution, where there is one."""
        return fenced(problem.spec.get("code"))

    def extract(self, problem: Problem, tests: Tests, text: str) -> str:
        """The program, with every name that the tests use."""
        return extract.program(text, wanted=tests.program, **self.how)

    def judge(self, problem: Problem, tests: Tests, code: str) -> Outcome:
        """Run the tests apart from the program, or where they need objects, in its process."""
        outcome = self._judge_apart(tests, code)
        if outcome.all_passed or not self._need_objects(problem, tests, outcome):
            return outcome
        return judge_beside(self.sandboxes.programs, code, tests, self.config.budget())

    def _judge_apart(self, tests: Tests, code: str) -> Outcome:
        boxes = self.sandboxes
        return judge(boxes.programs, boxes.testers, code, tests, self.config.budget())

    def _need_objects(self, problem: Problem, tests: Tests, outcome: Outcome) -> bool:
        """Whether a right program passes in the tests' process only; tried once for each."""
        gold = self.gold(problem)
        if gold is None:
            shares = any(map(SHARED.search, (tests.late, *tests.tests)))
            return outcome.needs_objects or shares
        key = hash((tests, gold))
        if key not in self._objects:
            code = self.extract(problem, tests, gold)
            self._objects[key] = (
                not self._judge_apart(tests, code).all_passed
                and judge_beside(
                    self.sandboxes.programs, code, tests, self.config.budget()
                ).all_passed
            )
        return self._objects[key]


class Mbpp(Asserted):
    """Right when every assertion of ``spec.test_list`` holds.

    ``spec.test_setup_code`` and ``spec.test_imports`` run before them, with the tests and not with
    the program. ``spec.code``, a reference solution, tells which names are the program's, and what
    it imports is there for the tests too.
    """

    class Config(JudgeConfig):
        """Options of the verifier of assertions."""

        challenge: bool = False
        """Also run the assertions of ``spec.challenge_test_list``."""

    config: Config

    def prepare(self, problem: Problem) -> Tests:
        """The tests; there must be some, and they must be Python."""
        tests = source.whole(texts(problem, "test_list"))
        if self.config.challenge:
            tests += source.whole(texts(problem, "challenge_test_list"))
        if not tests:
            raise DataError(f"{problem.id}: no tests in 'test_list', so any program would pass")
        setup = [*texts(problem, "test_imports"), str(problem.spec.get("test_setup_code") or "")]
        late = "\n".join(setup).replace("\r\n", "\n")
        names = whose(problem.id, tests, late, problem.spec.get("code"))
        return Tests(
            tests,
            setup=names.imports,
            late=late,
            program=names.program,
            classes=names.classes,
            given=source.classes_of(late),
        )

    def test_code(self, problem: Problem) -> Sequence[str]:
        """Setup and tests."""
        tests = self.prepare(problem)
        return (tests.late, *tests.tests)


class HumanEval(Asserted):
    """Right when ``check`` of ``spec.test`` accepts the function named ``spec.entry_point``.

    The response continues ``spec.prompt``, or repeats it; an empty one asks for a whole program.
    What the prompt defines besides that function is defined for the tests too, from the prompt and
    not from the response.
    """

    class Config(JudgeConfig):
        """Options of the verifier of check functions."""

        case_seconds: Annotated[float, Field(gt=0)] = 15.0
        """Processor seconds that the check may take, all its calls together."""

    config: Config

    def gold(self, problem: Problem) -> str | None:
        """The canonical solution, where there is one."""
        return fenced(problem.spec.get("canonical_solution"), str(problem.spec["prompt"]))

    def prepare(self, problem: Problem) -> Tests:
        """The check; prompt, test and entry point must be there."""
        test, name = text(problem, "test"), text(problem, "entry_point")
        prompt = text(problem, "prompt", blank=True)
        if "check" not in source.defined(test):
            raise DataError(f"{problem.id}: 'test' defines no function 'check'")
        names = _check_names(problem)
        if not prompt.strip():  # the program is all the response's
            setup = ""
        else:
            setup = prompt if name in source.defined(prompt) else f"{prompt}    pass\n"
            if name not in source.defined(setup):
                raise DataError(f"{problem.id}: 'prompt' does not begin the function {name!r}")
        return Tests(
            (f"check({name})",),
            setup=f"{setup}\n{names.imports}",
            late=test,
            program=names.program,
            classes=names.classes,
            given=source.classes_of(setup, but=names.program),
        )

    def check(self, problem: Problem) -> None:
        """Refuse what cannot be judged, such as a check that uses unknown names."""
        super().check(problem)
        if nobody := _check_names(problem).nobody:
            raise DataError(
                f"{problem.id}: the check uses {', '.join(nobody)}, which neither it nor the "
                "prompt or a reference solution defines, so that no right program would pass",
                remedy="define them in 'test', or give a reference in 'canonical_solution'",
            )

    def test_code(self, problem: Problem) -> Sequence[str]:
        """The check."""
        return (text(problem, "test"),)

    def extract(self, problem: Problem, tests: Tests, text: str) -> str:
        """The program, perhaps a continuation of the prompt."""
        prompt = str(problem.spec["prompt"])
        others = {name for name in tests.program if re.search(rf"\b{re.escape(name)}\b", text)}
        wanted = {str(problem.spec["entry_point"]), *others}
        return extract.program(text, wanted=sorted(wanted), prompt=prompt, **self.how)


def _check_names(problem: Problem) -> Names:
    """Return the owners of a check's names."""
    spec = problem.spec
    prompt, reference = str(spec.get("prompt") or ""), spec.get("canonical_solution")
    known = f"{prompt}{reference}" if isinstance(reference, str) and reference else ""
    return of_check(str(spec["entry_point"]), prompt, str(spec["test"]), known)


class Pytest(Asserted):
    """Right when every test of ``spec.tests`` passes: the text of a file of pytest or unittest.

    The tests import the program as the module ``solution``, or use its names as they are. Each
    function ``test_...`` and each class of tests counts as one.
    """

    class Config(JudgeConfig):
        """Options of the verifier of files of tests."""

    config: Config

    def prepare(self, problem: Problem) -> Tests:
        """The tests; there must be some, and they must be Python."""
        late = text(problem, "tests").replace("\r\n", "\n")
        names = whose(problem.id, [late], "", problem.spec.get("code"))
        tree = ast.parse(late)
        if missing := missing_fixtures(tree):
            raise DataError(
                f"{problem.id}: the tests ask for {', '.join(missing)}, which the sandbox's pytest "
                "does not have",
                remedy=f"it has {', '.join(FIXTURES)} and the tests' own fixtures without params",
            )
        tests = defined(tree)
        if not tests:
            raise DataError(
                f"{problem.id}: no tests in 'tests', so any program would pass",
                remedy="define functions test_... or classes of unittest.TestCase",
            )
        return Tests(
            tuple(f"{RUN}({name!r})" for name in tests),
            setup=names.imports,
            late=late,
            program=names.program,
            classes=names.classes,
        )

    def test_code(self, problem: Problem) -> Sequence[str]:
        """The file of tests."""
        return (text(problem, "tests"),)


class CasesConfig(JudgeConfig):
    """Options of verifiers with inputs and expected answers."""

    tolerance: Annotated[float, Field(ge=0)] = 1e-6
    """Allowed difference of decimal numbers; 0 compares them as they are."""


class Stdin(ProgramVerifier[list[Case]]):
    """Right when the program turns each input into the expected output.

    Inputs and outputs are texts in ``spec.inputs`` and ``spec.outputs``; outputs are compared word
    by word, white space is free.
    """

    class Config(CasesConfig):
        """Options of the verifier of outputs."""

        language: str = "python"
        """Language of the programs: ``python``, ``cpp``, ``javascript``, or
        ``package.module:NAME`` of an ``rlvr_code.languages.Language``. Others than Python need a
        sandbox with process namespaces."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.language = None
        if config.language != "python":
            self.language = languages.find(config.language)
            self.sandboxes = Sandboxes(config, self.language.paths())

    def gold(self, problem: Problem) -> str | None:
        """The first reference solution, where there is one."""
        return fenced(_first(problem.spec.get("solutions")))

    def prepare(self, problem: Problem) -> list[Case]:
        """The cases; there must be some, and an output for each input."""
        if self.language is not None:
            self.sandboxes.programs.check(languages.CHILDREN)
        tolerance = self.config.tolerance
        given, wanted = pairs(problem, calls=False)
        return [
            Case(
                as_text(stdin),
                functools.partial(same_output, other, tolerance=tolerance),
                len(other),
            )
            for stdin, other in zip(given, map(as_text, wanted), strict=True)
        ]

    def extract(self, problem: Problem, cases: list[Case], text: str) -> str:
        """The whole program."""
        if self.language is not None:
            return self.language.program(text)
        return extract.program(text, **self.how)

    def judge(self, problem: Problem, cases: list[Case], code: str) -> Outcome:
        """Run the program on each input."""
        if self.language is not None:
            box, budget = self.sandboxes.programs, self.config.budget()
            return languages.judge(box, self.language, code, cases, budget)
        return judge_output(self.sandboxes.programs, code, cases, self.config.budget())


class Call(ProgramVerifier[list[Case]]):
    """Right when the function named ``spec.fn_name`` returns what is expected.

    ``spec.inputs`` has a list of arguments for each call, ``spec.outputs`` the value for each. The
    function may also be a method of a class ``Solution``.
    """

    class Config(CasesConfig):
        """Options of the verifier of calls."""

        order: Literal["strict", "any"] = "strict"
        """``any``: lists may differ in order."""

    config: Config

    def gold(self, problem: Problem) -> str | None:
        """The first reference solution, where there is one."""
        return fenced(_first(problem.spec.get("solutions")))

    def prepare(self, problem: Problem) -> list[Case]:
        """The cases; there must be some, a function, and a value for each call."""
        text(problem, "fn_name")
        given, wanted = pairs(problem, calls=True)
        right = self._wrapped if problem.spec.get("wrapped") else self._right
        bad = next((arguments for arguments in given if not isinstance(arguments, list)), None)
        if bad is not None:
            raise DataError(f"{problem.id}: an input must be a list of arguments, not {bad!r:.60}")
        return [
            Case(arguments, functools.partial(right, other), size(other))
            for arguments, other in zip(given, wanted, strict=True)
        ]

    def extract(self, problem: Problem, cases: list[Case], text: str) -> str:
        """The program with the function, or the class that has it."""
        name = str(problem.spec["fn_name"])
        code = extract.program(text, wanted=(name,), **self.how)
        if name not in source.defined(code):
            code = extract.program(text, wanted=("Solution",), **self.how)
        return code

    def judge(self, problem: Problem, cases: list[Case], code: str) -> Outcome:
        """Make the calls."""
        name, budget = str(problem.spec["fn_name"]), self.config.budget()
        return judge_calls(self.sandboxes.programs, _with_prelude(code), name, cases, budget)

    def _right(self, expected: Any, value: Any) -> bool:
        any_order = self.config.order == "any"
        return same_value(expected, value, self.config.tolerance, any_order=any_order)

    def _wrapped(self, expected: Any, value: Any) -> bool:
        """APPS puts some expected values into a list of their own, and does not say which."""
        return self._right(expected, value) or self._right(expected[0], value)


def _with_prelude(code: str) -> str:
    """A program after the imports that problem sets of this kind take for granted.

    A program with imports from ``__future__``, which must come first, does without them.
    """
    return code if "__future__" in code else PRELUDE + code


def fenced(code: object, prompt: str = "") -> str | None:
    """A reference program as a response; None if there is none."""
    return f"```python\n{prompt}{code}\n```" if isinstance(code, str) and code.strip() else None


def text(problem: Problem, key: str, *, blank: bool = False) -> str:
    """A field of the spec that must be text; ``blank`` says whether that may be empty.

    Raises:
        DataError: If it is not.
    """
    value = problem.spec.get(key)
    if not isinstance(value, str) or not (blank or value.strip()):
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
    if not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{problem.id}: field {key!r} must be a list of texts")
    if isinstance(value, str):
        raise DataError(f"{problem.id}: field {key!r} must be a list of texts, not one text")
    return tuple(item.replace("\r\n", "\n") for item in value if item.strip())


def pairs(problem: Problem, *, calls: bool) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs.

    Args:
        problem: Has them in its spec.
        calls: Whether outputs are values that a function returns.

    Raises:
        DataError: If there are none, not as many of one as of the other, or nothing is expected.
    """
    given, wanted = problem.spec.get("inputs"), problem.spec.get("outputs")
    if not isinstance(given, list) or not isinstance(wanted, list) or len(given) != len(wanted):
        raise DataError(f"{problem.id}: 'inputs' and 'outputs' must be lists of the same length")
    if not given:
        raise DataError(f"{problem.id}: no tests, so any program would pass")
    if nothing_expected(problem.spec, calls=calls):
        kind, what = ("null", "function") if calls else ("blank", "program")
        raise DataError(
            f"{problem.id}: every expected output is {kind}, so a {what} without effect would pass",
            remedy="give it a test with an output, or leave the problem out",
        )
    return given, wanted


def _first(solutions: object) -> object:
    if isinstance(solutions, str) and solutions.lstrip().startswith("["):
        try:
            solutions = json.loads(solutions)
        except ValueError:
            return solutions
    return solutions[0] if isinstance(solutions, list) and solutions else solutions
