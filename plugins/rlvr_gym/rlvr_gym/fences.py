"""Generators that fail the gate (``rlvr data check``), with the reason, and the repaired ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

from rlvr_core.api import Json

MIXTURE = "composite"
_FEW = "it has so few possible answers that a guess is right a fifth of the time or more"
_NEARLY_FEW = "one answer is right for about a fifth of the problems"
_HASH = "the same seed gives other problems in a process with another hash seed"

NOT_REPEATED = "the same seed does not give the same problems"
_NO_REFERENCE = "it gives no reference answer"

FENCED: Mapping[str, str] = {
    MIXTURE: "it is a mixture of other generators",
    "boxnet": _NO_REFERENCE,
    "graph_color": _NO_REFERENCE,
    "propositional_logic": _NO_REFERENCE,
    "rubiks_cube": _NO_REFERENCE,
    "rush_hour": _NO_REFERENCE,
    "codeio": NOT_REPEATED,
    "list_functions": NOT_REPEATED,
    "acre": _FEW,
    "aiw": _NEARLY_FEW,
    "binary_alternation": _NEARLY_FEW,
    "circuit_logic": _FEW,
    "course_schedule": _FEW,
    "family_relationships": _FEW,
    "game_of_life_halting": "its scoring gives any text full marks",
    "gcd": _FEW,
    "isomorphic_strings": _FEW,
    "mahjong_puzzle": _FEW,
    "maze": _FEW,
    "ransom_note": _FEW,
    "self_reference": _FEW,
    "syllogism": _FEW,
    "zebra_puzzles": _FEW,
    "knight_swap": _HASH,
    "polynomial_multiplication": _HASH,
    "word_ladder": _HASH,
}

MENDED: Mapping[str, Mapping[str, Json]] = {
    "letter_counting": {"min_words": 30, "max_words": 80},
    "polynomial_equations": {"min_degree": 2, "min_terms": 3},
    "rotten_oranges": {"min_n": 15, "p_oranges": 0.97, "p_rotten": 0.01},
    "shortest_path": {"p_blocked": 0.2},
    "string_insertion": {"min_string_length": 300, "max_string_length": 400},
    "string_manipulation": {
        "min_string_length": 20,
        "max_string_length": 40,
        "min_num_rules": 8,
        "max_num_rules": 12,
    },
}
"""Defaults in place of those of generators that only fail at their own: most of their problems then
have the same answer, or change nothing."""


@cache
def fenced_levels() -> Mapping[tuple[str, int], str]:
    """Return the levels of open generators that do not pass the gate, with the reason.

    From ``levels.json``, which ``benchmarks/gym_gate.py --levels`` measures.
    """
    rows = json.loads(resources.files("rlvr_gym").joinpath("levels.json").read_text("utf-8"))
    return {(row["task"], row["level"]): row["faults"][0] for row in rows if row["faults"]}
