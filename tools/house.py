"""Measure the size of the code: print the table, or fail when a limit is passed: ``--check``.

A code line is a line that carries code: no blanks, no comments, no docstrings. The simplest run is
two steps of a tiny model in one process on a CPU without evaluation.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "rlvr_core"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

# Limits of --check
KERNEL_LIMIT = 13_500
MODULES_LIMIT = 120
UNNAMED_ROOMS: set[str] = set()

# What the simplest run names stands in these rooms: core/jsonl, core/exact, core/shuffle, core/grpo
NAMED_ROOMS = {"datasets", "verifiers", "samplers", "losses"}
SIMPLEST = """
run: {name: simplest, dir: runs, seed: 1, identity: false}
model: {path: model, forward_paths: []}
data:
  sources:
    - use: core/jsonl
      with: {path: data.jsonl, prompt: question, id: id, verifier: core/exact}
sampler: {use: core/shuffle, with: {drop_zero_variance: false}}
sampling: {n: 2, max_tokens: 4}
engine: transformers
loss: {use: core/grpo}
train: {steps: 2, prompts_per_step: 2}
guards: [{use: defaults, off: true}]
track: []
"""
MAKE_MODEL = """
import sys
from pathlib import Path
from rlvr_core.testing.random_model import save_random_model
save_random_model(Path(sys.argv[1]))
"""
RUN_AND_LIST = """
import json, sys
from rlvr_core.cli.main import main
code = main(["run", "config.yaml", "--display", "none"])
if code:
    sys.exit(code)
names = {n: m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "rlvr_core"}
with open("loaded.json", "w") as file:
    json.dump(names, file)
"""


@dataclass(frozen=True)
class Size:
    """Code lines of one file, and of each function in it (methods and nested ones included)."""

    lines: int
    functions: tuple[int, ...]


def measure(path: Path) -> Size:
    """Count the code lines of a Python file and of its functions."""
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
    functions = tuple(
        sum(line in carry for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return Size(len(carry), functions)


def spread(values: list[int]) -> str:
    """Median, 90th percentile (nearest rank) and maximum, as one cell of the table."""
    if not values:
        return "-"
    ordered = sorted(values)
    p90 = ordered[-(-len(ordered) * 9 // 10) - 1]
    return f"{statistics.median(ordered):.0f}/{p90}/{ordered[-1]}"


def row(name: str, sizes: list[Size]) -> str:
    """One line of the table: files, code lines, spread of files and of functions."""
    files = [size.lines for size in sizes if size.lines]
    functions = [length for size in sizes for length in size.functions]
    lines = sum(size.lines for size in sizes)
    return f"| {name} | {len(sizes)} | {lines:,} | {spread(files)} | {spread(functions)} |"


def simplest_run() -> dict[str, str]:
    """Run two steps in a process of their own; the rlvr modules that it loaded, with their files.

    Raises:
        SystemExit: The run failed; its output is shown.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(SIMPLEST, encoding="utf-8")
        rows = [{"id": f"p{i}", "question": f"Say {i}.", "answer": "x"} for i in range(8)]
        (folder / "data.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        for code in (MAKE_MODEL, RUN_AND_LIST):
            done = subprocess.run(
                [sys.executable, "-c", code, "model"],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise SystemExit(f"the simplest run failed:\n{done.stdout}{done.stderr}")
        loaded: dict[str, str] = json.loads((folder / "loaded.json").read_text())
    return loaded


def rooms_of(modules: list[str]) -> set[str]:
    """Built-in rooms that modules stand in; a room's ``plugin`` module only registers names."""
    parts = [module.split(".") for module in modules]
    return {
        part[2]
        for part in parts
        if part[:2] == ["rlvr_core", "builtin"] and len(part) > 3 and part[3] != "plugin"
    }


def main() -> int:
    """Print the table; with ``--check`` say which limits are passed; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a limit is passed")
    check = parser.parse_args().check
    sizes = {path: measure(path) for path in sorted(CORE.rglob("*.py"))}
    rooms: dict[str, list[Size]] = {}
    for path, size in sizes.items():
        parts = path.relative_to(CORE).parts
        floor = "/".join(parts[:2]) if parts[0] == "builtin" else "kernel"
        rooms.setdefault("builtin" if floor.endswith(".py") else floor, []).append(size)
    loaded = simplest_run()
    loaded_sizes = [sizes[Path(file).resolve()] for file in loaded.values()]
    unnamed = rooms_of(list(loaded)) - NAMED_ROOMS

    head = "| | files | code lines | file median/p90/max | function median/p90/max |"
    table = [head, "|---|---|---|---|---|", row("rlvr_core", list(sizes.values()))]
    table += [row(name, of_room) for name, of_room in sorted(rooms.items(), key=kernel_first)]
    table.append(row("loaded by the simplest run", loaded_sizes))
    sys.stdout.write("\n".join(table) + "\n")
    sys.stdout.write(f"built-in rooms that it loads unnamed: {', '.join(sorted(unnamed)) or '-'}\n")

    kernel = sum(size.lines for size in rooms["kernel"])
    faults = []
    if kernel > KERNEL_LIMIT:
        faults.append(f"the kernel has {kernel:,} code lines, at most {KERNEL_LIMIT:,} are allowed")
    if len(loaded) > MODULES_LIMIT:
        faults.append(f"the simplest run loads {len(loaded)} modules, at most {MODULES_LIMIT}")
    if more := unnamed - UNNAMED_ROOMS:
        faults.append(f"the simplest run loads rooms that it does not name: {sorted(more)}")
    if check and faults:
        sys.stderr.write("too big: " + "; ".join(faults) + "\n")
        return 1
    return 0


def kernel_first(item: tuple[str, list[Size]]) -> tuple[bool, str]:
    """Order of the table's rows."""
    return item[0] != "kernel", item[0]


if __name__ == "__main__":
    raise SystemExit(main())
