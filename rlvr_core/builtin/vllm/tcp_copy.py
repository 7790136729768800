"""The copy of a sender's weights on another machine: one for all receivers there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rlvr_core.builtin.vllm.files import (
    PREFIX,
    candidates,
    has_room,
    hold,
    no_room,
    sweep,
)
from rlvr_core.builtin.vllm.tcp_wire import replaced

_HELD = "number"
"""Names the weights that are there, whole."""
_FETCHING = "fetching"
"""The lock of the receiver that fetches."""
_POLL = 0.02


class MachineCopy:
    """The files of one sender, fetched by one receiver and mapped by all of this machine.

    They lie in a folder named after the sender. Each receiver holds its lock, shared; the last to
    leave removes it, and what killed ones leave is removed by ``sweep``.

    Args:
        parent: Where the folder is; None for shared memory, or the temporary folder.
        sender: Name of the sender, unlike any other.
        machine: Name of the machine: a configured parent may be one that several see.
    """

    def __init__(self, parent: Path | None, sender: str, machine: str) -> None:
        self._parents = candidates(parent)
        self._name = f"{PREFIX}{sender}-{machine[:8]}-{os.getuid()}"
        self._folder: Path | None = None
        self._lock = -1

    def files(
        self,
        number: int,
        sizes: Sequence[int],
        fetch: Callable[[Sequence[tuple[Path, int]]], None],
    ) -> list[str]:
        """Return the files, fetched if no receiver of this machine has.

        Args:
            number: Of the weights.
            sizes: Of the files, in bytes.
            fetch: Writes the files, whose places and sizes it is given.

        Raises:
            MachineError: If there is no room for them.
            RunError: If newer ones are there.
        """
        folder = self._hold(sum(sizes))
        files = [folder / f"{number}-{index:05d}.safetensors" for index in range(len(sizes))]
        with _locked(folder / _FETCHING):
            held = _number_in(folder)
            if held > number:
                raise replaced(number)
            if held < number:
                self._fetch(folder, number, list(zip(files, sizes, strict=True)), fetch)
        return [str(file) for file in files]

    def drop(self, number: int) -> None:
        """Remove weights that the sender has no more: a receiver may outlive the run by long."""
        folder = self._folder
        if folder is not None:
            with contextlib.suppress(FileNotFoundError), _locked(folder / _FETCHING):
                if _number_in(folder) == number:
                    _clear(folder)

    def close(self) -> None:
        """Leave the folder; the last removes it."""
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with contextlib.suppress(BlockingIOError):  # others use it
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        os.close(self._lock)

    def _fetch(
        self,
        folder: Path,
        number: int,
        files: Sequence[tuple[Path, int]],
        fetch: Callable[[Sequence[tuple[Path, int]]], None],
    ) -> None:
        """Replace what is there: the old goes first, so that one copy exists at a time."""
        _clear(folder)
        try:
            fetch(files)
            new = folder / f"{_HELD}.new"
            new.write_text(str(number))
            new.rename(folder / _HELD)
        except BaseException:
            _clear(folder)
            raise

    def _hold(self, needed: int) -> Path:
        """Return the folder, whose lock is held from now on."""
        if self._folder is not None:
            return self._folder
        for parent in self._parents:
            sweep(parent)
        there = [one for one in self._parents if (one / self._name).is_dir()]
        there += [one for one in self._parents if has_room(one, needed)]
        if not there:
            raise no_room(needed, self._parents)
        folder = there[0] / self._name
        lock = None
        while lock is None:  # the last to use it may just have removed it
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = hold(folder, fcntl.LOCK_SH)
        self._folder, self._lock = folder, lock
        return folder


def _number_in(folder: Path) -> int:
    try:
        return int((folder / _HELD).read_text())
    except FileNotFoundError:
        return 0


def _clear(folder: Path) -> None:
    (folder / _HELD).unlink(missing_ok=True)
    for file in folder.glob("*.safetensors"):
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; it goes with the process. Whoever holds it has deadlines of its own."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL)  # not in the lock: an interrupt has to end it
        yield
    finally:
        os.close(lock)
