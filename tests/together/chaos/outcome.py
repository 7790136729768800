"""What came of a run: how it ended, which guards spoke, and what is not as in a healthy run."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.together.chaos.registry import Fault

NUMBERS = ("loss", "grad_norm", "reward/mean", "tokens/loss", "kl/mean", "length/mean", "rows")
"""Metrics that a fault must move, unless it moves tokens, rewards or weights."""
SHOWN = ("step ", "see it", "finished:", "first prompt:", "prompt lengths:")
"""Beginnings of lines that show what there is, in every run, and judge nothing."""
SPEAKERS = (
    (re.compile(r"\bguard (?:core/)?([\w-]+)"), r"\1"),
    (re.compile(r"\bdid not come within\b"), "watchdog"),  # a wait's own deadline
    (re.compile(r"^weight sync to version "), "sync"),  # the probe of a sync
    (re.compile(r"^going on from the checkpoint\b"), "resume"),
    (re.compile(r"\bpreflight\b"), "preflight"),
    (re.compile(r"^first completions\b"), "completions"),
)
"""What a line begins with, and the guard that it is by."""
NUMBER = re.compile(r"-?\d[\d.,e+-]*%?")


@dataclass(slots=True)
class Outcome:
    """What came of one run.

    Attributes:
        code: Exit code; None if it was killed because it did not end.
        steps: Steps it recorded.
        error: Text of the error; empty if it ended well.
        notes: Lines of its output that are no steps, and notes of its records.
        records: What of its records is compared with another run's.
        used: Whether the faulty code was used.
        seconds: Wall time.
    """

    code: int | None
    steps: int
    error: str
    notes: list[str]
    records: dict[str, Any]
    used: bool
    seconds: float

    @property
    def crashed(self) -> bool:
        """Whether it ended by an exception that is nobody's check."""
        return "Traceback (most recent call last)" in self.error


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run said of its fault.

    Attributes:
        found: ``stopped``, ``noted``, ``wrong name`` or ``missed``.
        by: Who spoke: guards by name, or the beginning of another message.
        step: Step at which the run ended; ``start``, or ``end`` for a note.
        text: What was said.
        changed: Whether anything differs from the healthy run.
    """

    found: str
    by: str
    step: str
    text: str
    changed: bool


def read(folder: Path, code: int | None, seconds: float) -> Outcome:
    """Read what a run left in its working directory."""
    text = (folder / "out").read_text(errors="replace") if (folder / "out").exists() else ""
    runs = sorted((folder / "runs").glob("[!.]*"))
    run = runs[-1] if runs else None
    steps = _lines(run / "metrics.jsonl") if run else []
    lines = [line for line in text.splitlines() if line.strip()]
    error = ""
    if code != 0:
        starts = [i for i, line in enumerate(lines) if re.match(r"(error|Traceback)\b", line)]
        error = "\n".join(lines[starts[0] :] if starts else lines[-12:])
    notes = [line for line in lines if not line.startswith(SHOWN) and "it/s]" not in line]
    if (folder / "notes").exists():
        notes += json.loads((folder / "notes").read_text())
    used = (folder / "hits").exists()
    return Outcome(code, len(steps), error, notes, _records(run, steps), used, seconds)


def _lines(path: Path) -> list[dict[str, Any]]:
    read_lines = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            read_lines.append(json.loads(line))
        except ValueError:
            break
    return read_lines


def _records(run: Path | None, steps: list[dict[str, Any]]) -> dict[str, Any]:
    if run is None:
        return {}
    records: dict[str, Any] = {
        name: [step.get(name) for step in steps if name in step] for name in NUMBERS
    }
    groups = _lines(run / "traces" / "rollouts.jsonl")
    records["rollouts"] = [_digest(json.dumps(group, sort_keys=True)) for group in groups]
    for number, folder in enumerate(sorted((run / "checkpoints").glob("step*"))):
        for path in (folder / "model.safetensors", folder / "trainer" / "optimizer.safetensors"):
            if path.exists():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
                records.setdefault(path.name, []).append((number, digest))
    return records


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differs(outcome: Outcome, healthy: Outcome) -> bool:
    """Whether the records differ, over the steps that both have."""
    for name, ours in outcome.records.items():
        theirs = healthy.records.get(name, [])
        n = min(len(ours), len(theirs))
        if ours[:n] != theirs[:n] or (name in NUMBERS and bool(ours) != bool(theirs)):
            return True
    return False


def judge(fault: Fault, outcome: Outcome, healthy: Outcome) -> Verdict:
    """Judge by the names of guards what a run said of its fault."""
    changed = differs(outcome, healthy)
    if outcome.code is None:
        return Verdict("missed", "", "", "", changed=True)
    if outcome.code != 0:
        names = speakers(outcome.error.splitlines()[:1])
        step = str(outcome.steps + 1) if outcome.records else "start"
        right = bool(names & set(fault.expects))
        by = ", ".join(sorted(names)) or outcome.error.partition("\n")[0][:80]
        return Verdict("stopped" if right else "wrong name", by, step, outcome.error, changed)
    usual = {_plain(note) for note in healthy.notes}
    new = [note for note in dict.fromkeys(outcome.notes) if _plain(note) not in usual]
    names = speakers(new)
    if not new:
        return Verdict("missed", "", "", "", changed)
    right = bool(names & set(fault.expects))
    by = ", ".join(sorted(names)) or new[0][:80]
    return Verdict("noted" if right else "wrong name", by, "end", "\n".join(new), changed)


def speakers(lines: list[str]) -> set[str]:
    """The guards that lines of output are by."""
    names = set()
    for line in lines:
        text = re.sub(r"^(error|warning): ", "", line)
        for pattern, name in SPEAKERS:
            if match := pattern.search(text):
                names.add(match.expand(name))
                break
    return names


def _plain(line: str) -> str:
    """A line without its numbers, paths and the name of its run."""
    line = re.sub(r"\bchaos-\d\S*", "RUN", re.sub(r"\S*/\S+", "PATH", line))
    return NUMBER.sub("#", line).strip()
