"""Programs with one fault each, and a judge of them that shares nothing with the verifiers.

The judge runs program and tests together, by ``exec`` in a forked process: what a verifier must
agree with, of programs that are not hostile.
"""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Iterator

_SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitXor: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


def mutants(code: str, within: str | None = None) -> Iterator[str]:
    """Programs that differ from one in one place, in a fixed order, the plainest faults first.

    ``within`` names the function to change; the others are then as they are.
    """
    tree = ast.parse(code)
    places = list(ast.walk(tree))
    changed = {id(node) for one in tree.body if _named(one, within) for node in ast.walk(one)}
    for change in (_swap, _constant, _returned, _emptied):
        for number, node in enumerate(places):
            if id(node) in changed and change(copy.deepcopy(node)) is not None:
                mutant = copy.deepcopy(tree)
                twin = list(ast.walk(mutant))[number]
                change(twin)
                yield ast.unparse(ast.fix_missing_locations(mutant))


def _swap(node: ast.AST) -> object:
    """Another operator."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _SWAPS:
        node.op = _SWAPS[type(node.op)]()
        return node
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        node.ops[0] = _SWAPS[type(node.ops[0])]()
        return node
    return None


def _constant(node: ast.AST) -> object:
    """Another constant."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bytes):
        return None
    if isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node.value, int | float):
        node.value += 1
    elif isinstance(node.value, str):
        node.value += "?"
    else:
        return None
    return node


def _returned(node: ast.AST) -> object:
    """Another value returned: a list that holds it."""
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    node.value = ast.List([node.value], ast.Load())
    return node


def _emptied(node: ast.AST) -> object:
    """A function that returns nothing, or an impossible value."""
    if not isinstance(node, ast.FunctionDef):
        return None
    node.body = [ast.Return(ast.Constant("mutant"))]
    return node


_JUDGE = """
import json, os, resource, sys
def verdict(code, tests):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            names = {"__name__": "judge"}
            exec(code, names)
            for test in tests: exec(test, names)
        except BaseException: os._exit(1)
        os._exit(0)
    return {0: b"1", 1: b"0"}.get(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), b"?")
null = open(os.devnull, "w")
out = os.dup(1)
os.dup2(null.fileno(), 1)
for line in sys.stdin:
    code, tests = json.loads(line)
    os.write(out, verdict(code, tests))
"""


def passes(programs: list[tuple[str, list[str]]]) -> list[bool | None]:
    """For each program with its tests, run one after the other, whether it passes all.

    None of one that was killed: a slow program breaks no test of a judge with more patience.
    """
    lines = "".join(f"{json.dumps(one)}\n" for one in programs)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _JUDGE], input=lines, capture_output=True, text=True
    )
    if len(done.stdout) != len(programs):
        raise RuntimeError(done.stderr)
    return [{"1": True, "0": False}.get(one) for one in done.stdout]


def _named(node: ast.stmt, within: str | None) -> bool:
    return within is None or (isinstance(node, ast.FunctionDef) and node.name == within)


def breaking(code: str, tests: list[str], wanted: int = 3, within: str | None = None) -> list[str]:
    """The first mutants of a program that break a test, as many as wanted."""
    found: list[str] = []
    batch: list[str] = []
    for mutant in [*mutants(code, within), *_more(code, within)]:
        batch.append(mutant)
        if len(batch) == wanted - len(found):
            judged = passes([(one, tests) for one in batch])
            found += [one for one, right in zip(batch, judged, strict=True) if right is False]
            batch.clear()
        if len(found) == wanted:
            break
    return found


def _more(code: str, within: str | None) -> Iterator[str]:
    """Faults that break any test, for programs with few places to change."""
    body = [node for node in ast.parse(code).body if _named(node, within)]
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    for name in reversed(names):
        yield f"{code}\ndef {name}(*given): return 'mutant'\n"
        yield f"{code}\ndef {name}(*given): raise ValueError('mutant')\n"
        yield f"{code}\ndef {name}(*given): return object()\n"
