"""Displays of a run's progress: a live bar, one line per step, or JSON lines.

A display never stops a run: if its output is closed, it falls silent.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rlvr_core.api import EvalFinished, RunStarted, StepFinished
from rlvr_core.record.jsonl import encode
from rlvr_core.record.text import printable
from rlvr_core.terminal.enduring import Enduring
from rlvr_core.terminal.facts import evaluation_line, step_facts
from rlvr_core.terminal.observer import Display
from rlvr_core.terminal.pace import Waits

LONG = 60.0
"""Seconds between two log lines about the same wait."""


def make_display(kind: str | None, total_steps: int, stream: TextIO | None = None) -> Display:
    """Return the display of this kind.

    Args:
        kind: None for ``live`` on a terminal and ``plain`` elsewhere.
        total_steps: Steps of the whole run; 0 if they are not known before it starts.
        stream: The output stream; by default stdout for ``jsonl``, stderr for the others.
    """
    if kind == "jsonl":
        return JsonDisplay(stream or sys.stdout)
    stream = stream or sys.stderr
    if kind is None:
        kind = "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    if kind == "live":
        from rlvr_core.terminal.live import Live

        return Live(stream, total_steps)
    assert kind == "plain", kind
    return Plain(stream, total_steps)


def steps_of(config: Mapping[str, object]) -> int:
    """Return the steps of the whole run, from the configuration that observers receive."""
    section = config.get("train")
    steps = section.get("steps") if isinstance(section, Mapping) else None
    return steps if isinstance(steps, int) else 0


class Lines(Display):
    """A display for people, of lines of text."""

    _planned = _finished = False

    def plan(self, lines: Sequence[str]) -> None:
        """Print the lines."""
        self._planned = True
        self._print(*lines)

    def eval_finished(self, event: EvalFinished) -> None:
        """Print the evaluation's line."""
        self._print(evaluation_line(event))

    def message(self, text: str) -> None:
        """Print the message."""
        self._print(text)

    def finish(self, lines: Sequence[str]) -> None:
        """Print the lines."""
        if not self._finished:
            self._finished = True
            self._end()
            self._print(*lines)

    def _end(self) -> None:
        """Stop what goes on beside the run."""

    def _print(self, *lines: str) -> None:
        raise NotImplementedError


class Plain(Lines):
    """One line per step, and one per minute during longer waits; for logs.

    Args:
        stream: The output stream.
        total_steps: Steps of the whole run; 0 if they are not known before it starts.
        long: Seconds between two lines about the same wait.
    """

    def __init__(self, stream: TextIO, total_steps: int, long: float = LONG) -> None:
        self._out = Enduring(stream)
        self._total = total_steps
        self._stepping = False
        self._label = ""
        self._waits, self._long = Waits(time.monotonic), long
        self._ended = threading.Event()
        self._ticks = threading.Thread(target=self._still, name="rlvr-ticks", daemon=True)

    def plan(self, lines: Sequence[str]) -> None:
        """Print the lines, and from now on also what takes long."""
        super().plan(lines)
        self._ticks.start()

    def run_started(self, event: RunStarted) -> None:
        """Set the number of steps."""
        self._total = self._total or steps_of(event.config)

    def phase(self, label: str) -> None:
        """Print phases between the plan and the first step; later, only steps are printed."""
        if self._planned and not self._stepping and label != self._label:
            self._print(f"{label} ...")
        self._label = label
        self._waits.begin(label)

    def step_finished(self, event: StepFinished) -> None:
        """Print the step's line."""
        self._stepping = True
        head = f"step {event.step + 1:>{len(str(self._total))}}/{self._total}"
        self._print("  ".join([head, *step_facts(event.metrics, event.timing)]))

    def _still(self) -> None:
        while not self._ended.wait(self._long):
            if self._waits.passed >= self._long:
                self._print(f"still {self._waits.text}")

    def _end(self) -> None:
        self._ended.set()
        if self._ticks.is_alive():
            self._ticks.join(timeout=5)

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._out.write(printable(line) + "\n")
        self._out.flush()


class JsonDisplay(Display):
    """One JSON object per event; for programs."""

    def __init__(self, stream: TextIO) -> None:
        self._out = Enduring(stream)
        self._planned = self._finished = False

    def plan(self, lines: Sequence[str]) -> None:
        """``{"event": "start", "lines": [...]}``."""
        self._planned = True
        self._event("start", lines=list(lines))

    def phase(self, label: str) -> None:
        """``{"event": "phase", "label": ...}``, from the start on."""
        if self._planned:
            self._event("phase", label=label)

    def step_finished(self, event: StepFinished) -> None:
        """``{"event": "step", "step": ..., "metrics": {...}, "timing": {...}}``."""
        metrics, timing = dict(event.metrics), dict(event.timing)
        self._event("step", step=event.step, metrics=metrics, timing=timing)

    def eval_finished(self, event: EvalFinished) -> None:
        """``{"event": "evaluation", "step": ..., "task": ..., "metrics": {...}, "n": ...}``."""
        metrics, n = dict(event.report.metrics), event.report.n
        self._event("evaluation", step=event.step, task=event.task, metrics=metrics, n=n)

    def message(self, text: str) -> None:
        """``{"event": "message", "message": ...}``."""
        self._event("message", message=text)

    def finish(self, lines: Sequence[str]) -> None:
        """``{"event": "finish", "lines": [...]}``."""
        if not self._finished:
            self._finished = True
            self._event("finish", lines=list(lines))

    def _event(self, event: str, **fields: Any) -> None:
        self._out.write(encode({"event": event, **fields}).decode("utf-8"))
        self._out.flush()
