"""Finds definitions, reads and imports in source text, within a budget of work."""

from __future__ import annotations

import ast
import builtins
import contextvars
import symtable
import sys
import warnings
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

BUILTIN = frozenset(vars(builtins)) | {"__name__", "__file__"}
"""Names that are Python's own."""
KNOWN = BUILTIN | sys.stdlib_module_names
"""Names that tests may use without defining them."""
WORK = 1_500_000
"""Characters that may be parsed for one response, all tries together: about a processor second."""
_EACH = 60
"""Cost of a parse in characters, besides those of its text."""
_TREES = 8
"""Syntax trees that are kept for the next question about the same text."""


class OverBudgetError(Exception):
    """Finding the program in a response takes more work than it may."""


class Budget:
    """Work that is left for one response, and the syntax trees of the texts parsed last."""

    def __init__(self) -> None:
        self._left = WORK
        self._trees: OrderedDict[str, ast.Module | Exception] = OrderedDict()

    def tree(self, code: str) -> ast.Module:
        """The syntax tree of a text.

        Raises:
            OverBudgetError: If the work done so far leaves no room for this.
        """
        if code not in self._trees:
            self._left -= len(code) + _EACH
            if self._left < 0:
                raise OverBudgetError(f"more than {WORK:,} characters to parse")
            try:
                self._trees[code] = _ast(code)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                self._trees[code] = error.with_traceback(None)
            if len(self._trees) > _TREES:
                self._trees.popitem(last=False)
        self._trees.move_to_end(code)
        parsed = self._trees[code]
        if isinstance(parsed, Exception):
            raise parsed
        return parsed


budget: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("budget", default=None)
"""Budget of the response that is being read."""


def defined(code: str) -> set[str]:
    """Names that a program's top level binds; none if it does not parse."""
    tree = parse(code)
    return set() if tree is None else {name for node in tree.body for name in binds(node)}


def tree(code: str) -> list[ast.AST]:
    """All parts of a program's syntax; none if it does not parse."""
    module = parse(code)
    return [] if module is None else list(ast.walk(module))


def classes_of(code: str, but: Collection[str] = ()) -> str:
    """The classes that a program's top level defines, and its imports, as source text.

    Args:
        code: The program.
        but: Names of classes that are not wanted.
    """
    module = parse(code)
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef)
    body = [] if module is None else [node for node in module.body if isinstance(node, kinds)]
    body = [node for node in body if getattr(node, "name", None) not in but]
    if not any(isinstance(node, ast.ClassDef) for node in body):
        return ""
    return "".join(f"{ast.unparse(node)}\n" for node in body)


def imported_modules(code: str) -> set[str]:
    """Modules that a program imports anywhere but within ``try``, by the first part of the name."""
    modules: set[str] = set()
    parsed = parse(code)
    waiting: list[ast.AST] = [] if parsed is None else [parsed]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.partition(".")[0])
        elif not isinstance(node, ast.Try):
            waiting += ast.iter_child_nodes(node)
    return modules


def used(code: str) -> set[str]:
    """Names that a program reads anywhere; none if it does not parse."""
    tree = parse(code)
    return set() if tree is None else reads(tree)


def called(code: str) -> set[str]:
    """Names that a program calls as they are; none if it does not parse."""
    tree = parse(code)
    calls = [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def imported(code: str) -> set[str]:
    """Names that a program's imports bind, at its top level."""
    return {name for node in _imports(code) for name in binds(node)}


def imports(code: str, wanted: Collection[str]) -> list[str]:
    """The imports at a program's top level that bind names wanted, and of each no others."""
    lines: list[str] = []
    for node in _imports(code):
        node.names = [alias for alias in node.names if _bound(alias) in wanted]
        if node.names:
            lines.append(ast.unparse(node))
    return lines


def star_imports(code: str) -> list[str]:
    """The imports at a program's top level that bind whatever is there."""
    return [ast.unparse(node) for node in _imports(code) if node.names[0].name == "*"]


def declared_global(code: str) -> set[str]:
    """Names that a program's functions bind for its top level."""
    tree = parse(code)
    nodes = () if tree is None else ast.walk(tree)
    return {name for node in nodes if isinstance(node, ast.Global) for name in node.names}


def reached(code: str) -> set[str]:
    """Names that a program reads and that no function of it has for itself.

    Empty if it does not parse.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            top = symtable.symtable(code, "tests", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        names |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (table is top or symbol.is_global())
        }
    return names


def _imports(code: str) -> list[ast.Import | ast.ImportFrom]:
    tree = parse(code)
    body = [] if tree is None else tree.body
    return [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]


def _bound(alias: ast.alias) -> str:
    return (alias.asname or alias.name).partition(".")[0]


def parse(code: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is no Python."""
    try:
        return parse_or_raise(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def parse_or_raise(code: str) -> ast.Module:
    """The syntax tree of a text.

    Raises:
        SyntaxError: If it is no Python; other exceptions too.
        OverBudgetError: If the response has been parsed enough.
    """
    limit = budget.get()
    return _ast(code) if limit is None else limit.tree(code)


def _ast(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that mean nothing
        return ast.parse(code)


def binds(node: ast.stmt) -> Iterator[str]:
    """Names that a statement at top level binds, in the order of the text."""
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name
            continue
        if isinstance(part, ast.Import | ast.ImportFrom):
            yield from map(_bound, part.names)
            continue
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and part.name:
            yield part.name
        elif isinstance(part, ast.MatchMapping) and part.rest:
            yield part.rest
        waiting += reversed(list(ast.iter_child_nodes(part)))


def reads(node: ast.AST) -> set[str]:
    """Names that some code reads."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def whole(texts: Sequence[str]) -> tuple[str, ...]:
    """Join texts that are Python only together, such as ``try:`` and its ``except``.

    Texts that are not Python together either come back as they were.
    """
    complete: list[str] = []
    begun = ""
    for text in texts:
        begun = f"{begun}\n{text}" if begun else text
        if parse(begun) is not None:
            complete.append(begun)
            begun = ""
    if not begun:
        return tuple(complete)
    together = "\n".join(texts)
    return (together,) if parse(together) is not None else tuple(texts)
