"""The seed of every completion, so that no two share randomness by accident (T18)."""

from __future__ import annotations

import hashlib
import json


def completion_seed(
    run_seed: int, problem_id: str, version: int, draw_index: int, sample_index: int
) -> int:
    """A 63-bit seed that differs whenever any of the arguments does.

    Args:
        run_seed: The run's seed.
        problem_id: ``Problem.id``.
        version: Policy version that samples.
        draw_index: ``Draw.index``: a problem met twice under one version gets fresh randomness.
        sample_index: Position of the completion in its group.

    Returns:
        A number in [0, 2^63), from BLAKE2b over an unambiguous encoding; the same on every
        machine and in every Python process.
    """
    key = json.dumps([run_seed, problem_id, version, draw_index, sample_index])
    digest = hashlib.blake2b(key.encode("ascii"), digest_size=8, person=b"rlvr-seed").digest()
    return int.from_bytes(digest, "big") >> 1


WORLD = -1
"""The sample index of the world that the completions of a draw are played in."""


def turn_seed(seed: int, turn: int) -> int:
    """The seed of one turn of a conversation; that of the first is the completion's own.

    Args:
        seed: Of the completion.
        turn: Counted from 0.
    """
    if turn == 0:
        return seed
    key = json.dumps([seed, turn])
    digest = hashlib.blake2b(key.encode("ascii"), digest_size=8, person=b"rlvr-turn").digest()
    return int.from_bytes(digest, "big") >> 1
