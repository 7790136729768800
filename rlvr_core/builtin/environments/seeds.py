"""Seeds of the turns of a conversation."""

from __future__ import annotations

import hashlib
import json


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
