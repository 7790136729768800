"""Whose the names are that a check function of HumanEval uses and that nobody there defines.

The official harness runs program and check in one namespace, so that a check may use what only the
response defines: its exceptions, helpers, constants. Such a name is looked up in the program. One
that nothing says is the program's, and that is given what the program returns, would judge the
program: it is nobody's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rlvr_code import source
from rlvr_code.names import LIBRARY, classes, import_lines

_OWN_WORD = re.compile(r"_*[A-Z]\w*|\w*_\w*|\w*\d\w*")
"""Words that are names rather than English."""


@dataclass(frozen=True, slots=True)
class CheckNames:
    """The names of a check function.

    Attributes:
        program: Those that the program answers.
        imports: Code for the tests' own process that imports what the check takes for granted.
        classes: Those of the program's names that stand for classes.
        nobody: Those that nobody may answer.
    """

    program: tuple[str, ...]
    imports: str
    classes: tuple[str, ...]
    nobody: tuple[str, ...]


def check_names(entry: str, prompt: str, test: str, reference: str) -> CheckNames:
    """Tell the names in a check function apart.

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
    free -= {entry}
    library = free & LIBRARY.keys()
    free -= library
    stubs = _stubs(prompt) & source.reached(test)
    if reference:
        known = source.defined(reference) | source.declared_global(reference)
        nobody = free - known - source.declared_global(test)
    else:
        judging = _given_results(entry, test)
        known = {name for name in free if _named_in(name, prompt)}
        nobody = free & judging - known
    free -= source.declared_global(test) - known  # those the check keeps for itself
    own = (free - nobody) | stubs | {entry}
    found = classes(test, prompt) | classes(test, reference)
    return CheckNames(
        tuple(sorted(own)),
        import_lines(library),
        tuple(sorted(own & found)),
        tuple(sorted(nobody)),
    )


def _stubs(prompt: str) -> set[str]:
    """Functions that a prompt only begins: the response has to define them."""
    tree = source.parse(prompt)
    body = [] if tree is None else tree.body
    return {
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and all(map(_says_nothing, node.body))
    }


def _says_nothing(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, ``...``, ``pass`` or ``raise NotImplementedError``."""
    if isinstance(node, ast.Raise):
        return node.exc is not None and "NotImplemented" in ast.unparse(node.exc)
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, ast.Pass)


def _named_in(name: str, prompt: str) -> bool:
    """Whether a prompt speaks of a name: as a word if it can be no English one, else as code."""
    word = re.escape(name)
    if _OWN_WORD.fullmatch(name):
        return re.search(rf"\b{word}\b", prompt) is not None
    return re.search(rf"[`'\"]{word}\b|\b{word}[`'\"(]", prompt) is not None


def _given_results(entry: str, test: str) -> set[str]:
    """Functions that are given the program's function, or what a call of it returns."""
    sources = {entry, *_candidates(test)}
    nodes = source.tree(test)
    grown = True
    while grown:
        found = {
            name
            for node in nodes
            for targets, value in _assignments(node)
            if _names(value) & sources
            for name in targets
        }
        grown = not found <= sources
        sources |= found
    return {
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and not node.func.id.lstrip("_")[:1].isupper()
        and any(_names(one) & sources for one in [*node.args, *(k.value for k in node.keywords)])
    }


def _candidates(test: str) -> set[str]:
    """Parameters of ``check``."""
    return {
        one.arg
        for node in source.tree(test)
        if isinstance(node, ast.FunctionDef) and node.name == "check"
        for one in node.args.args
    }


def _assignments(node: ast.AST) -> Iterator[tuple[set[str], ast.AST]]:
    """Names that a statement or expression binds, and what to."""
    if isinstance(node, ast.Assign):
        yield set().union(*map(_names, node.targets)), node.value
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
        yield _names(node.target), node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield _names(node.target), node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield _names(node.optional_vars), node.context_expr


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def said(names: Collection[str]) -> str:
    """Why a problem with such names of nobody is refused."""
    return (
        f"the check uses {', '.join(names)}, which neither it nor the prompt or a reference "
        "solution defines, so that no right program would pass"
    )
