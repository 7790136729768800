"""How a run shows its progress: a live bar, one line a step, or JSON lines.

Progress never stops a run: when whoever watches is gone, the display falls silent.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO, cast

from rlvr_core.api import EvalFinished, StepFinished
from rlvr_core.api.services import Display, brief, encode, printable


def make_display(kind: str | None, total_steps: int, stream: TextIO | None = None) -> Display:
    """The display of this kind.

    Args:
        kind: None for ``live`` on a terminal and ``plain`` elsewhere.
        total_steps: Steps of the whole run.
        stream: Where it writes; stdout for ``jsonl`` and stderr for the others when left out.
    """
    if kind == "jsonl":
        return JsonLines(stream or sys.stdout)
    stream = stream or sys.stderr
    if kind is None:
        kind = "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    if kind == "live":
        return Live(stream, total_steps)
    assert kind == "plain", kind
    return Plain(stream, total_steps)


class Plain(Display):
    """One line a step; for logs."""

    def __init__(self, stream: TextIO, total_steps: int) -> None:
        self._out = _Enduring(stream)
        self._total = total_steps
        self._stepping = False
        self._label = ""
        self._finished = False

    def plan(self, lines: Sequence[str]) -> None:
        """Print the lines."""
        self._print(*lines)

    def phase(self, label: str) -> None:
        """Print what the run does before its first step; later the steps show that it lives."""
        if not self._stepping and label != self._label:
            self._print(f"{label} ...")
        self._label = label

    def step_finished(self, event: StepFinished) -> None:
        """Print the step's line."""
        self._stepping = True
        head = f"step {event.step + 1:>{len(str(self._total))}}/{self._total}"
        self._print("  ".join([head, *step_facts(event.metrics, event.timing)]))

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
            self._print(*lines)

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._out.write(printable(line) + "\n")
        self._out.flush()


class JsonLines(Display):
    """One JSON object an event; for programs."""

    def __init__(self, stream: TextIO) -> None:
        self._out = _Enduring(stream)
        self._finished = False

    def plan(self, lines: Sequence[str]) -> None:
        """``{"event": "start", "lines": [...]}``."""
        self._event("start", lines=list(lines))

    def phase(self, label: str) -> None:
        """``{"event": "phase", "label": ...}``."""
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


class Live(Display):
    """A progress bar with the newest numbers under it, redrawn in place."""

    def __init__(self, stream: TextIO, total_steps: int) -> None:
        from rich.console import Console, Group
        from rich.live import Live as RichLive
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        self._text = Text
        self._console = Console(file=cast("TextIO", _Enduring(stream)), highlight=False)
        self._progress = Progress(
            TextColumn("steps"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("", total=total_steps)
        self._facts = ""
        self._label = ""
        self._live = RichLive(
            get_renderable=lambda: Group(
                self._progress,
                Text(self._facts, no_wrap=True, overflow="ellipsis"),
                Text(self._label, style="dim", no_wrap=True, overflow="ellipsis"),
            ),
            console=self._console,
            refresh_per_second=4,
        )
        self._finished = False

    def plan(self, lines: Sequence[str]) -> None:
        """Print the lines and begin the bar."""
        self._print(*lines)
        self._live.start()

    def phase(self, label: str) -> None:
        """Show the label under the bar."""
        self._label = f"{printable(label)} ..."

    def step_finished(self, event: StepFinished) -> None:
        """Move the bar and show the step's numbers."""
        self._facts = "  ".join(step_facts(event.metrics, event.timing))
        self._progress.update(self._task, completed=event.step + 1)

    def eval_finished(self, event: EvalFinished) -> None:
        """Print the evaluation's line above the bar."""
        self._print(evaluation_line(event))

    def message(self, text: str) -> None:
        """Print the message above the bar."""
        self._print(text)

    def finish(self, lines: Sequence[str]) -> None:
        """End the bar and print the lines."""
        if not self._finished:
            self._finished = True
            self._label = ""
            self._live.stop()
            self._print(*lines)

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(self._text(printable(line)), soft_wrap=True)


class _Enduring:
    """A stream that falls silent, without an error, when its other end is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False

    def write(self, text: str) -> int:
        if not self._gone:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._gone = True
        return len(text)

    def flush(self) -> None:
        if not self._gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def step_facts(metrics: Mapping[str, float], timing: Mapping[str, float]) -> list[str]:
    """The numbers of a step that people watch; what was not computed is left out."""
    facts = []
    if "reward/mean" in metrics:
        spread = f" ±{brief(metrics['reward/std'], 2)}" if "reward/std" in metrics else ""
        facts.append(f"reward {brief(metrics['reward/mean'])}{spread}")
    for name, label, form in (
        ("pass_rate", "pass", "{:.1%}"),
        ("kl/mean", "KL", "{:.2g}"),
        ("length/mean", "length", "{:.1f}"),
    ):
        if name in metrics:
            facts.append(f"{label} {form.format(metrics[name])}")
    if "groups/zero_variance" in metrics and metrics.get("groups/drawn"):
        equal, drawn = metrics["groups/zero_variance"], metrics["groups/drawn"]
        facts.append(f"zero-variance {equal:.0f}/{drawn:.0f}")
    if "tokens_per_second" in timing:
        facts.append(f"{_thousands(timing['tokens_per_second'])} tok/s")
    if metrics.get("verify/error_rate"):
        facts.append(f"verifier errors {metrics['verify/error_rate']:.1%}")
    if fewer := metrics.get("updates/missing"):
        made = metrics["updates/applied"] + metrics["updates/skipped"]
        facts.append(f"{made:.0f} of {made + fewer:.0f} updates: too few groups")
    if metrics.get("step_skipped"):
        facts.append("skipped: gradient not finite")
    elif metrics.get("updates/skipped"):
        facts.append(f"{metrics['updates/skipped']:.0f} updates skipped: gradient not finite")
    return facts


def evaluation_line(event: EvalFinished) -> str:
    """One evaluation in a line."""
    report = event.report
    numbers = "  ".join(f"{name} {value:.4g}" for name, value in report.metrics.items())
    return f"evaluation after {event.step} steps: {event.task}  {numbers}  ({report.n} problems)"


def _thousands(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value / 1000:.1f}k" if value >= 10_000 else f"{value:.0f}"
