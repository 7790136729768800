"""The tables of ``docs/gpu-budgets.md``: what each way of a step asks of a GPU, and its budget.

python tests/gpu_standin/table.py                  # writes the page from figures.jsonl
python tests/gpu_standin/table.py --measure        # measures every case first: half an hour
python tests/gpu_standin/table.py --measure WORD   # those with the word in their names
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from matrix import EVERY  # noqa: E402

FILE = HERE / "figures.jsonl"
SHARDED = HERE.parent / "planner" / "sharded.jsonl"
PAGE = HERE.parents[1] / "docs" / "gpu-budgets.md"
GIB = 2**30
LARGE: Mapping[str, Any] = {
    "size": "1.7B", "groups": 8, "n": 8, "prompt": 150, "tokens": 512, "budget": 16_384
}  # fmt: skip
WAITS_A_PASS = 1
WAITS_AN_UPDATE = 4
PEAK = 0.03
LAUNCHES = 0.02
"""How far a figure may be from the one that is written down, as a share of it."""


CASES = {f"1.7B, {name}": {**case, **LARGE} for name, case in EVERY.items()}
"""Every way of a step, with Qwen3-1.7B."""


def known() -> dict[str, dict[str, Any]]:
    """Figures that are written down, by case."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    return {one["name"]: one for one in map(json.loads, lines)}


def figures_of(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of what ``run.py`` prints."""
    return {
        "name": name,
        "waits": sum(n for _, _, n in found["waits"]),
        "passes": found["passes"],
        "trained": found["trained"],
        "launches": found["launches"],
        "wide": sum(n for _, n in found["wide"]),
        "peak": found["peak"],
        "at_rest": found["at_rest"],
    }


def measure(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield figures of cases, made one after another in one process."""
    words = [sys.executable, str(HERE / "run.py"), json.dumps([CASES[one] for one in names])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for name, line in zip(names, process.stdout, strict=False):
            yield figures_of(name, json.loads(line))
    assert process.returncode == 0, "run.py failed"


def allowed_waits(name: str, figures: Mapping[str, Any]) -> int:
    """How often the host may wait for the device in a step."""
    case = CASES[name]
    padded = not case.get("forward_paths", True) or case.get("per_token")
    updates = case.get("mini_batches", 1)
    return WAITS_A_PASS * figures["passes"] * bool(padded) + WAITS_AN_UPDATE * updates


def beyond(name: str, figures: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Budgets that a case's figures leave, in words."""
    wrong = []
    if figures["waits"] > (most := allowed_waits(name, figures)):
        wrong.append(f"{name}: the host waits {figures['waits']} times a step, at most {most}")
    if CASES[name]["dtype"] != "float32" and figures["wide"]:
        wrong.append(
            f"{name}: {figures['wide']:.3g} FLOPs of products in float32, none are allowed"
        )
    for what, share in (("peak", PEAK), ("at_rest", PEAK), ("launches", LAUNCHES)):
        if abs(figures[what] / written[what] - 1) > share:
            wrong.append(
                f"{name}: {what} {figures[what]:,}, and {written[what]:,} are written down "
                f"(within {share:.0%}); if it is meant: table.py --measure '{name}'"
            )
    return wrong


def verdict(name: str, figures: Mapping[str, Any]) -> str:
    """Whether a case stays within what does not depend on what is written down."""
    return "holds" if not beyond(name, figures, figures) else "**does not hold**"


def large_table() -> str:
    """Qwen3-1.7B, a row a case."""
    lines = [
        "| path, precision, recomputed or not, option | waits a step, allowed | float32 products, "
        "FLOPs | launches a micro-batch | peak, GiB | between steps | |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in known().items():
        wide = f"{one['wide']:.2g}" if CASES[name]["dtype"] == "float32" else f"{one['wide']}"
        wide += ", it is the precision" if CASES[name]["dtype"] == "float32" else ""
        lines.append(
            f"| {name.removeprefix('1.7B, ')} | {one['waits']}, {allowed_waits(name, one)} "
            f"| {wide} "
            f"| {one['launches'] / one['trained']:,.0f} | {one['peak'] / GIB:.2f} "
            f"| {one['at_rest'] / GIB:.2f} | {verdict(name, one)} |"
        )
    return "\n".join(lines)


def sharded_table() -> str:
    """Qwen3-8B, a row a case of those of ``rlvr plan``'s page."""
    lines = [
        "| case | waits a step, allowed | float32 products, FLOPs | launches a step "
        "| peak, GiB | between steps | |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in map(json.loads, SHARDED.read_text(encoding="utf-8").splitlines()):
        if one["name"].startswith("Qwen3-8B") and "layers" not in one["case"]:
            name = one["name"].removeprefix("Qwen3-8B, 8 GPUs").removeprefix(", ")
            holds = one["waits"] <= WAITS_AN_UPDATE and not one["wide"]
            lines.append(
                f"| {name or 'nothing recomputed'} | {one['waits']}, {WAITS_AN_UPDATE} "
                f"| {one['wide']} | {one['launches']:,} | {one['peak'] / GIB:.2f} "
                f"| {one['at_rest'] / GIB:.2f} | {'holds' if holds else '**does not hold**'} |"
            )
    return "\n".join(lines)


def page() -> str:
    """The page."""
    found = known()
    half = [name for name in found if CASES[name]["dtype"] != "float32"]
    held = sum(verdict(name, one) == "holds" for name, one in found.items())
    text = (HERE / "budgets.md.in").read_text(encoding="utf-8")
    return text.format(
        n=len(found),
        held=held,
        half=len(half),
        wide=sum(found[name]["wide"] for name in half),
        large=large_table(),
        sharded=sharded_table(),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        word = (sys.argv[2:3] or [""])[0]
        for one in measure([name for name in CASES if word in name]):
            figures = known() | {one["name"]: one}
            ordered = [figures[name] for name in CASES if name in figures]
            FILE.write_text("".join(json.dumps(each) + "\n" for each in ordered), "utf-8")
    PAGE.write_text(page(), encoding="utf-8")
