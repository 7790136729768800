"""Copies a run's folder to a store during the run: ``run.mirror``.

A separate thread does this, so that no step waits for the network. If the store fails, it is
retried with growing pauses, and never stops a run.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rlvr_core.api import (
    CheckpointSaved,
    ConfigError,
    CountsBytes,
    EvalFinished,
    MachineError,
    RlvrError,
    StepFinished,
    Store,
)
from rlvr_core.api.services import RunObserver
from rlvr_core.builtin.jobs.copying import Behind, FolderCopy

BEHIND = ".mirror-behind"
"""File in a run's folder that exists as long as its store may not have everything."""

PATIENCE = 600.0
"""Seconds without progress after which the end of a run no longer waits for its mirror."""

GRACE = 60.0
"""The same for a run that was told to stop: managed machines shut down two minutes after notice."""

_LONGEST_WAIT = 60.0
_TRIES = 5


class RunMirror(RunObserver):
    """The mirror of a run: observes the run's events, and copies new content of the folder.

    Args:
        uri: ``run.mirror``.
        open_store: Opens the store at a URI.
        keep: How many of the newest checkpoints the store keeps, beside the best one.
        say: Shows a message to the user.

    Raises:
        PluginError: If no plugin opens such URIs; raised before the run has a folder.
    """

    def __init__(
        self,
        uri: str,
        open_store: Callable[[str], Store],
        keep: int,
        say: Callable[[str], None],
    ) -> None:
        open_store(uri)
        self._uri, self._open_store = uri.rstrip("/"), open_store
        self._keep, self._say = keep, say
        self._mirror: Mirror | None = None

    @contextlib.contextmanager
    def copying(self, folder: Path, *, fresh: bool) -> Iterator[None]:
        """Mirror a folder within the block; at its end, copy all that is left.

        Args:
            folder: The run's folder.
            fresh: Whether the run has just started.

        Raises:
            ConfigError: If the store already holds a run of this name.
        """
        store = self._open_store(f"{self._uri}/{folder.name}")
        self._mirror = Mirror(store, folder, keep=self._keep)
        self._mirror.start(fresh=fresh)
        limit = PATIENCE
        try:
            yield
        except KeyboardInterrupt:
            limit = GRACE
            raise
        finally:
            self._say("copying what is left to run.mirror")
            for text in self._mirror.close(limit):
                self._say(text)

    def step_finished(self, event: StepFinished) -> None:
        """Schedule a copy of what the step wrote."""
        self._changed()

    def eval_finished(self, event: EvalFinished) -> None:
        """Schedule a copy of what the evaluation wrote."""
        self._changed()

    def checkpoint_saved(self, event: CheckpointSaved) -> None:
        """Start copying the checkpoint at once."""
        self._changed(checkpoint=True)

    def _changed(self, *, checkpoint: bool = False) -> None:
        if self._mirror is not None:
            for text in self._mirror.changed(checkpoint=checkpoint):
                self._say(text)


class Mirror:
    """Keeps a copy of a run's folder in a store up to date.

    Args:
        store: The store to copy to.
        folder: The run's folder.
        keep: How many of the newest checkpoints the store keeps, beside the best one.
        every: Seconds between copies of growing files.
    """

    def __init__(self, store: Store, folder: Path, *, keep: int, every: float = 20.0) -> None:
        self._store = store
        self._folder = folder
        self._copy = FolderCopy(store, folder, keep)
        self._every = every
        self._moved = 0
        self._wake = threading.Condition()
        self._asked = 0
        self._done = 0
        self._closing = False
        self._failures = 0
        self._told: list[str] = []
        self._urgent = False
        self._last = 0.0
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def start(self, *, fresh: bool) -> None:
        """Start copying; from now on ``BEHIND`` is in the folder until the store has everything.

        Args:
            fresh: Whether the run has just started, so that the store must be empty for it.

        Raises:
            ConfigError: If it is not.
        """
        if fresh and self._taken():
            raise ConfigError(
                f"the store already holds another run named '{self._folder.name}'",
                where="run.mirror",
                remedy="give the run another name, or mirror it elsewhere",
            )
        (self._folder / BEHIND).touch()
        self._thread.start()

    def _taken(self) -> bool:
        try:
            return bool(self._store.list())
        except MachineError as error:
            self._told.append(f"run.mirror: {error.complaints[0].what}; the run goes on")
            return False

    def changed(self, *, checkpoint: bool = False) -> list[str]:
        """Notify the mirror that the folder has changed; never blocks.

        Args:
            checkpoint: Whether there is a new checkpoint, which is copied at once.

        Returns:
            Messages for the user since the last call.
        """
        with self._wake:
            self._asked += 1
            if checkpoint:
                self._urgent = True
                self._wake.notify_all()
        return self.news()

    def news(self) -> list[str]:
        """Return messages for the user since the last call."""
        with self._wake:
            told, self._told = self._told, []
        return told

    def close(self, limit: float) -> list[str]:
        """Copy what is left, and stop.

        Args:
            limit: Seconds without progress after which to give up.

        Returns:
            Messages for the user.
        """
        with self._wake:
            self._closing = True
            self._asked += 1
            wanted = self._asked
            self._wake.notify_all()
        last, moved = self._progress(), time.monotonic()
        while self._thread.is_alive() and time.monotonic() - moved < limit:
            with self._wake:
                if self._done >= wanted:
                    break
                self._wake.wait(0.2)
            if (now := self._progress()) != last:
                last, moved = now, time.monotonic()
        behind = self._settle()
        told = self.news()
        if behind:
            told.append(f"run.mirror lacks {behind}; copy it with: rlvr jobs push {self._folder}")
        return told

    def once(self) -> None:
        """Copy everything now, in the calling thread.

        Raises:
            RlvrError: If the store fails.
        """
        self._copy.update(everything=True)
        self._settle()

    def _progress(self) -> tuple[int, int]:
        """Return values that change while copying progresses; failed uploads count only briefly."""
        if self._failures < _TRIES and isinstance(self._store, CountsBytes):
            self._moved = self._store.moved
        return self._copy.puts, self._moved

    def _settle(self) -> Behind:
        """Return what the store lacks, and update the marker file in the folder."""
        behind = self._copy.behind()
        if not behind:
            (self._folder / BEHIND).unlink(missing_ok=True)
        return behind

    # -- the thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wait_until_due()
                wanted, closing = self._asked, self._closing
                self._urgent = False
            try:
                self._copy.update(everything=closing)
            except Exception as error:  # no error may end this thread, or the run
                self._failed(error)
                continue
            self._recovered()
            with self._wake:
                self._done, self._last = wanted, time.monotonic()
                self._wake.notify_all()
                if closing and self._asked == wanted:
                    return

    def _wait_until_due(self) -> None:
        """Wait for a new checkpoint or the end, at most ``every`` seconds."""
        while not (self._closing or self._urgent):
            left = self._last + self._every - time.monotonic()
            if left <= 0 and self._asked != self._done:
                return
            self._wake.wait(max(left, 0.5))

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, RlvrError):
            what = error.complaints[0].what
        # random, so that jobs that met the same outage do not retry together
        longest = min(_LONGEST_WAIT, 2.0 ** min(self._failures, 10))
        again = time.monotonic() + random.uniform(longest / 2, longest)
        with self._wake:
            self._urgent = True
            if self._failures == 1:
                self._told.append(f"run.mirror: {what}; the run goes on, and so do attempts")
            while (left := again - time.monotonic()) > 0 and not self._closing:
                self._wake.wait(left)
            if self._closing:
                self._wake.wait(min(1.0, longest))

    def _recovered(self) -> None:
        if self._failures:
            with self._wake:
                self._told.append(f"run.mirror works again, after {self._failures} failures")
            self._failures = 0
