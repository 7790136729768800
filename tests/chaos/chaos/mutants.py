"""Faults that nobody thought of: small changes of the code of a step, made by rule.

A mutant is one function with one operator, constant, condition or argument changed, or a statement
left out. It takes the place of the function in a run of a shape that comes by the changed line.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import os
import random
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rlvr_core
from chaos.registry import Fault, Patch

ROOT = Path(rlvr_core.__file__).parent
ROOMS = (
    *("advantages", "losses", "optimizers", "samplers", "schedules", "lora", "packing"),
    *("environments", "distillation", "demonstrations", "replay", "verifiers"),
)
PARTS = ("step", "algorithm", "rollout", "engines", "data", *(f"builtin/{room}" for room in ROOMS))
"""What a step is made of; guards are not among it."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Code that is changed, and the runs that come by it.

    Attributes:
        parts: Files and folders, relative to the package; guards are not among them.
        backend: The engine of the runs.
        within: Files and folders of the functions that a changed line has to be called from, unless
            only the second part of a resumed run comes by it; any line if empty.
    """

    parts: tuple[str, ...]
    backend: str = "in process"
    within: tuple[str, ...] = ()

    @property
    def resumed(self) -> bool:
        """Whether its runs are stopped halfway, and resumed."""
        return bool(self.within)


_AHEAD = ("builtin/asynchronous", "workers")
GROUNDS: Mapping[str, Ground] = {
    "step": Ground(PARTS),
    "child": Ground(_AHEAD, backend="child"),
    "resume": Ground(
        (*PARTS, *_AHEAD, "run", "record", "verify", "parallel", "builtin/resumption"),
        within=("run/checkpointing.py", "builtin/resumption"),
    ),
}

SWAPS: Mapping[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
DROPPED = {
    *("clamp", "clamp_min", "clamp_max", "abs", "detach", "float", "exp", "log", "sqrt", "square"),
    *("sum", "mean", "sort", "flip", "to"),
}
"""Methods that a mutant leaves out: ``x.clamp(0)`` becomes ``x``."""

Lines = Mapping[str, Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed function.

    Attributes:
        path: File, relative to the package.
        function: Qualified name of the function.
        line: Changed line.
        was: The statement there.
        now: What it has become.
        tree: The changed function.
    """

    path: str
    function: str
    line: int
    was: str
    now: str
    tree: ast.FunctionDef

    @property
    def name(self) -> str:
        """A name that no other has."""
        return f"{self.path}:{self.line} {self.function} {zlib.crc32(self.now.encode()):08x}"

    def fault(self, shape: str) -> Fault:
        """Return the fault that puts it in the place of the function, in a shape."""
        return Fault(self.name.replace("/", "|"), self.now, "loss", (), self._install, shape=shape)

    def _install(self, patch: Patch) -> None:
        owner: Any = importlib.import_module(
            "rlvr_core." + self.path.removesuffix(".py").replace("/", ".")
        )
        *parents, name = self.function.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        function = _plain(owner.__dict__[name])
        function.__code__ = _compiled(self.tree, function.__code__.co_freevars)
        patch.hit()


def _plain(found: Any) -> Any:
    """Return the function behind its decorators."""
    for _ in range(8):
        for inner in ("__func__", "fget", "func", "__wrapped__"):
            if not hasattr(found, "__code__") or inner == "__wrapped__":
                found = getattr(found, inner, None) or found
    return found


def _compiled(tree: ast.FunctionDef, free: Sequence[str]) -> Any:
    """Compile a function, with the same names from around it (``__class__`` of ``super()``)."""
    function = copy.deepcopy(tree)
    function.decorator_list = []
    if free:  # a name whose use is left out must stay one from around it
        kept = "\n".join(["if 0:", *(f" {name}" for name in free)])
        function.body.insert(0, ast.parse(kept).body[0])
    around = ast.parse("\n".join(["def around():", *(f" {name} = None" for name in free), " pass"]))
    around.body[0].body.append(function)  # type: ignore[attr-defined]
    around.body.insert(0, ast.parse("from __future__ import annotations").body[0])
    pending = [compile(ast.fix_missing_locations(around), "<mutant>", "exec")]
    while pending:
        inner = [one for one in pending.pop().co_consts if hasattr(one, "co_name")]
        for one in inner:
            if one.co_name == function.name:
                return one
        pending += inner
    raise AssertionError(function.name)


def targets(ground: Ground) -> list[Path]:
    """Return the files that are changed."""
    return [path for part in ground.parts for path in sorted((ROOT / part).rglob("*.py"))]


def mutants(
    covered: Lines, seed: int, each: int = 3, ground: Ground = GROUNDS["step"]
) -> list[tuple[Mutant, str]]:
    """Make mutants, in an order that looks drawn, each with a shape that comes by its line.

    Args:
        covered: Lines that each shape comes by (``cover``).
        seed: Chooses among all.
        ground: What is changed.
        each: Mutants of a function, at most.
    """
    rng = random.Random(seed)
    shapes = defaultdict(list)
    for shape, lines in covered.items():
        for path, line in lines:
            shapes[path, line].append(shape)
    found = []
    for file in targets(ground):
        path = str(file.relative_to(ROOT))
        for name, function in _functions(ast.parse(file.read_text())):
            places = [one for one in _sites(function) if (path, one[1]) in shapes]
            rng.shuffle(places)
            for place, line in places[:each]:
                made = _mutated(path, name, function, place, line, rng)
                found.append((made, rng.choice(shapes[path, line])))
    rng.shuffle(found)
    return found


def _functions(
    tree: ast.Module | ast.ClassDef, within: str = ""
) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{within}{node.name}.")


def _sites(function: ast.FunctionDef) -> list[tuple[int, int]]:
    """Return what can be changed: places among the nodes of a function, with their lines."""
    # what only refuses bad input, words of messages and defaults are no part of a healthy step
    left_out = {id(one) for one in ast.walk(function.args)}
    for node in ast.walk(function):
        refuses = isinstance(node, ast.If) and all(isinstance(x, ast.Raise) for x in node.body)
        if refuses or isinstance(node, ast.Raise | ast.JoinedStr):
            left_out |= {id(one) for one in ast.walk(node)}
    return [
        (place, node.test.lineno if isinstance(node, ast.If | ast.IfExp | ast.While) else line)
        for place, node in enumerate(ast.walk(function))
        if (line := getattr(node, "lineno", 0)) and id(node) not in left_out and _able(node)
    ]


def _able(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(left=ast.Constant(value=str())):
            return False
        case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op):
            return type(op) in SWAPS
        case ast.Compare(ops=[op]):
            return type(op) in SWAPS
        case ast.Constant(value=value):
            return type(value) in (int, float, bool)
        case ast.If() | ast.IfExp() | ast.While() | ast.UnaryOp(op=ast.USub() | ast.Not()):
            return True
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in DROPPED:
            return True
        case ast.Call(func=ast.Name(id="min" | "max")):
            return True
        case ast.Call(keywords=keywords):
            return any(one.arg for one in keywords)
    return False


def _mutated(
    path: str, name: str, function: ast.FunctionDef, place: int, line: int, rng: random.Random
) -> Mutant:
    tree = copy.deepcopy(function)
    node: Any = list(ast.walk(tree))[place]
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            node.op = SWAPS[type(node.op)]()
        case ast.Compare():
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int()):
            node.value += 1
        case ast.Constant():
            node.value = 2 * node.value or 1.0
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.UnaryOp():
            _replace(tree, node, node.operand)
        case ast.Expr() | ast.Assign():
            _replace(tree, node, ast.Pass())
        case ast.Call(func=ast.Attribute(attr=method)) if method in DROPPED:
            _replace(tree, node, node.func.value)
        case ast.Call(func=ast.Name(id="min" | "max")):
            node.func.id = {"min": "max", "max": "min"}[node.func.id]
        case ast.Call():
            node.keywords.remove(rng.choice([one for one in node.keywords if one.arg]))
    before, after = ast.unparse(function).splitlines(), ast.unparse(tree).splitlines()
    pairs = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
    was, now = pairs[0] if pairs else ("", "")
    return Mutant(path, name, line, was.strip(), now.strip(), ast.fix_missing_locations(tree))


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if one is old else one for one in value]


def cover(shape: str, ground: Ground) -> Fault:
    """Return a fault that breaks nothing, and leaves the lines that a run comes by in ``lines``."""

    def install(patch: Patch) -> None:
        from chaos import process

        names = {str(path): str(path.relative_to(ROOT)) for path in targets(ground)}
        callers = {one for one, name in names.items() if name.startswith(ground.within)}
        kept, commands = (patch.folder / "lines").resolve(), [0]
        seen: set[tuple[str, int]] = set()
        chosen: set[tuple[str, int]] = set()
        command, run = process.command, os.getpid()

        def note(place: tuple[str, int], *, called: bool) -> None:
            first_seen = place not in seen
            seen.add(place)
            new = commands[0] > 1 and first_seen and os.getpid() == run
            wanted = not ground.within or called or new
            if wanted and place not in chosen:
                chosen.add(place)
                with kept.open("a") as file:  # each process adds its own
                    file.write(json.dumps(place) + "\n")

        def begin(frame: Any, event: str, given: Any) -> Any:
            path = frame.f_code.co_filename
            if path not in names:
                return None
            called = _called_from(frame, callers)

            def line(frame: Any, event: str, given: Any) -> Any:
                if event == "line":
                    note((names[path], frame.f_lineno), called=called)
                return line

            return line

        def counted(*words: str) -> int:
            commands[0] += 1
            return command(*words)

        process.command = counted
        threading.settrace(begin)
        sys.settrace(begin)
        patch.hit()

    return Fault(f"lines of {shape}", "", "loss", (), install, shape=shape)


def _called_from(frame: Any, paths: Container[str]) -> bool:
    while frame is not None:
        if frame.f_code.co_filename in paths:
            return True
        frame = frame.f_back
    return False


def few(covered: Lines, least: int = 3) -> Lines:
    """Return few shapes that together come by nearly all lines, by greedy choice."""
    left = {tuple(line) for lines in covered.values() for line in lines}
    chosen: dict[str, Sequence[tuple[str, int]]] = {}

    def gain(shape: str) -> int:
        return len(left & {tuple(line) for line in covered[shape]})

    while left and gain(best := max(covered, key=gain)) >= least:
        chosen[best] = [(path, line) for path, line in covered[best]]
        left -= {tuple(line) for line in covered[best]}
    return chosen
