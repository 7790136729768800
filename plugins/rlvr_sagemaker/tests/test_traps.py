"""T96: every trap of operations and cloud has a test that bears its name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_t96_every_trap_of_this_area_has_a_test():
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/test_*.py")]
    names = re.findall(r"def (test_\w+)", "\n".join(path.read_text() for path in files))
    found = {int(number) for name in names for number in re.findall(r"_t(\d+)(?=_)", name)}
    assert set(range(87, 100)) <= found
