"""The page GENERATORS.md, made from the measured gate, the fences and the rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from rlvr_gym.fences import FENCED, fenced_levels
from rlvr_gym.rules import ALSO, JUDGED

_HEAD = """\
# Generators

Written by `tools/docs.py` from `rlvr_gym/gate.json`, which `benchmarks/gym_gate.py` measures, and
from the code: each generator of reasoning-gym 0.1.25 at its default options. `n`: problems.
*References*: the generator's own answers that pass. *Corrupted*: the kind of wrong reference that
passes most often. *Blind*: the best strategy that ignores the question, on problems it was not
chosen by. *Shuffled*: answers of other problems that pass. The limits are those of
[`rlvr data check`](../../docs/your-data.md#check-a-task-set).
"""
_COLUMNS = "n | references | corrupted | blind | shuffled"


def rows() -> list[dict[str, Any]]:
    """Return what was measured of each generator."""
    text = resources.files("rlvr_gym").joinpath("gate.json").read_text("utf-8")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def page() -> str:
    """The page as Markdown."""
    measured = {row["task"]: row for row in rows()}
    lines = [_HEAD, "## Open", "", f"| generator | category | parameters by level | {_COLUMNS} |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for task, row in sorted(measured.items()):
        if task not in FENCED:
            parameters = ", ".join(f"`{name}`" for name in row["parameters"])
            lines.append(f"| `{task}` | {row['category']} | {parameters} | {_rates(row)} |")
    lines += ["", "## Fenced", "", f"| generator | reason | {_COLUMNS} |"]
    lines.append("|---|---|---|---|---|---|---|")
    for task, why in sorted(FENCED.items()):
        lines.append(f"| `{task}` | {why} | {_rates(measured.get(task, {}))} |")
    lines += ["", "## Fenced levels", ""]
    lines += [
        f"- `{task}` {level}: {why}" for (task, level), why in sorted(fenced_levels().items())
    ]
    lines += ["", "## Judged by a rule in place of the generator's scoring", ""]
    lines += _reasons({task: why for task, (_, why) in JUDGED.items()})
    lines += ["", "## Judged by the generator and a condition", ""]
    lines += _reasons({task: why for task, (_, why) in ALSO.items()})
    return "\n".join(lines) + "\n"


def _rates(row: Mapping[str, Any]) -> str:
    if "n" not in row:
        return "- | - | - | - | -"
    shares = [_share(row[name]) for name in ("corrupted", "blind", "shuffled")]
    passed, n = row["references"]
    return " | ".join([str(row["n"]), f"{passed}/{n}" if n else "none", *shares])


def _share(counted: Sequence[Any]) -> str:
    passed, n = counted[:2]
    return f"{passed / n:.2f}" if n else "-"


def _reasons(reasons: Mapping[str, str]) -> list[str]:
    lines = ["| generator | what is wrong with its own scoring |", "|---|---|"]
    return lines + [f"| `{task}` | {why} |" for task, why in sorted(reasons.items())]
