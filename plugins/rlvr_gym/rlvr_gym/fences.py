"""Generators that do not pass the gate (``rlvr data check``), with the reason."""

from __future__ import annotations

from collections.abc import Mapping

MIXTURE = "composite"
_FEW = "it has so few possible answers that a guess is right a fifth of the time or more"
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
    "ab": "its scoring gives an empty or unrelated answer full marks on some problems",
    "acre": _FEW,
    "aiw": _FEW,
    "binary_alternation": _FEW,
    "circuit_logic": _FEW,
    "color_cube_rotation": _FEW,
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
