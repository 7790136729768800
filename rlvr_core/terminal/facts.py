"""Formats the numbers of a step or an evaluation as a line."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlvr_core.api import EvalFinished
from rlvr_core.record.text import brief


def step_facts(metrics: Mapping[str, float], timing: Mapping[str, float]) -> list[str]:
    """Return the main numbers of a step as text; those not computed are left out."""
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
    if "gpu/mfu" in metrics:
        facts.append(f"MFU {100 * metrics['gpu/mfu']:.2g}%")
    if "gpu/peak_memory" in metrics:
        facts.append(f"peak {metrics['gpu/peak_memory']:.1f} GiB")
        if "sync" in timing:
            facts.append(f"sync {timing['sync']:.1f} s")
    if metrics.get("verify/error_rate"):
        facts.append(f"verifier errors {metrics['verify/error_rate']:.1%}")
    if fewer := metrics.get("updates/missing"):
        attempted = metrics["updates/applied"] + metrics["updates/skipped"]
        facts.append(f"{attempted:.0f} of {attempted + fewer:.0f} updates: too few groups")
    if metrics.get("step_skipped"):
        facts.append("skipped: gradient not finite")
    elif metrics.get("updates/skipped"):
        facts.append(f"{metrics['updates/skipped']:.0f} updates skipped: gradient not finite")
    return facts


def evaluation_line(event: EvalFinished) -> str:
    """Return one evaluation as a line."""
    report = event.report
    numbers = "  ".join(f"{name} {value:.4g}" for name, value in report.metrics.items())
    return f"evaluation after {event.step} steps: {event.task}  {numbers}  ({report.n} problems)"


def _thousands(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value / 1000:.1f}k" if value >= 10_000 else f"{value:.0f}"
