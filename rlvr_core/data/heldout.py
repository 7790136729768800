"""A share of a source's problems that is held out, decided by each problem's id alone.

Whether a problem is held out does not change when rows are added, taken away or reordered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from rlvr_core.api.protocols import ComponentConfig
from rlvr_core.api.types import Problem


class Split(ComponentConfig):
    """Which share of a source is held out, and by which draw."""

    heldout: Annotated[float, Field(gt=0, lt=1)]
    """Share of the problems that is not trained on."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Another seed holds out other problems."""

    def is_heldout(self, problem_id: str) -> bool:
        """Whether the problem of this id is held out."""
        digest = hashlib.sha256(f"{self.seed}\0{problem_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < self.heldout * 2**64

    def train(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems to train on, in their order."""
        return tuple(one for one in problems if not self.is_heldout(one.id))

    def held_out(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The others, in their order."""
        return tuple(one for one in problems if self.is_heldout(one.id))
