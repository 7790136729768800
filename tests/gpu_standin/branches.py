"""Every place of the code that speaks of CUDA, and which of them were reached.

A place is an expression that mentions CUDA: ``torch.cuda`` and what it calls, NCCL, pinned memory,
a device's type, the words ``cuda`` and ``nccl`` in a string that is no prose; or a name that its
function gave such a value. Where it decides (``if``, ``while``, ``and``, ``assert``, ...) both
outcomes are places of their own. What a function makes of it elsewhere is not followed.

``watch`` compiles modules with a note at each place, before they are imported.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("rlvr_core", *sorted(one.name for one in (ROOT / "plugins").glob("rlvr_*")))
REACHED: set[str] = set()
"""Places that were come by since ``watch``; ``REACHED.clear()`` begins anew."""

_WORD = re.compile(r"cuda|nccl|pynvml|pin_memory|record_stream|non_blocking", re.IGNORECASE)
_MAY_SPEAK = re.compile(r"cuda|nccl|pynvml|pin_memory|record_stream|non_blocking|\.type\b")
_NOTE = "__cuda_place__"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def files() -> Iterator[Path]:
    """Modules of the core and of the plugins in this repository."""
    yield from sorted((ROOT / "rlvr_core").rglob("*.py"))
    for name in PACKAGES[1:]:
        yield from sorted((ROOT / "plugins" / name / name).rglob("*.py"))


def places() -> dict[str, int]:
    """Every place, with its line."""
    found: dict[str, int] = {}
    for path in files():
        text = path.read_text(encoding="utf-8")
        if _MAY_SPEAK.search(text):
            found |= _Notes(path).of(ast.parse(text))
    return found


def watch() -> None:
    """Note what is reached in modules that are imported from now on."""
    sys.meta_path.insert(0, _Finder())
    import builtins

    setattr(builtins, _NOTE, _note)


def _note(place: str, value: Any = None, *, decides: bool = False) -> Any:
    REACHED.add(f"{place} | {'true' if value else 'false'}" if decides else place)
    return value


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the usual one finds, for another loader."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """See the base class."""
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with notes in it, and keeps no compiled file."""

    def get_code(self, fullname: str) -> CodeType | None:
        """See the base class."""
        text = self.get_data(self.path)
        if not _MAY_SPEAK.search(text.decode()):
            return super().get_code(fullname)
        tree = ast.parse(text)
        _Notes(Path(self.path)).of(tree)
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Notes(ast.NodeTransformer):
    """Lists the places of a module, and puts a note at each into its tree."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve().relative_to(ROOT)
        self._within: list[str] = []
        self._flags: list[set[str]] = [set()]
        self._found: dict[str, int] = {}

    def of(self, tree: ast.Module) -> dict[str, int]:
        """Places of the tree, which has notes afterwards."""
        self._flags = [set(_words_of(tree))]
        self.visit(tree)
        return self._found

    # -- where we are ------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Its name is a part of where its places are."""
        self._within.append(node.name)
        node.body = self._statements(node.body)
        self._within.pop()
        return node

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        """Names of a function that stand for a device are its own."""
        self._within.append(node.name)
        self._flags.append(self._flags[-1] | set(_flags_of(node)))
        node.body = self._statements(node.body)
        self._flags.pop()
        self._within.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self.visit(one) for one in body]

    # -- what decides ------------------------------------------------------------------------------

    def visit_If(self, node: Any) -> ast.AST:
        """A test is a place with two outcomes."""
        node.test = self._decided(node.test)
        return self.generic_visit(node)

    visit_While = visit_IfExp = visit_Assert = visit_If

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """So is each condition of a comprehension."""
        node.ifs = [self._decided(one) for one in node.ifs]
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """And each part of ``and`` and ``or`` behind which something may not be asked."""
        *parts, last = node.values
        node.values = [*(self._decided(one) for one in parts), last]
        return self.generic_visit(node)

    def _decided(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.BoolOp) or not self._speaks(test):
            if isinstance(test, ast.BoolOp):  # its last part decides as well
                test.values[-1] = self._decided(test.values[-1])
            return test
        place = self._place(test)
        line = self._found.pop(place, test.lineno)
        self._found |= {f"{place} | true": line, f"{place} | false": line}
        return _noted(place, test, decides=True)

    # -- what does ---------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The innermost call that speaks of CUDA itself, and not by what it is given."""
        if _is_note(node):
            return node
        named = any(_WORD.search(one.arg or "") for one in node.keywords)
        given = [node.func, *node.args, *(one.value for one in node.keywords)]
        mine = named or any(map(self._speaks_itself, given))
        place = self._place(node)
        self.generic_visit(node)
        return self._done(place, node) if mine and self._within else node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """A value that is no call: ``return device.type == "cuda"``."""
        return self._bare(node)

    visit_Assign = visit_AnnAssign = visit_AugAssign = visit_Return

    def _bare(self, node: Any) -> ast.AST:
        value = node.value
        mine = value is not None and bool(self._within) and self._speaks_itself(value)
        place = self._place(value) if mine else ""
        self.generic_visit(node)
        if mine:
            node.value = self._done(place, node.value)
        return node

    def _done(self, place: str, node: Any) -> ast.expr:
        self._found.setdefault(place, node.lineno)
        return _noted(place, node, decides=False)

    # -- mentions ----------------------------------------------------------------------------------

    def _mentions(self, node: ast.AST) -> bool:
        return _mentions(node) or (isinstance(node, ast.Name) and node.id in self._flags[-1])

    def _speaks(self, node: ast.AST) -> bool:
        return any(map(self._mentions, ast.walk(node)))

    def _speaks_itself(self, node: ast.AST) -> bool:
        """Whether it speaks of CUDA outside of calls in it, which are places themselves."""
        if isinstance(node, ast.Call | ast.Lambda):
            return False
        if isinstance(node, ast.IfExp):  # its test is a place
            return self._speaks_itself(node.body) or self._speaks_itself(node.orelse)
        return self._mentions(node) or any(map(self._speaks_itself, ast.iter_child_nodes(node)))

    def _place(self, node: ast.expr) -> str:
        code = " ".join(ast.unparse(node).split())
        code = code if len(code) <= 90 else f"{code[:87]}..."
        return f"{self._path} | {'.'.join(self._within) or 'module'} | {code}"


def _mentions(node: ast.AST) -> bool:
    """Whether this node alone speaks of CUDA."""
    match node:
        case ast.Constant(value=str(text)):
            return bool(_WORD.search(text)) and " " not in text.strip()
        case ast.Name(id=name):
            return bool(_WORD.search(name))
        case ast.Attribute(attr="type", value=ast.Attribute(attr="device")):
            return True
        case ast.Attribute(attr="type", value=ast.Name(id=name)):
            return "device" in name
        case ast.Attribute(attr=name):
            return bool(_WORD.search(name))
        case ast.keyword(arg=str(name)):
            return bool(_WORD.search(name))
    return False


def _words_of(tree: ast.Module) -> Iterator[str]:
    """Names of a module for words that speak of CUDA."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() as value):
                if _mentions(value):
                    yield name


def _flags_of(function: ast.AST) -> Iterator[str]:
    """Names to which a function gives a truth about a device."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                truth = isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp)
                asked = isinstance(value, ast.Call) and "is_available" in ast.unparse(value)
                if (truth or asked) and any(map(_mentions, ast.walk(value))):
                    yield name


def _noted(place: str, node: Any, *, decides: bool) -> ast.expr:
    words = [ast.Constant(place), node]
    more = [ast.keyword("decides", ast.Constant(value=True))] if decides else []
    return ast.copy_location(ast.Call(ast.Name(_NOTE, ast.Load()), words, more), node)


def _is_note(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _NOTE


if __name__ == "__main__":
    for one, at in places().items():
        sys.stdout.write(f"{one}  (line {at})\n")
