"""What a check found: a line of JSON, and a row of the table at the end."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Finding:
    """One figure of one check.

    Attributes:
        part: Letter of the part.
        check: What was measured.
        figure: The figure; None where there is none, and ``note`` says why.
        unit: Of it.
        limit: What it must not pass, or must reach; None where nothing is judged.
        ok: The verdict; None where nothing is judged.
        n: Of how many measurements the figure is the median or the worst.
        note: Anything else that a reader needs.
    """

    part: str
    check: str
    figure: float | None
    unit: str = ""
    limit: float | None = None
    ok: bool | None = None
    n: int = 1
    note: str = ""


@dataclass(slots=True)
class Record:
    """All findings; each is on disk and printed as soon as it is there.

    Attributes:
        folder: Where ``gpu.jsonl`` and the rest is written.
    """

    folder: Path
    findings: list[Finding] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def add(self, part: str, check: str, figure: float | None, unit: str = "", **more: Any) -> None:
        """Write one finding down."""
        one = Finding(part, check, figure, unit, **more)
        self.findings.append(one)
        line = asdict(one) | {"at": round(time.monotonic() - self.begun, 1)}
        with (self.folder / "gpu.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(row_of(one), flush=True)

    def attempt(self, part: str, check: str, act: Callable[[], None]) -> None:
        """Make a check; one that breaks is a finding, and the next goes on."""
        try:
            act()
        except Exception as error:
            with (self.folder / "errors.txt").open("a", encoding="utf-8") as file:
                file.write(f"== {part} {check}\n{traceback.format_exc()}\n")
            what = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
            self.add(part, check, None, ok=False, note=what[:200])


def row_of(one: Finding) -> str:
    """One finding as a row of a table in Markdown."""
    verdict = {None: "", True: "ok", False: "WRONG"}[one.ok]
    cells = [one.part, one.check, _number(one.figure), one.unit, _number(one.limit)]
    cells += [verdict, one.note]
    return "| " + " | ".join(cells) + " |"


HEADER = "| | check | figure | unit | limit | | note |\n" + "|---" * 7 + "|"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
