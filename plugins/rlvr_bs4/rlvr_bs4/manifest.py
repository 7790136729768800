"""The benchmark: which tasks, in which order, with the hash of each.

The order goes round all archetypes before it comes to the same one again, so that every prefix is
balanced. A task whose hash has changed is another task, and the benchmark's version has to change.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata, resources
from pathlib import Path

from rlvr_bs4 import catalog
from rlvr_bs4.datasets import SIZES, row_id
from rlvr_bs4.generate import SEEDS, generate
from rlvr_bs4.modes import PER_ARCHETYPE
from rlvr_bs4.task import SizeName, Task, canonical
from rlvr_bs4.world import World, stream
from rlvr_core.api import DataError, Json
from rlvr_core.record.files import write_atomic

VERSION = "2.0"
ORDER = "1.0"
"""The version whose order this is: a beginning of the benchmark has the same kinds in both."""
_LIBRARIES = ("rlvr-bs4", "beautifulsoup4", "soupsieve", "lxml")


@dataclass(frozen=True, slots=True)
class Entry:
    """One task of the benchmark."""

    archetype: str
    seed: int
    size: SizeName
    sha256: str

    @property
    def problem(self) -> str:
        """Id of the problem that asks it."""
        return row_id((self.archetype, self.seed, self.size))

    def task(self) -> Task:
        """The task.

        Raises:
            DataError: If it is made in another way now.
        """
        task = generate(self.archetype, self.seed, self.size)
        if task.sha256 != self.sha256:
            raise DataError(
                f"benchmark {VERSION}: {self.archetype} seed {self.seed} size {self.size} is not "
                f"the task the manifest means",
                remedy="see all that differ: rlvr bs4 verify-manifest",
            )
        return task


def order() -> Iterator[tuple[str, int, SizeName]]:
    """Archetype, seed and size of each entry."""
    for turn in range(PER_ARCHETYPE["bench"]):
        w = World(stream("bench", ORDER, turn), training=False)
        for at, id in enumerate(w.shuffled(list(catalog.everything()))):
            yield id, SEEDS["bench"][turn], SIZES[(at + turn) % len(SIZES)]


def build() -> list[Entry]:
    """Make every entry."""
    return [Entry(*row, generate(*row).sha256) for row in order()]


def versions() -> dict[str, str]:
    """Versions of Python and of what solvers and tools work with."""
    by_name = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            by_name[name] = "absent"
    return by_name


def basis() -> dict[str, Json]:
    """Records of a benchmark result: the manifest's hash, and versions of libraries."""
    head, _ = read()
    return {"benchmark": VERSION, "manifest": str(head["sha256"]), "versions": versions()}


def digest(entries: Sequence[Entry]) -> str:
    """Hash of all entries in order: two results with it are on the same benchmark."""
    return hashlib.sha256(canonical([asdict(entry) for entry in entries]).encode()).hexdigest()


def write(path: Path, entries: Sequence[Entry]) -> None:
    """Write a manifest; the file is complete or as it was."""
    head = {
        "benchmark": VERSION,
        "entries": len(entries),
        "sha256": digest(entries),
        "versions": versions(),
    }
    lines = (head, *map(asdict, entries))
    write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path | None = None) -> tuple[dict[str, object], list[Entry]]:
    """Header and entries of a manifest; of the one that comes with the package if none is given.

    Raises:
        DataError: If it cannot be read, or is not as it was written.
    """
    source = path or resources.files("rlvr_bs4") / "bench.jsonl"
    try:
        head, *rows = [json.loads(line) for line in source.read_text("utf-8").splitlines()]
        entries = [Entry(**row) for row in rows]
        claimed = head["sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"no manifest: {error}", where=str(source)) from error
    if claimed != digest(entries):
        raise DataError("the entries do not have the hash its first line states", where=str(source))
    return head, entries
