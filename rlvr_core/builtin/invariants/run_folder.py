"""What a run's folder holds when the run begins or goes on: the steps before, once, and no others.

Fingerprints say that a checkpoint was loaded as it was written. That it is the newest one, that the
records were cut where it was written, and that ``run.json`` and ``resolved.yaml`` say what goes on
now is read from the files, by code that shares none with what wrote them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from rlvr_core.api import RunStarted

_SEALED = re.compile(r"step(\d{6,})")
_HIDDEN = "<redacted>"
_TAIL = 4 << 20
"""Bytes at the end of the rollouts in which a last line is looked for."""

_BLOCK = 1 << 20


def sealed_steps(checkpoints: Path) -> dict[int, Path]:
    """Return the checkpoints that have a seal, by step, newest first."""
    found = {
        int(match[1]): path
        for path in (checkpoints.iterdir() if checkpoints.is_dir() else ())
        if (match := _SEALED.fullmatch(path.name)) and (path / "COMPLETE").is_file()
    }
    return dict(sorted(found.items(), reverse=True))


def contradicted(event: RunStarted) -> str:
    """Return what the folder of a run says otherwise than its beginning; empty if nothing.

    Args:
        event: The run begins, or goes on.
    """
    if not (event.run_dir / "run.json").is_file():
        return ""  # a trainer without a run around it
    steps = _steps_of(event.run_dir / "metrics.jsonl")
    later = [step for step in steps if step >= event.step]
    twice = len(steps) - len(set(steps))
    if newer := _newer_checkpoint(event):
        return newer
    if later or twice or steps != sorted(steps):
        what = f"step {later[0] + 1}, which is still to be taken" if later else "a step twice"
        return f"metrics.jsonl has {what}: {len(steps)} lines, after {event.step} steps"
    last = _last_step(event.run_dir / "traces" / "rollouts.jsonl")
    if last is not None and last >= event.step:
        return f"rollouts.jsonl has groups of step {last + 1}, after {event.step} steps"
    return _other_manifest(event) or _other_config(event)


def missing_steps(event: RunStarted) -> list[int]:
    """Return the steps before this one, from 0, of which ``metrics.jsonl`` has no line."""
    if not (event.run_dir / "run.json").is_file():
        return []
    return sorted(set(range(event.step)) - set(_steps_of(event.run_dir / "metrics.jsonl")))


def not_kept(checkpoints: Path, step: int) -> str:
    """Return what is wrong with the checkpoint that was written before; empty if nothing.

    Older ones may have been deleted by anybody, to make room.

    Args:
        checkpoints: The folder.
        step: Its step.
    """
    if step not in sealed_steps(checkpoints):
        return f"the checkpoint of step {step}, the newest, is gone"
    latest = checkpoints / "latest"
    name = latest.resolve().name if latest.is_symlink() else _text_of(latest).strip()
    if name != f"step{step:06d}":
        return f"latest names {name or 'nothing'}, and the newest checkpoint is of step {step}"
    return ""


def _newer_checkpoint(event: RunStarted) -> str:
    there = sealed_steps(event.run_dir / "checkpoints")
    for step, path in there.items():
        if step <= event.step:
            break
        if _is_whole(path):
            return (
                f"the run goes on after {event.step} steps, and its folder has a whole "
                f"checkpoint of {step}"
            )
    if event.step and event.step not in there:
        return f"the run goes on after {event.step} steps, of which its folder has no checkpoint"
    return ""


def _is_whole(checkpoint: Path) -> bool:
    """Whether all files of a checkpoint are what its seal says."""
    try:
        files = json.loads(_text_of(checkpoint / "COMPLETE"))["files"]
        return all(
            (checkpoint / name).stat().st_size == due["size"]
            and _sha256(checkpoint / name) == due["sha256"]
            for name, due in files.items()
        )
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _sha256(path: Path) -> str:
    summed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            summed.update(block)
    return summed.hexdigest()


def _steps_of(metrics: Path) -> list[int]:
    return [line["step"] for line in _lines(_text_of(metrics)) if "step" in line]


def _last_step(rollouts: Path) -> int | None:
    if not rollouts.is_file():
        return None
    with rollouts.open("rb") as file:
        file.seek(max(0, rollouts.stat().st_size - _TAIL))
        tail = file.read().decode("utf-8", "replace")
    steps = [line["step"] for line in _lines(tail.rpartition("\n")[0].rpartition("\n")[2])]
    return steps[-1] if steps else None


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # a kill may have left a part of one
        if isinstance(found, dict):
            yield found


def _other_manifest(event: RunStarted) -> str:
    manifest = json.loads(_text_of(event.run_dir / "run.json"))
    if manifest.get("outcome") != "running":
        return f"run.json says that the run has ended ({manifest.get('outcome')})"
    told = [one.get("step") for one in manifest.get("resumed") or ()]
    if event.resumed and (not told or told[-1] != event.step):
        before = f"the last is after {told[-1]} steps" if told else "it has none"
        return f"run.json does not have this resumption after {event.step} steps; {before}"
    return ""


def _other_config(event: RunStarted) -> str:
    try:
        recorded = yaml.safe_load(_text_of(event.run_dir / "resolved.yaml"))
    except yaml.YAMLError:
        recorded = None
    if not isinstance(recorded, dict) or not event.config:
        return ""
    has, due = dict(_leaves(recorded)), dict(_leaves(event.config))
    for name in sorted(has.keys() | due.keys()):
        if str(has.get(name)) != str(due.get(name)) and _HIDDEN not in str(has.get(name)):
            return f"resolved.yaml has {name}: {has.get(name)}, and the run has {due.get(name)}"
    return ""


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a configuration says, by dotted names; empty mappings and lists say nothing."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            yield from _leaves(one, f"{name}.{place}")
    else:
        yield name, value


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
