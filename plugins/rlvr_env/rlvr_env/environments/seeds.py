"""Seeds of the turns of a conversation."""

from __future__ import annotations

import hashlib
import json


def turn_seed(seed: int, turn: int) -> int:
    """Return the seed of one turn of a conversation; the first turn has the completion's seed.

    Args:
        seed: Seed of the completion.
        turn: Index of the turn, from 0.
    """
    if turn == 0:
        return seed
    key = json.dumps([seed, turn])
    digest = hashlib.blake2b(key.encode("ascii"), digest_size=8, person=b"rlvr-turn").digest()
    return int.from_bytes(digest, "big") >> 1
