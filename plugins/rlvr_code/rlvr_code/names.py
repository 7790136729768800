"""Decides whether a name in test code belongs to the tests, the library, or the program.

A name of the program is answered by the program. Any other that it could answer would be a way
around the tests: one that defines ``isclose`` would pass ``assert isclose(f(1), 0.5)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlvr_code import source
from rlvr_core.api import DataError

_FROM = {
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "contextlib": "redirect_stdout suppress",
    "copy": "deepcopy",
    "dataclasses": "dataclass",
    "datetime": "date datetime timedelta timezone",
    "decimal": "Decimal",
    "enum": "Enum IntEnum",
    "fractions": "Fraction",
    "functools": "partial",
    "io": "BytesIO StringIO",
    "itertools": "chain islice",
    "math": "inf isclose isinf isnan nan pi sqrt",
    "pathlib": "Path",
    "types": "SimpleNamespace",
    "typing": "Any Callable Dict Iterable Iterator List NamedTuple Optional Set Tuple Union",
    "unittest.mock": "MagicMock Mock patch",
}
LIBRARY = {
    name: f"from {module} import {name}" for module in _FROM for name in _FROM[module].split()
}
LIBRARY |= {name: f"import {name}" for name in ("numpy", "pandas", "pytest", "scipy", "torch")}
LIBRARY |= {"np": "import numpy as np", "pd": "import pandas as pd"}
"""Names that tests use without importing them, and that a function to be tested seldom has."""

_WORD = re.compile(rf"\b(?:{'|'.join(LIBRARY)})\b")
_TRIED = "try:\n    {}\nexcept ImportError:\n    pass\n"
"""A library that is not there is missed by the tests that use it, and by no others."""


class UnclearError(DataError):
    """Several names in tests could be the program's or the library's."""


@dataclass(frozen=True, slots=True)
class Names:
    """The owners of names.

    Attributes:
        program: Those that the program is to define.
        imports: Code for the tests' own process that imports what the tests take for granted.
        classes: Those of the program's names that stand for classes in the tests.
        nobody: Those that nobody may answer.
    """

    program: tuple[str, ...]
    imports: str
    classes: tuple[str, ...] = ()
    nobody: tuple[str, ...] = ()


def whose(id_: str, tests: Sequence[str], setup: str, code: object) -> Names:
    """Sort the names in tests by their owner.

    With a reference solution, the program's are those that it defines, and what it imports is
    imported for the tests too. Without one, they are all that nobody else has.

    Args:
        id_: Id of the problem, for messages.
        tests: One text each.
        setup: Code of the tests' own that comes before them.
        code: The reference solution; anything but text for none.

    Raises:
        DataError: If the tests are no Python, name nothing of a program, or use a name that is
            nobody's.
        UnclearError: If there is no reference, and every name could be the library's.
    """
    whole = "\n".join([setup, *tests])
    read = source.reached(whole)
    if not read:
        raise DataError(f"{id_}: the tests are no Python, or use no name: {whole!r:.80}")
    code = code.replace("\r\n", "\n") if isinstance(code, str) else ""
    free = read - source.defined(whole)
    # a module's name that is called is no module
    unknown = (free - source.KNOWN) | (free & source.called(whole)) - source.BUILTIN
    imported = _from_solution(whole)
    program = (source.defined(code) | source.declared_global(code)) & read - source.imported(code)
    lines: list[str] = []
    if imported:
        program |= imported
        lines += [LIBRARY[name] for name in sorted(unknown & LIBRARY.keys())]
        program |= unknown - LIBRARY.keys()
        return _names(program, _code(lines), whole, code)
    if program:
        lines += source.imports(code, free - program)
        unknown -= program | source.imported(code)
        stars = source.star_imports(code)
        if unknown and stars:  # what these bring is not known here
            return _names(program, _code([*stars, *lines]), whole, code)
        if unknown - LIBRARY.keys():
            names = ", ".join(sorted(unknown - LIBRARY.keys()))
            raise DataError(
                f"{id_}: the tests use {names}, which neither they nor the reference solution "
                "define, so that no right program would pass",
                remedy="define or import it in 'test_setup_code'",
            )
    else:
        program = unknown - LIBRARY.keys() or (unknown if len(unknown) == 1 else set())
        if not program and unknown:
            raise UnclearError(
                f"{id_}: which of {', '.join(sorted(unknown))} is the program's? All are names of "
                "Python's library",
                remedy="give a reference solution, in the field 'code', or import the others in "
                "'test_setup_code'",
            )
    if not program:
        raise DataError(
            f"{id_}: the tests use no name but Python's own, so any program would pass: "
            f"{whole!r:.80}",
            remedy="test a function of the program; one with the name of a built-in function has "
            "to be in a reference solution, in the field 'code'",
        )
    lines += [LIBRARY[name] for name in sorted(unknown - program)]
    return _names(program, _code(lines), whole, code)


def _from_solution(tests: str) -> set[str]:
    """Names that test code imports from the program, which is the module ``solution``."""
    names: set[str] = set()
    for node in source.tree(tests):
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names |= {node.attr} if node.value.id == "solution" else set()
    return names - {"*"}


def _names(program: set[str], imports: str, tests: str, code: str) -> Names:
    return Names(tuple(sorted(program)), imports, tuple(sorted(program & classes(tests, code))))


def classes(tests: str, code: str = "") -> set[str]:
    """Names that stand for classes: names in capitals, and classes of a reference solution."""
    nodes = source.tree(code)
    kinds = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    capitals = {name for name in source.used(tests) if name.lstrip("_")[:1].isupper()}
    return (capitals - functions) | kinds


def of_check(entry: str, prompt: str, test: str, reference: str) -> Names:
    """Sort the names in a check function of HumanEval by their owner.

    The official harness runs program and check in one namespace, so that a check may use what only
    the response defines. Those are the program's that the reference solution defines, or where
    there is none the prompt speaks of. One that is nobody's might judge the program.

    Args:
        entry: Name of the function or class that is checked.
        prompt: The code that the response continues or repeats; empty for none.
        test: The code with ``check``.
        reference: The reference solution, prompt included; empty for none.
    """
    prompt = prompt if source.parse(prompt) is not None else f"{prompt}    pass\n"
    whole = f"{prompt}\n{test}"
    free = source.reached(whole) - source.defined(whole)
    free = (free - source.KNOWN) | (free & source.called(test)) - source.BUILTIN
    library = free & LIBRARY.keys() - {entry}
    free -= library | {entry}
    if reference:
        program = free & (source.defined(reference) | source.declared_global(reference))
    else:
        program = {name for name in free if re.search(rf"\b{re.escape(name)}\b", prompt)}
    nobody = free - program - source.declared_global(test)
    program |= {entry} | _stubs(prompt) & source.reached(test)
    kinds = classes(test, f"{prompt}\n{reference}")
    imports = _code([LIBRARY[name] for name in sorted(library)])
    return Names(
        tuple(sorted(program)), imports, tuple(sorted(program & kinds)), tuple(sorted(nobody))
    )


def _stubs(prompt: str) -> set[str]:
    """Functions that a prompt only begins: the response has to define them."""
    return {
        node.name
        for node in getattr(source.parse(prompt), "body", [])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and all(map(_says_nothing, node.body))
    }


def _says_nothing(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, ``...``, ``pass`` or ``raise NotImplementedError``."""
    if isinstance(node, ast.Raise):
        return node.exc is not None and "NotImplemented" in ast.unparse(node.exc)
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, ast.Pass)


def unclear(tests: Sequence[str]) -> bool:
    """Whether ``whose`` cannot tell the names in tests apart without a reference solution."""
    if not any(map(_WORD.search, tests)):
        return False
    try:
        whose("", tests, "", None)
    except UnclearError:
        return True
    except DataError:
        pass  # the verifier tells of it
    return False


def _code(lines: Sequence[str]) -> str:
    return "".join(map(_TRIED.format, lines))
