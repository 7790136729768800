"""A share of a source's problems that is held out, decided by each problem's id alone.

Whether a problem is held out does not change when rows are added, taken away or reordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rlvr_core.api import Problem
from rlvr_core.config.model import SplitSection


def is_heldout(problem_id: str, split: SplitSection) -> bool:
    """Whether a hash of the id, as a number in [0, 1), is below ``split.heldout``."""
    digest = hashlib.sha256(f"{split.seed}\0{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < split.heldout * 2**64


def train_part(problems: Iterable[Problem], split: SplitSection) -> tuple[Problem, ...]:
    """The problems to train on, in their order."""
    return tuple(one for one in problems if not is_heldout(one.id, split))


def heldout_part(problems: Iterable[Problem], split: SplitSection) -> tuple[Problem, ...]:
    """The others, in their order."""
    return tuple(one for one in problems if is_heldout(one.id, split))
