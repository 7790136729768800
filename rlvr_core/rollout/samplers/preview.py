"""Previews the first draws of a run, for ``rlvr run --dry-run``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.api import Sampler

PREVIEW_STEPS = 3
PREVIEW_IDS = 4


def preview(sampler: Sampler) -> list[str]:
    """List the problems of the first steps, if no group is dropped and no verdict is used.

    The sampler's state is restored afterwards.
    """
    before = sampler.state_dict()
    lines = []
    for step in range(PREVIEW_STEPS):
        problems = [draw.problem for draw in sampler.draw(sampler.prompts_per_step, step=step)]
        sets = Counter(problem.dataset for problem in problems)
        mix = ", ".join(f"{count} of {name}" for name, count in sorted(sets.items()))
        ids = ", ".join(problem.id for problem in problems[:PREVIEW_IDS])
        hidden = len(problems) - PREVIEW_IDS
        rest = f" and {hidden} more" if hidden > 0 else ""
        lines.append(f"step {step + 1} would draw {mix}: {ids}{rest}")
    sampler.load_state_dict(before)
    return lines
