"""The 25 constraints of IFEval (Zhou et al. 2023, arXiv 2311.07911).

What each one accepts is what the benchmark's own checker accepts, save where the plugin's README
says otherwise. The functions are our own and take time linear in the response.
"""

from __future__ import annotations

from rlvr_ifeval import ifeval_layout, ifeval_words
from rlvr_ifeval.constraint import ConstraintSet

IFEVAL = ConstraintSet("ifeval", (*ifeval_words.CONSTRAINTS, *ifeval_layout.CONSTRAINTS))
