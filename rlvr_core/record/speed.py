"""Time of a run's steps by phase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rlvr_core.record.view import RunView


def seconds_by_phase(view: RunView) -> dict[str, float]:
    """Return the mean seconds of a step by phase.

    The first step is left out where there are more, since kernels are chosen and compiled in it.
    """
    steps = list(view.step_seconds.values())
    later = steps[1:] or steps
    names = dict.fromkeys(name for line in later for name in line)
    return {name: math.fsum(line.get(name, 0.0) for line in later) / len(later) for name in names}


def phase_rows(seconds: Mapping[str, float]) -> Iterator[tuple[str, float, str]]:
    """Yield name, seconds and share of each phase, the longest first and followed by its parts."""
    whole = sum(value for name, value in seconds.items() if "." not in name)
    longest = sorted(seconds, key=lambda name: -seconds[name])
    for name in (name for name in longest if "." not in name):
        for phase in (name, *(part for part in longest if part.startswith(f"{name}."))):
            yield phase, seconds[phase], f"{seconds[phase] / whole:.1%}" if whole else ""


def lines_of(seconds: Mapping[str, float]) -> Iterator[str]:
    """Yield the phases as lines of text."""
    for phase, value, share in phase_rows(seconds):
        outer, _, inner = phase.rpartition(".")
        yield f"  {f'  {inner}' if outer else inner:<28}{value:>9.3f} s{share:>7}"
