"""The 58 constraints of IFBench.

Pyatkin et al., 2025, "Generalizing Verifiable Instruction Following" (arXiv 2507.02833). Each
gives the verdict of the checker of AllenAI's IFBench (Apache-2.0), written anew, also where that
is not what the instruction's text says.
"""

from __future__ import annotations

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

IFBENCH = ConstraintSet(
    "ifbench", (constraint for family in _FAMILIES for constraint in family.CONSTRAINTS)
)
