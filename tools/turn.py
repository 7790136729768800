"""The files of slow tests whose turn it is: one part of them all, by the commit.

``make test-rest`` runs every slow test, which takes longer than a change can wait for. Each commit
runs one part, chosen by its hash, so that all parts come up as commits follow each other.

    python tools/turn.py 8
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def files_with_slow_tests() -> list[str]:
    """Every file of tests that marks one of them slow, as paths below the root."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    places = settings["tool"]["pytest"]["ini_options"]["testpaths"]
    files = sorted(file for place in places for file in (ROOT / place).rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if "mark.slow" in file.read_text()]


def part(files: list[str], parts: int, turn: int) -> list[str]:
    """Every ``parts``-th file, from the one that ``turn`` says."""
    return files[turn % parts :: parts]


if __name__ == "__main__":
    turn = int(os.environ.get("RLVR_TEST_TURN") or "0", 16)
    sys.stdout.write(" ".join(part(files_with_slow_tests(), int(sys.argv[1]), turn)) + "\n")
