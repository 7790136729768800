"""Healthy runs of different kinds: changes to the base config, and rows of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.together.chaos.lab import rows

ROWS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "few problems": lambda: rows()[:16],
    "given answers": lambda: [row | {"shown": f" [{row['answer']}]"} for row in rows()],
    "curriculum of two phases": lambda: [
        row | {"level": "high" if int(row["answer"]) > 55 else "low"} for row in rows()
    ],
}
"""The data of shapes that have others than ``lab.rows``."""

SHAPES: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text()
)
