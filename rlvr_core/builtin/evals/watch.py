"""``rlvr watch``: evaluates the checkpoints of runs as they appear, until the runs have ended.

Progress is stored only in the result folders, so that a watcher can be stopped and restarted, and a
checkpoint counts as done only if it has a result (T79).
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError, Json, PluginError, RunError, RunView
from rlvr_core.api.services import (
    CheckpointStore,
    RunFolder,
    lock_folder,
    write_atomic,
    write_failed,
)
from rlvr_core.builtin.evals.spec import differences

LASTING = (ConfigError.exit_code, PluginError.exit_code)
"""Exit codes of errors that another attempt would not fix."""
COLUMNS = ("run", "step", "task", "metric", "value", "low", "high", "n", "spoilt")


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint to evaluate.

    Attributes:
        run: The run.
        step: Step of the checkpoint.
        checkpoint: Folder of the checkpoint.
        out: Folder of the results.
    """

    run: RunFolder
    step: int
    checkpoint: Path
    out: Path

    @property
    def label(self) -> str:
        """Name for messages."""
        return f"{self.run.name} step {self.step}"

    @property
    def done(self) -> bool:
        """Whether it has a result."""
        return (self.out / "summary.json").is_file()

    @property
    def spoilt(self) -> bool:
        """Whether too many answers of a task were truncated."""
        return any(one["spoilt"] for one in _summaries(self.out / "summary.json").values())


@dataclass(slots=True)
class Watcher:
    """Evaluates checkpoints, one at a time on each device.

    Attributes:
        runs: Returns the runs to watch, including new ones.
        out: Folder of all results and of the table.
        command: The command that evaluates a job into its folder.
        devices: Values of CUDA_VISIBLE_DEVICES; None leaves it as it is.
        attempts: Number of attempts per checkpoint.
        say: Called with progress messages.
        busy: The evaluation running on each device.
        failed: Number of failed attempts of each evaluation.
        hopeless: Evaluations that would fail again at every attempt.
    """

    runs: Callable[[], Sequence[RunFolder]]
    out: Path
    command: Callable[[Job], list[str]]
    devices: Sequence[str | None]
    attempts: int
    say: Callable[[str], None]
    busy: dict[str | None, tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=dict)
    failed: dict[Path, int] = field(default_factory=dict)
    hopeless: set[Path] = field(default_factory=set)

    def watch(self, seconds: float) -> None:
        """Run until every run has ended and its checkpoints are evaluated.

        Args:
            seconds: Seconds between checks.

        Raises:
            RunError: If a checkpoint could not be evaluated; raised after all others are done.
        """
        try:
            while self.look():
                time.sleep(seconds)
        finally:
            for _, process in self.busy.values():
                process.terminate()
                process.wait()
        write_table(self.out)
        given_up = [out for out in self.failed if self._given_up(out)]
        if given_up:
            raise RunError.collect(
                [
                    Complaint(
                        f"{out.relative_to(self.out)} could not be evaluated in "
                        f"{self.failed[out]} attempts: {_last_words(out)}",
                        where=f"{out}.log",
                    )
                    for out in given_up
                ]
            )

    def look(self) -> bool:
        """Collect finished evaluations, start new ones; return whether any are left to wait for."""
        # read before listing checkpoints, so that one written in between is not missed
        runs = self.runs()
        running = any(_running(run) for run in runs)
        self._take_in()
        waiting = self._waiting(runs)
        for device in self.devices:
            if waiting and device not in self.busy:
                self._begin(waiting.pop(0), device)
        return running or bool(self.busy) or bool(waiting)

    def _take_in(self) -> None:
        for device, (job, process) in list(self.busy.items()):
            if process.poll() is None:
                continue
            del self.busy[device]
            if job.done:  # also if it ended with an error, as for truncated answers
                spoilt = ", but too many answers were cut off: spoilt" if job.spoilt else ""
                self.say(f"{job.label}: evaluated{spoilt}")
                write_table(self.out)
            elif not job.checkpoint.is_dir():
                self.say(f"{job.label}: the run took the checkpoint away before it was evaluated")
            else:
                self.failed[job.out] = self.failed.get(job.out, 0) + 1
                if process.returncode in LASTING:
                    self.hopeless.add(job.out)
                self.say(
                    f"{job.label}: failed (exit {process.returncode}): {_last_words(job.out)} "
                    f"(see {job.out}.log)"
                )

    def _given_up(self, out: Path) -> bool:
        return out in self.hopeless or self.failed.get(out, 0) >= self.attempts

    def _waiting(self, runs: Sequence[RunFolder]) -> list[Job]:
        busy = {job.out for job, _ in self.busy.values()}
        return [
            job
            for job in self._jobs(runs)
            if not job.done and job.out not in busy and not self._given_up(job.out)
        ]

    def _jobs(self, runs: Sequence[RunFolder]) -> Iterator[Job]:
        for run in runs:
            for path in sorted(CheckpointStore(run.checkpoints, 1).complete()):
                step = int(path.name.removeprefix("step"))
                yield Job(run, step, path, self.out / run.name / path.name)

    def _begin(self, job: Job, device: str | None) -> None:
        self.say(f"{job.label}: evaluating" + (f" on device {device}" if device else ""))
        job.out.parent.mkdir(parents=True, exist_ok=True)
        visible = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        with Path(f"{job.out}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(job), stdout=log, stderr=log, env=os.environ | visible
            )
        self.busy[device] = (job, process)


def _running(run: RunFolder) -> bool:
    """Whether a run may still write checkpoints; False if its process died."""
    return RunView(run).outcome == "running"


def table(out: Path) -> list[dict[str, Any]]:
    """Return one row per run, step, task and metric, from the summaries in a folder."""
    rows = []
    for path in sorted(out.glob("*/step*/summary.json")):
        run, step = path.parts[-3], int(path.parts[-2].removeprefix("step"))
        for task, summary in _summaries(path).items():
            own = {f"task:{name}": one for name, one in summary["task_metrics"].items()}
            for name, one in {**summary["metrics"], **own}.items():
                numbers = {key: one[key] for key in ("value", "low", "high", "n")}
                key = {"run": run, "step": step, "task": task, "metric": name}
                rows.append({**key, **numbers, "spoilt": summary["spoilt"]})
    return rows


def _summaries(path: Path) -> dict[str, Any]:
    """Read the summary of each task of one checkpoint, by task name."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["tasks"]
    return found


def _last_words(out: Path) -> str:
    """Return the error line at the end of an evaluation's log; else its last line."""
    lines = Path(f"{out}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip()]
    errors = [line for line in told if "error:" in line.lower()]
    return (errors or told or ["it said nothing"])[-1]


def claim(out: Path, asked: Mapping[str, Json]) -> int:
    """Lock a folder for one watcher with one set of evaluation settings.

    Args:
        out: Folder of the results; created if missing.
        asked: The evaluation settings, which are stored in the folder.

    Returns:
        The descriptor of the lock, which ends with this process.

    Raises:
        ConfigError: If the folder holds results for other settings.
        RunError: If another watcher uses it, or it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failed(error, out) from error
    lock = lock_folder(out, "wait for it, or give another --out")
    path = out / "watch.json"
    if path.exists():
        told = differences(json.loads(path.read_text(encoding="utf-8")), asked)
        if told:
            raise ConfigError.collect(
                [
                    Complaint(
                        "the folder holds results of other tasks or settings",
                        str(out),
                        (*told, "give another --out"),
                    )
                ]
            )
    write_atomic(path, json.dumps(asked, indent=1) + "\n")
    return lock


def write_table(out: Path) -> None:
    """Write ``table.json``, ``table.csv`` and ``table.md``, all with the same rows (T83).

    Raises:
        RunError: If they cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows = table(out)
    write_atomic(out / "table.json", json.dumps(rows, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(out / "table.csv", text.getvalue())
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(_cell(row[name]) for name in COLUMNS) + " |" for row in rows]
    write_atomic(out / "table.md", "\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value).replace("|", "\\|")
