"""Which archetypes and seeds the ordinary suite tries: others after each change, all on demand."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rlvr_bs4 import catalog
from rlvr_bs4.world import stream


class Drawn:
    """Archetypes and seeds, drawn anew when the package's sources change."""

    whole = os.environ.get("RLVR_TEST_ALL") == "1"

    def __init__(self, name: str) -> None:
        sources = sorted(Path(catalog.__file__).parent.rglob("*.py"))
        digest = hashlib.sha256(b"".join(one.read_bytes() for one in sources))
        self._name = (name, digest.hexdigest())

    def archetypes(self, n: int, among: list[str] | None = None) -> list[str]:
        """So many archetypes; all of them on demand."""
        known = list(among or catalog.everything())
        return known if self.whole else stream(*self._name).sample(known, min(n, len(known)))

    def seeds(self, n: int, more: int, id: str = "", among: range = range(100_000)) -> list[int]:
        """So many seeds of an archetype; more of them on demand."""
        return stream(*self._name, id).sample(among, more if self.whole else n)


@pytest.fixture
def drawn(request) -> Drawn:
    """For this test."""
    return Drawn(request.node.name)
