"""What the first steps of a run would draw, for ``rlvr run --dry-run``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.api import Sampler

STEPS = 3
IDS = 4


def preview(sampler: Sampler) -> list[str]:
    """The problems of the first steps, if no group were dropped and nothing learnt from verdicts.

    The sampler stands afterwards where it stood before.
    """
    before = sampler.state_dict()
    lines = []
    for step in range(STEPS):
        problems = [draw.problem for draw in sampler.draw(sampler.prompts_per_step, step=step)]
        sets = Counter(problem.dataset for problem in problems)
        mix = ", ".join(f"{count} of {name}" for name, count in sorted(sets.items()))
        ids = [problem.id for problem in problems[:IDS]]
        rest = f" and {len(problems) - IDS} more" if len(problems) > IDS else ""
        lines.append(f"step {step + 1} would draw {mix}: {', '.join(ids)}{rest}")
    sampler.load_state_dict(before)
    return lines
