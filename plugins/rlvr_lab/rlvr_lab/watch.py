"""``rlvr watch``: evaluates the checkpoints of runs as they appear, until the runs have ended.

Progress is stored only in the result folders, so that a watcher can be stopped and restarted, and a
checkpoint counts as done only if it has a result. A checkpoint is held from the moment it is
seen until it is evaluated.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlvr_core.api import Complaint, ConfigError, PluginError, RunError
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.view import RunView
from rlvr_lab import leash
from rlvr_lab.held import Holder
from rlvr_lab.watch_table import summaries, write_table

LASTING = (ConfigError.exit_code, PluginError.exit_code)
"""Exit codes of errors that another attempt would not fix."""
ATTEMPTS = 3
"""Number of attempts per checkpoint."""


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint to evaluate.

    Attributes:
        run: The run.
        step: Step of the checkpoint.
        checkpoint: Folder of the checkpoint, held for this watcher where the file system allows it.
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
        return any(summary["spoilt"] for summary in summaries(self.out / "summary.json").values())


@dataclass(slots=True)
class Watcher:
    """Evaluates checkpoints, one at a time on each device.

    Attributes:
        runs: The runs to watch.
        out: Folder of all results and of the table.
        command: The command that evaluates a job into its folder.
        devices: Values of CUDA_VISIBLE_DEVICES; None leaves it as it is.
        say: Called with progress messages.
        busy: The evaluation running on each device.
        failed: Number of failed attempts of each evaluation.
    """

    runs: Sequence[RunFolder]
    out: Path
    command: Callable[[Job], list[str]]
    devices: Sequence[str | None]
    say: Callable[[str], None]
    busy: dict[str | None, tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=dict)
    failed: dict[Path, int] = field(default_factory=dict)

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
        given_up = [out for out, times in self.failed.items() if times >= ATTEMPTS]
        if given_up:
            raise RunError.collect(
                [
                    Complaint(
                        f"{out.relative_to(self.out)} could not be evaluated: {_last_words(out)}",
                        where=f"{out}.log",
                    )
                    for out in given_up
                ]
            )

    def look(self) -> bool:
        """Collect finished evaluations, start new ones; return whether any are left to wait for."""
        # read before listing checkpoints, so that one written in between is not missed
        running = any(RunView(run).outcome == "running" for run in self.runs)
        self._take_in()
        waiting = self._waiting()
        free = [device for device in self.devices if device not in self.busy]
        for job, device in zip(waiting, free, strict=False):
            self._begin(job, device)
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
                lasting = process.returncode in LASTING
                self.failed[job.out] = ATTEMPTS if lasting else self.failed.get(job.out, 0) + 1
                self.say(
                    f"{job.label}: failed (exit {process.returncode}): {_last_words(job.out)} "
                    f"(see {job.out}.log)"
                )

    def _waiting(self) -> list[Job]:
        """Hold all checkpoints without a result; return those not being evaluated here."""
        busy = {job.out for job, _ in self.busy.values()}
        holder, waiting = Holder(self.out), []
        for run in self.runs:
            for step, path in holder.available(run).items():
                job = Job(run, step, path, self.out / run.name / path.name)
                if job.done:
                    holder.release(run, step)
                elif self.failed.get(job.out, 0) < ATTEMPTS and (held := holder.hold(run, path)):
                    waiting.append(replace(job, checkpoint=held))
        return [job for job in waiting if job.out not in busy]

    def _begin(self, job: Job, device: str | None) -> None:
        self.say(f"{job.label}: evaluating" + (f" on device {device}" if device else ""))
        job.out.parent.mkdir(parents=True, exist_ok=True)
        visible = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        start = [sys.executable, leash.__file__, str(os.getpid())]
        with Path(f"{job.out}.log").open("ab") as log:
            process = subprocess.Popen(
                [*start, *self.command(job)], stdout=log, stderr=log, env=os.environ | visible
            )
        self.busy[device] = (job, process)


def _last_words(out: Path) -> str:
    """Return the error line at the end of an evaluation's log; else its last line."""
    lines = Path(f"{out}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    nonempty = [line.strip() for line in lines if line.strip()]
    errors = [line for line in nonempty if "error:" in line.lower()]
    return (errors or nonempty or ["it said nothing"])[-1]
