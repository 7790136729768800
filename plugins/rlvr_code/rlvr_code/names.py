"""Whose a name in test code is: the tests', the library's, or the program's.

A name of the program is answered by the program. Any other that it could answer would be a way
around the tests: one that defines ``isclose`` would pass ``assert isclose(f(1), 0.5)``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rlvr_code import source
from rlvr_code.inside.surroundings import PATCHABLE
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

_CAPITALISED = re.compile(r"_*[A-Z]\w*[a-z]\w*")
_ABOUT_CLASSES = {"isinstance", "issubclass", "raises", "assertRaises", "assertIsInstance"}
_WORD = re.compile(rf"\b(?:{'|'.join(LIBRARY)})\b")
_TRIED = "try:\n    {}\nexcept ImportError:\n    pass\n"
"""A library that is not there is missed by the tests that use it, and by no others."""


class UnclearError(DataError):
    """Several names in tests could be the program's or the library's."""


@dataclass(frozen=True, slots=True)
class Names:
    """Whose names are whose.

    Attributes:
        program: Those that the program is to define.
        imports: Code for the tests' own process that imports what the tests take for granted.
        classes: Those of the program's names that stand for classes in the tests.
    """

    program: tuple[str, ...]
    imports: str
    classes: tuple[str, ...] = ()


def whose(id_: str, tests: Sequence[str], setup: str, code: object) -> Names:
    """Tell the names in tests apart.

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
    asked = _from_solution(whole)
    own = (source.defined(code) | source.declared_global(code)) & read - source.imported(code)
    lines: list[str] = []
    if asked:
        own |= asked
        lines += [LIBRARY[name] for name in sorted(unknown & LIBRARY.keys())]
        own |= unknown - LIBRARY.keys()
        return _names(own, _code(lines), whole, code)
    if own:
        lines += source.imports(code, free - own)
        unknown -= own | source.imported(code)
        stars = source.star_imports(code)
        if unknown and stars:  # what these bring is not known here
            return _names(own, _code([*stars, *lines]), whole, code)
        if unknown - LIBRARY.keys():
            names = ", ".join(sorted(unknown - LIBRARY.keys()))
            raise DataError(
                f"{id_}: the tests use {names}, which neither they nor the reference solution "
                "define, so that no right program would pass",
                remedy="define or import it in 'test_setup_code'",
            )
    else:
        own = unknown - LIBRARY.keys() or (unknown if len(unknown) == 1 else set())
        if not own and unknown:
            raise UnclearError(
                f"{id_}: which of {', '.join(sorted(unknown))} is the program's? All are names of "
                "Python's library",
                remedy="give a reference solution, in the field 'code', or import the others in "
                "'test_setup_code'",
            )
    if not own:
        raise DataError(
            f"{id_}: the tests use no name but Python's own, so any program would pass: "
            f"{whole!r:.80}",
            remedy="test a function of the program; one with the name of a built-in function has "
            "to be in a reference solution, in the field 'code'",
        )
    lines += [LIBRARY[name] for name in sorted(unknown - own)]
    return _names(own, _code(lines), whole, code)


def _from_solution(tests: str) -> set[str]:
    """Names that test code imports from the program, which is the module ``solution``."""
    found: set[str] = set()
    for node in source.tree(tests):
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id == "solution" else set()
    return found - {"*"}


def _names(own: set[str], imports: str, tests: str, code: str) -> Names:
    return Names(tuple(sorted(own)), imports, tuple(sorted(own & classes(tests, code))))


def classes(tests: str, code: str = "") -> set[str]:
    """Names that test code uses as classes, or that a reference solution defines as such."""
    found = {node.name for node in source.tree(code) if isinstance(node, ast.ClassDef)}
    made = _assigned(tests)
    for node in source.tree(tests):
        used: list[ast.expr | None] = []
        if isinstance(node, ast.ExceptHandler):
            used = [node.type]
        elif isinstance(node, ast.ClassDef):
            used = list(node.bases)
        elif isinstance(node, ast.Raise):
            used = [node.exc.func if isinstance(node.exc, ast.Call) else node.exc]
        elif isinstance(node, ast.Call) and _ABOUT_CLASSES & {_last(node.func)}:
            first = _last(node.func) == "assertRaises"
            used = [*(node.args[:1] if first else node.args[-1:])]
        elif isinstance(node, ast.Attribute | ast.Compare):
            used = _makes(node, made)
        elif isinstance(node, ast.Name) and _CAPITALISED.fullmatch(node.id):
            used = [node]
        for one in used:
            parts = one.elts if isinstance(one, ast.Tuple) else [one]
            found |= {part.id for part in parts if isinstance(part, ast.Name)}
    return found


def _assigned(tests: str) -> dict[str, ast.expr]:
    """By name of a variable the call of a name in capitals that it stands for."""
    found: dict[str, ast.expr] = {}
    for node in source.tree(tests):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                if isinstance(one, ast.Name) and _constructs(value):
                    found[one.id] = value
    return found


def _constructs(node: ast.expr) -> bool:
    """Whether something is a call of a name in capitals, as of a class ``V`` or ``LRU``."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return named and _last(node.func)[:1].isupper()  # type: ignore[attr-defined]


def _makes(node: ast.Attribute | ast.Compare, made: dict[str, ast.expr]) -> list[ast.expr | None]:
    """Names that stand for classes, as a test shows.

    It takes an attribute of what such a call makes, or compares something else with it.
    """
    seen: list[ast.expr] = []
    if isinstance(node, ast.Attribute):
        value = node.value
        seen = [made.get(value.id, value) if isinstance(value, ast.Name) else value]
    elif not _constructs(node.left):
        seen = list(node.comparators)
    return [one.func for one in seen if isinstance(one, ast.Call) and _constructs(one)]


def _last(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def cannot_cross(tests: str, program: Collection[str]) -> str:
    """Why no right program would pass some test code; empty if nothing speaks against it.

    Args:
        tests: The code.
        program: Names of the program in it.
    """
    for node in source.tree(tests):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            if bases & set(program) and any(base.endswith("TestCase") for base in bases):
                return f"{node.name}, a TestCase, derives from a class of the program"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (why := _fixture(node)):
            return why
        if not isinstance(node, ast.Call):
            continue
        name = _last(node.func)
        if ast.unparse(node.func) == "open" or name in _FILES:
            return f"{ast.unparse(node.func)}: program and tests share no files"
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        place = first if name in ("patch", "setattr") and isinstance(first, str) else ""
        if "." in place and place not in PATCHABLE.split() and not place.startswith(_SEEN):
            return f"{place} is put in place in the tests' process, not in the program's"
    return ""


def _fixture(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Why a test or fixture cannot be given what it takes; empty if nothing speaks against it."""
    marks = [ast.unparse(one) for one in node.decorator_list]
    fixture = any("fixture" in one for one in marks)
    if not (fixture or node.name.startswith("test")):
        return ""
    for one in node.args.args:
        if one.arg in ("tmp_path", "tmpdir", "tmp_path_factory", "capfd"):
            return f"the fixture {one.arg}: program and tests share no files and descriptors"
        if one.arg in _PLUGINS:
            return f"the fixture {one.arg} is of a plugin of pytest, which is not in the sandbox"
    return ""


_PLUGINS = {
    "benchmark",
    "capteesys",
    "event_loop",
    "freezer",
    "httpserver",
    "mocker",
    "pytester",
} | {*("capfdbinary", "capsysbinary", "doctest_namespace", "pytestconfig", "recwarn", "testdir")}
_FILES = {"write_text", "read_text", "write_bytes", "read_bytes", "makedirs", "mkdir"} | {
    *("NamedTemporaryFile", "TemporaryDirectory", "mkdtemp", "mkstemp")
}
_SEEN = ("solution.", "builtins.input", "sys.std", "os.environ")


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


def import_lines(names: Collection[str]) -> str:
    """Code that imports names of the library, as far as they are there."""
    return _code([LIBRARY[name] for name in sorted(names)])


def _code(lines: Sequence[str]) -> str:
    return "".join(map(_TRIED.format, lines))
