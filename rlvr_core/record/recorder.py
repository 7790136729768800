"""Writes a run's metrics and traces while it runs."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rlvr_core.api import EvalReport, Group, Json
from rlvr_core.api.problems import Fate
from rlvr_core.api.rollouts import Sampled
from rlvr_core.record.files import lock_folder, write_atomic
from rlvr_core.record.jsonl import SEGMENT_BYTES, Stream, encode, read_jsonl
from rlvr_core.record.metrics import Glossary, run_glossary, undeclared
from rlvr_core.record.rows import evaluation_rows, rollout_row
from rlvr_core.record.rundir import RunFolder

_EXACT = ("metrics", "rollouts", "evals")
"""Streams that a resumed run continues exactly where the checkpoint left them; others grow only."""


class Recorder:
    """The writers of one run's folder. Thread-safe.

    ``metrics.jsonl``, rollouts and the index of evaluations contain no times, so that a resumed run
    writes the same lines; times go to ``timing.jsonl``.

    Args:
        folder: The run's folder.
        segment_bytes: Size at which a trace file is closed and compressed.
        glossary: The metrics that may be written; only the core's if omitted.

    Raises:
        RunError: If another process writes in this folder, or the folder is not writable.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        glossary: Glossary | None = None,
    ) -> None:
        self._glossary = glossary or run_glossary()
        self.folder = folder
        self._lock = lock_folder(
            folder.path, "wait for it or stop it; rlvr show tells its host and pid (run.json)"
        )
        self._streams = {
            "metrics": Stream(folder.metrics, segment_bytes=None),
            "evals": Stream(folder.evals / "index.jsonl", segment_bytes=None),
        }
        for name in ("rollouts", "timing"):
            path = folder.traces / f"{name}.jsonl"
            self._streams[name] = Stream(path, segment_bytes=segment_bytes)

    def metrics(self, step: int, version: int, values: Mapping[str, float]) -> None:
        """Write a step's line of metrics. Times do not belong here.

        Raises:
            PluginError: If a metric is neither the core's nor declared by a component.
            RunError: If it cannot be written.
        """
        unknown = sorted(name for name in values if self._glossary.lookup(name) is None)
        if unknown:
            what = "a metric is reported that no component declares"
            raise undeclared(unknown, what, f"step {step + 1}")
        line: dict[str, Json] = {"step": step, "version": version}
        numbers = {name: _number(values[name]) for name in sorted(values)}
        line |= numbers
        odd = {name: str(value) for name, value in numbers.items() if not math.isfinite(value)}
        if odd:
            line["non_finite"] = odd
        self._streams["metrics"].write(line)

    def timing(
        self,
        step: int,
        version: int,
        seconds: Mapping[str, float],
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Write the durations of the phases of a step.

        Args:
            step: The step.
            version: The policy version at the beginning of the step.
            seconds: Seconds by phase; ``train.backward`` is a part of ``train``.
            rates: Throughputs, in units per second.
        """
        line: dict[str, Json] = {"step": step, "version": version}
        line["seconds"] = {name: round(float(value), 6) for name, value in seconds.items()}
        line["rates"] = {name: float(value) for name, value in (rates or {}).items()}
        self._streams["timing"].write(line)

    def rollout(
        self,
        step: int,
        version: int,
        group: Group,
        prompt_text: str,
        fates: Sequence[Fate],
        advantages: Sequence[float | None],
        draw_index: int,
    ) -> None:
        """Write one group with all its completions.

        Args:
            step: The step that drew the group.
            version: The trainer's version at that step.
            group: The judged completions.
            prompt_text: The prompt as the model saw it.
            fates: The fate of each completion, in order.
            advantages: The advantage of each completion, in order; None if it was not trained on.
            draw_index: Index of the draw in the run.
        """
        line = rollout_row(step, version, group, prompt_text, fates, advantages, draw_index)
        self._streams["rollouts"].write(line)

    def evaluation(
        self,
        step: int,
        version: int,
        task: str,
        temperature: float,
        report: EvalReport,
        sampled: Iterable[Sampled],
    ) -> None:
        """Write an evaluation: its completions to a separate file, then a line of the index.

        Args:
            step: Number of steps done before the evaluation.
            version: The policy version evaluated.
            task: The task's name.
            temperature: 0 for greedy.
            report: The metrics of the task.
            sampled: The judged groups, in the task's order.
        """
        name = self._evaluation_file(task, temperature, step)
        write_atomic(self.folder.evals / name, b"".join(map(encode, evaluation_rows(sampled))))
        numbers = {key: _number(report.metrics[key]) for key in report.metrics}
        self._streams["evals"].write(
            {
                "step": step,
                "version": version,
                "task": task,
                "temperature": float(temperature),
                "n": report.n,
                "metrics": numbers,
                **({"basis": dict(report.basis)} if report.basis else {}),
                "file": name,
            }
        )

    def _evaluation_file(self, task: str, temperature: float, step: int) -> str:
        taken = {line.get("file") for line in read_jsonl(self._streams["evals"].path)}
        stem = f"{_slug(task, temperature)}-step{step:06d}"
        name, copy = f"{stem}.jsonl", 1
        while name in taken:
            copy += 1
            name = f"{stem}-{copy}.jsonl"
        return name

    def offsets(self) -> dict[str, int]:
        """Flush the exactly resumable streams and return their offsets, for a checkpoint."""
        self.sync()
        return {name: self._streams[name].offset() for name in _EXACT}

    def rewind(self, offsets: Mapping[str, int]) -> list[str]:
        """Truncate the resumable streams to a checkpoint's ``offsets``; {} is the start of the run.

        Timings are kept, with a line that marks the resumption.

        Returns:
            A sentence for each file that is shorter than its offset.
        """
        missing = []
        for name in _EXACT:
            stream = self._streams[name]
            if not stream.rewind(int(offsets.get(name, 0))):
                missing.append(
                    f"{stream.path.name} is shorter than when the checkpoint was written; "
                    f"the lines that are gone stay gone"
                )
        self._streams["timing"].rewind(sys.maxsize)  # only a torn last line goes
        self._streams["timing"].write({"resumed": datetime.now(UTC).isoformat()})
        self.sync()
        return missing

    def sync(self) -> None:
        """Flush everything to disk."""
        for stream in self._streams.values():
            stream.sync()

    def close(self) -> None:
        """Close all files; safe to call twice."""
        for stream in self._streams.values():
            stream.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NullRecorder:
    """The recorder of a process other than rank 0, which has the records of all processes."""

    def metrics(self, *_: Any) -> None:
        """Do nothing."""

    timing = rollout = evaluation = sync = metrics

    def offsets(self) -> dict[str, int]:
        """Return an empty mapping: rank 0 writes the checkpoint."""
        return {}

    def rewind(self, offsets: Mapping[str, int]) -> list[str]:
        """Return an empty list: there is no stream to truncate."""
        return []


def _number(value: Any) -> int | float:
    return value if type(value) is int else float(value)


def _slug(task: str, temperature: float) -> str:
    plain = re.sub(r"[^A-Za-z0-9.-]+", "_", task).strip("._-")[:80] or "task"
    return f"{plain}-t{float(temperature):g}"
