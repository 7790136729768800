"""Files kept elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a store.

    Attributes:
        size: In bytes.
        tag: Changes whenever the content does.
    """

    size: int
    tag: str


@runtime_checkable
class Store(Protocol):
    """Files under one URI of a store elsewhere, by keys such as ``checkpoints/latest``.

    Each call tries again by itself for a while when the store or the way there fails; what it
    raises then is a ``MachineError``. Calls come from several threads.

    One that counts the bytes it moves has the count as ``moved``: a large file that takes long is
    then not mistaken for one that is stuck.
    """

    def list(self, prefix: str = "") -> dict[str, StoredFile]:
        """Every file whose key begins so."""

    def put(self, path: Path, key: str, size: int | None = None) -> None:
        """Store a file; on return the store has been seen to hold exactly this content.

        Args:
            path: The file.
            key: Where it goes.
            size: Only its first bytes, for a file that grows meanwhile.

        Raises:
            FileNotFoundError: If the file is not there, or is taken away meanwhile.
        """

    def get(self, key: str, path: Path, told: Callable[[int], None] | None = None) -> None:
        """Fetch a file: whole under its name, or not there at all.

        Args:
            key: The file.
            path: Where it goes; folders are made.
            told: Told of bytes as they come.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Take files away; those that are not there are no fault."""
