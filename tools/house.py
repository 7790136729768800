"""Measure the size of the house, and hold its limits: ``--check`` fails when one is passed.

A code line is a line that carries code: no blanks, no comments, no docstrings. The quick start is
two steps of ``examples/quickstart.yaml`` with the guards that are on by default. Limits that stand
in ``tools/house.toml`` may only fall; ``--write`` writes what was measured there, where it fell.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tools" / "house.toml"
PLUGINS = sorted(path.name for path in (ROOT / "plugins").iterdir() if path.is_dir())
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
VAGUE = {"one", "found", "told", "said", "asked", "own"}
"""Names that do not say what they hold."""

RUN_AND_LIST = """
import json, sys
from rlvr_core.cli.main import main
settings = ("train.steps=2", "train.warmup_steps=1", "eval.tasks=[]")
words = [word for setting in settings for word in ("--set", setting)]
code = main(["run", sys.argv[1], "--display", "none", *words])
if code:
    sys.exit(code)
names = [m.__file__ for n, m in sys.modules.items() if n.startswith("rlvr_")]
with open("loaded.json", "w") as file:
    json.dump([name for name in names if name], file)
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Code lines of one file and of its longest function."""

    lines: int
    longest_function: int
    vague_names: int


@cache
def measure(path: Path) -> Size:
    """Count the code lines of a Python file, of its longest function, and its vague names."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    carry: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            carry.update(range(token.start[0], token.end[0] + 1))
    nodes = list(ast.walk(tree))
    for node in nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            carry.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    functions = [
        sum(line in carry for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Size(len(carry), max(functions, default=0), sum(name in VAGUE for name in bound(tree)))


def bound(tree: ast.AST) -> Iterator[str]:
    """Yield each local name that is bound: assigned, looped over, or taken as an argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def sources(*folders: str) -> list[Path]:
    """Return the Python files that git tracks, or would, below some folders."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.splitlines() if name.endswith(".py")]
    return [path for path in paths if path.exists()]


def products() -> dict[str, list[Path]]:
    """Return the files of each distribution, the core first."""
    return {"rlvr_core": sources("rlvr_core")} | {
        name: sources(f"plugins/{name}/{name}") for name in PLUGINS
    }


def beside() -> list[Path]:
    """Return tests, benchmarks and tools."""
    return sources("tests", "benchmarks", "tools", *(f"plugins/{name}/tests" for name in PLUGINS))


def lines_of(paths: list[Path]) -> int:
    """Sum the code lines of files."""
    return sum(measure(path).lines for path in paths)


def quick_start() -> list[Path]:
    """Run two steps of the quick start in a process of their own; the files that it loaded.

    Raises:
        SystemExit: The run failed; its output is shown.
    """
    places = [ROOT, *(ROOT / "plugins" / name for name in PLUGINS)]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", RUN_AND_LIST, str(ROOT / "examples" / "quickstart.yaml")]
        ran = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise SystemExit(f"the quick start failed:\n{ran.stdout}{ran.stderr}")
        loaded = json.loads(Path(folder, "loaded.json").read_text())
    return [Path(name).resolve() for name in loaded]


def imports_beyond_api(files: Mapping[str, list[Path]]) -> dict[str, int]:
    """Count each plugin's imports of the core that are not of ``rlvr_core.api``."""
    pattern = re.compile(r"^\s*(?:from|import) (rlvr_core[.\w]*)", re.M)
    counts: dict[str, int] = {}
    for name in PLUGINS:
        modules = [m for path in files[name] for m in pattern.findall(path.read_text())]
        counts[name] = sum(module != "rlvr_core.api" for module in modules)
    return counts


def module_of(path: Path) -> str:
    """Return a file's dotted name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[2:] if parts[0] == "plugins" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(paths: list[Path]) -> list[list[str]]:
    """Return the sets of files that import each other in a circle, wherever an import stands.

    Imports for type checkers alone do not count.
    """
    modules = {module_of(path): path for path in paths}
    graph = {name: _imported(path, modules) - {name} for name, path in modules.items()}
    return sorted(sorted(part) for part in _strongly_connected(graph) if len(part) > 1)


def _imported(path: Path, modules: Mapping[str, Path]) -> set[str]:
    names: set[str] = set()
    for node in _at_run_time(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole in modules else node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names & modules.keys()


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _at_run_time(child)


def _strongly_connected(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Tarjan's algorithm, without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[str] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    yield part


def docs() -> tuple[int, int]:
    """Return the number of hand-written pages in ``docs/``, and of their words."""
    pages = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_generated" not in page.parts)
    return len(pages), sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def figures() -> dict[str, int]:
    """Measure everything that has a limit."""
    files = products()
    every = [path for paths in files.values() for path in paths]
    longest = max(every, key=lambda path: measure(path).lines)
    pages, words = docs()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    beyond = imports_beyond_api(files)
    return {
        "core": lines_of(files["rlvr_core"]),
        "products": lines_of(every),
        "quick start": lines_of(quick_start()),
        "dependencies": len(project["dependencies"]),
        "tests, benchmarks, tools": lines_of(beside()),
        "pages": pages,
        "words": words,
        "longest function": max(measure(path).longest_function for path in every),
        "longest file": measure(longest).lines,
        "vague names": sum(measure(path).vague_names for path in every),
        "files in circles": sum(map(len, circles(every))),
        **{f"imports beyond api: {name}": count for name, count in beyond.items()},
    }


def main() -> int:
    """Print the table; with ``--check`` say which limits are passed; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a limit is passed")
    parser.add_argument("--write", action="store_true", help="lower the limits to what is measured")
    parser.add_argument("--circles", action="store_true", help="list the files in circles")
    options = parser.parse_args()
    if options.circles:
        every = [path for paths in products().values() for path in paths]
        sys.stdout.writelines(" ".join(part) + "\n" for part in circles(every))
        return 0
    limits: dict[str, int] = tomllib.loads(LIMITS.read_text())["limits"]
    measured = figures()
    sys.stdout.write("| | measured | at most |\n|---|---|---|\n")
    for name, value in measured.items():
        sys.stdout.write(f"| {name} | {value:,} | {limits.get(name, 0):,} |\n")
    lines = Counter({name: lines_of(paths) for name, paths in products().items()})
    sys.stdout.write("".join(f"{name}: {count:,}\n" for name, count in lines.most_common()))
    if options.write:
        lowered = {name: min(value, limits.get(name, value)) for name, value in measured.items()}
        text = "".join(f"{json.dumps(name)} = {value}\n" for name, value in lowered.items())
        LIMITS.write_text(f"# May only fall: python tools/house.py --write\n[limits]\n{text}")
    faults = [
        f"{name}: {value:,}, at most {limits.get(name, 0):,}"
        for name, value in measured.items()
        if value > limits.get(name, 0)
    ]
    if options.check and faults:
        sys.stderr.write("too big: " + "; ".join(faults) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
