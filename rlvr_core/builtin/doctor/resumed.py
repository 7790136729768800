"""Compares a resumed run with an uninterrupted one."""

from __future__ import annotations

import shutil
from pathlib import Path

from rlvr_core.api import Json
from rlvr_core.api.services import LATEST, RunFolder, read_jsonl
from rlvr_core.builtin.doctor.report import Answer

SMALL = 1e-3
"""Maximum difference of weights by rounding, relative to their change after the stop."""


def cut_back(folder: Path, step: int) -> None:
    """Reset a run's folder to its state after a kill at this step's checkpoint."""
    checkpoints = folder / "checkpoints"
    for path in checkpoints.glob("step*"):
        if int(path.name.removeprefix("step")) > step:
            shutil.rmtree(path)
    pointer = checkpoints / LATEST
    pointer.unlink(missing_ok=True)


def compare_runs(whole: RunFolder, resumed: RunFolder, steps: int) -> Answer:
    """Compare weights, optimizer state and metrics at the last step.

    Args:
        whole: The uninterrupted run.
        resumed: The resumed run.
        steps: Number of steps of both.
    """
    name = f"step{steps:06d}"
    ours, theirs = (_tensors(one.checkpoints / name) for one in (whole, resumed))
    middle = _tensors(whole.checkpoints / f"step{steps // 2:06d}")
    missing = sorted(ours.keys() ^ theirs.keys())
    if missing:
        return Answer(
            "fail",
            f"{len(missing)} tensors are in one checkpoint only, such as {missing[0]}",
            "a part of the run keeps state that its checkpoint does not hold",
        )
    apart, moved = 0.0, 0.0
    differing = []
    for key, one in ours.items():
        difference = float((one.double() - theirs[key].double()).abs().sum())
        apart += difference
        if key in middle:
            moved += float((one.double() - middle[key].double()).abs().sum())
        if difference:
            differing.append(key)
    lines = [_lines(one) for one in (whole, resumed)]
    steps_apart = [step for step in lines[0] if lines[0][step] != lines[1].get(step)]
    if not differing and not steps_apart:
        return Answer("ok", f"{len(ours)} tensors and the metrics of {steps} steps are identical")
    share = apart / moved if moved else float(bool(differing))
    value = (
        f"{len(differing)} of {len(ours)} tensors differ, by {share:.2g} of what the steps after "
        f"the stop changed; metrics differ in {len(steps_apart)} of {steps} steps"
    )
    remedy = (
        "the engine, the device or a verifier is not deterministic, or a component keeps state "
        "without state_dict; engine: core/transformers on a CPU is exact"
    )
    return Answer("note" if share <= SMALL else "warn", value, "" if share <= SMALL else remedy)


def _tensors(checkpoint: Path) -> dict[str, Json]:
    from safetensors.torch import load_file

    found: dict[str, Json] = {}
    for path in sorted(checkpoint.rglob("*.safetensors")):
        for key, tensor in load_file(path).items():
            found[f"{path.relative_to(checkpoint)}:{key}"] = tensor
    return found


def _lines(folder: RunFolder) -> dict[int, Json]:
    """Return the metrics of each step."""
    return {int(line["step"]): line for line in read_jsonl(folder.metrics)}
