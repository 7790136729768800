"""Generators that do not pass the gate (``rlvr data check``), with the reason."""

from __future__ import annotations

from collections.abc import Mapping

MIXTURE = "composite"
_FEW = "it has so few possible answers that a guess is right a fifth of the time or more"
_HASH = "the same seed gives other problems in a process with another hash seed"

FENCED: Mapping[str, str] = {
    MIXTURE: "it is a mixture of other generators",
    "boxnet": "it gives no reference answer",
    "graph_color": "it gives no reference answer",
    "propositional_logic": "it gives no reference answer",
    "rubiks_cube": "it gives no reference answer",
    "rush_hour": "it gives no reference answer",
    "codeio": "the same seed does not give the same problems",
    "list_functions": "the same seed does not give the same problems",
    "ab": "its scoring gives an empty or unrelated answer full marks on some problems",
    "acre": _FEW,
    "aiw": _FEW,
    "binary_alternation": _FEW,
    "circuit_logic": _FEW,
    "coin_flip": "its scoring gives the number 0 full marks on most problems",
    "color_cube_rotation": _FEW,
    "course_schedule": _FEW,
    "family_relationships": _FEW,
    "game_of_life_halting": "its scoring gives any text full marks",
    "gcd": _FEW,
    "gsm_symbolic": "its scoring does not see the sign of a number",
    "isomorphic_strings": _FEW,
    "mahjong_puzzle": _FEW,
    "maze": _FEW,
    "puzzle24": "its scoring gives the answers of other problems full marks",
    "ransom_note": _FEW,
    "self_reference": _FEW,
    "syllogism": _FEW,
    "zebra_puzzles": _FEW,
    "knight_swap": _HASH,
    "polynomial_multiplication": _HASH,
    "word_ladder": _HASH,
}
