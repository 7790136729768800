"""What came of a run: how it ended, what it said, and what is not as in a healthy run."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.lab import NUMBER
from chaos.registry import Fault

NUMBERS = (
    *("loss", "grad_norm", "reward/mean", "tokens/loss", "kl/mean", "length/mean", "rows"),
    *("pass_rate", "clip_fraction/low", "clip_fraction/high"),
)
"""Metrics that a fault must move, unless it moves tokens, rewards or weights."""
STREAMS = ("conversations", "samples")
"""Files of a run beside its rollouts that have no times in them."""


@dataclass(slots=True)
class Outcome:
    """What came of one run.

    Attributes:
        code: Exit code; None if it was killed because it did not end.
        steps: Steps it recorded.
        said: Text of the error; empty if it ended well.
        notes: Lines of its output that are no steps, and notes of its records.
        records: What of its records is compared with another run's.
        used: Whether the faulty code was used.
        seconds: Wall time.
    """

    code: int | None
    steps: int
    said: str
    notes: list[str]
    records: dict[str, Any]
    used: bool
    seconds: float = 0.0

    @property
    def crashed(self) -> bool:
        """Whether it ended by an exception that is nobody's check."""
        return "Traceback (most recent call last)" in self.said


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a fault in the table.

    Attributes:
        found: ``guard``, ``message`` (an error that is no guard's), ``note`` or ``missed``.
        by: Id of the guard, or the beginning of the message.
        step: Step at which the run ended; ``start``, or ``end`` for a note.
        right: Whether what was said names the cause.
        changed: What differs from the healthy run.
        said: What was said.
    """

    found: str
    by: str
    step: str
    right: bool
    changed: list[str] = field(default_factory=list)
    said: str = ""


def read(folder: Path, code: int | None, seconds: float) -> Outcome:
    """Read what a run left in its working directory."""
    text = (folder / "out").read_text(errors="replace") if (folder / "out").exists() else ""
    runs = sorted((folder / "runs").glob("[!.]*"))
    run = runs[-1] if runs else None
    steps = _lines(run / "metrics.jsonl") if run else []
    lines = [line for line in text.splitlines() if line.strip()]
    said = ""
    if code != 0:
        starts = [i for i, line in enumerate(lines) if re.match(r"(error|Traceback)\b", line)]
        said = "\n".join(lines[starts[0] :] if starts else lines[-12:])
    notes = [
        line
        for line in lines
        if not line.startswith(("step ", "see it", "finished:")) and "it/s]" not in line
    ]
    shown = folder / "notes"
    if shown.exists():
        notes += json.loads(shown.read_text())
    records = _records(run, steps)
    for path in sorted((folder / "evals").glob("*/*/*.json*")):
        if path.name != "spec.json":  # which has the time of the checkpoint in it
            records[str(path.relative_to(folder))] = [_digest(path.read_text())]
    return Outcome(code, len(steps), said, notes, records, (folder / "hits").exists(), seconds)


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def _records(run: Path | None, steps: list[dict[str, Any]]) -> dict[str, Any]:
    if run is None:
        return {}
    records: dict[str, Any] = {
        name: [step.get(name) for step in steps if name in step] for name in NUMBERS
    }
    records["metrics"] = [_digest(json.dumps(step, sort_keys=True)) for step in steps]
    groups = _lines(run / "traces" / "rollouts.jsonl")
    records["rollouts"] = [_digest(json.dumps(group, sort_keys=True)) for group in groups]
    beside = [run / "traces" / f"{name}.jsonl" for name in STREAMS]
    for path in (*beside, run / "evals" / "index.jsonl"):
        records[path.stem] = [_digest(path.read_text())] if path.exists() else []
    asked = sorted((run / "evals").glob("*-step*.jsonl"))
    records["evaluations"] = [_digest(path.read_text()) for path in asked]
    kept = sorted((run / "checkpoints").glob("step*"))
    if kept and (kept[-1] / "model.safetensors").exists():
        records["weights"] = [_digest_of_file(kept[-1] / "model.safetensors")]
        moments = kept[-1] / "trainer" / "optimizer.safetensors"
        if moments.exists():
            records["moments"] = [_digest_of_file(moments)]
    written = json.dumps([_checkpoint(one) for one in kept]).replace(run.name, "RUN")
    records["checkpoints"] = [_digest(written)]
    manifest = json.loads((run / "run.json").read_text()) if (run / "run.json").exists() else {}
    resumed = [one["step"] for one in manifest.get("resumed") or ()]
    records["run"] = [[manifest.get(name) for name in ("outcome", "reason", "steps")], resumed]
    return records


def _checkpoint(folder: Path) -> list[Any]:
    """Names of its files, its state less what guards count, and the config of an adapter.

    Some of what guards count depends on time.
    """
    state = folder / "trainer" / "state.json"
    known = json.loads(state.read_text()) if state.exists() else {}
    files = sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))
    adapter = folder / "adapter_config.json"
    said = json.loads(adapter.read_text()) if adapter.exists() else {}
    said.pop("base_model_name_or_path", None)
    kept = {name: one for name, one in known.items() if name != "guards"}
    return [folder.name, files, kept, said]


def _digest_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differing(one: Outcome, healthy: Outcome) -> list[str]:
    """Names of the records that differ, over the steps that both have."""
    found = []
    for name in one.records:
        ours, theirs = one.records[name], healthy.records.get(name, [])
        n = min(len(ours), len(theirs))
        if ours[:n] != theirs[:n] or (name in NUMBERS and bool(ours) != bool(theirs)):
            found.append(name)
    return found


SHOWN = ("first prompt:", "prompt lengths:")
"""Beginnings of lines that show what there is, in every run, and judge nothing."""
GUARD = re.compile(r"guard ([\w/-]+)")


def judge(fault: Fault, outcome: Outcome, healthy: Outcome) -> Verdict:
    """Judge by rule what a run said of the fault that it had."""
    changed = differing(outcome, healthy)
    if outcome.code is None:
        return Verdict("missed", "", "", right=False, changed=["it never ends"])
    if outcome.code != 0:
        named = GUARD.search(outcome.said)
        by = named.group(1) if named else outcome.said.splitlines()[0][:90]
        step = str(outcome.steps + 1) if outcome.records else "start"
        return Verdict(
            "guard" if named else "message",
            by,
            step,
            _names(fault, outcome.said),
            changed,
            outcome.said,
        )
    usual = {_plain(note) for note in healthy.notes}
    usual |= {_plain(note) for note in outcome.notes if note.startswith(SHOWN)}
    new = [note for note in dict.fromkeys(outcome.notes) if _plain(note) not in usual]
    if not new:
        return Verdict("missed", "", "", right=False, changed=changed)
    telling = [note for note in new if _names(fault, note)]
    said = (telling or new)[0]
    return Verdict("note", said[:90], "end", bool(telling), changed, "\n".join(new))


def _names(fault: Fault, text: str) -> bool:
    return any(re.search(word, text, re.IGNORECASE) for word in fault.words)


def _plain(line: str) -> str:
    """A line without its numbers, paths and the name of its run."""
    line = re.sub(r"\bchaos-\d\S*", "RUN", re.sub(r"\S*/\S+", "PATH", line))
    return NUMBER.sub("#", line).strip()
