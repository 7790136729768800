"""The 58 constraints of IFBench.

Pyatkin et al., 2025, "Generalizing Verifiable Instruction Following" (arXiv 2507.02833). What an
instruction's text says is judged by ``holds``, and what the checkers of AllenAI's IFBench
(Apache-2.0) say, written anew, by ``official``; ``DIFFERENCES`` says where the two differ.
"""

from __future__ import annotations

from dataclasses import replace

from rlvr_ifeval import (
    ifbench_count,
    ifbench_custom,
    ifbench_format,
    ifbench_nesting,
    ifbench_position,
    ifbench_ratio,
    ifbench_repeat,
    ifbench_sentence,
    ifbench_words,
    official_layout,
    official_tasks,
    official_words,
)
from rlvr_ifeval.constraint import ConstraintSet

_FAMILIES = (
    ifbench_count,
    ifbench_ratio,
    ifbench_words,
    ifbench_position,
    ifbench_sentence,
    ifbench_format,
    ifbench_nesting,
    ifbench_custom,
    ifbench_repeat,
)

DIFFERENCES: dict[str, str] = {
    id: said for family in _FAMILIES for id, said in family.DIFFERENCES.items()
}
"""Where a constraint's meaning differs from upstream's checker, by its id."""


OFFICIAL = official_words.OFFICIAL | official_layout.OFFICIAL | official_tasks.OFFICIAL
"""The verdicts of upstream's checkers, by id, where they differ from the instruction's text."""


def register(constraints: ConstraintSet) -> None:
    """Add the 58 constraints of IFBench to a set."""
    for family in _FAMILIES:
        for constraint in family.CONSTRAINTS:
            constraints.register(replace(constraint, official=OFFICIAL.get(constraint.id)))
