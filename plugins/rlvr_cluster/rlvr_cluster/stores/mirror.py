"""Copies a run's folder to a store during the run: ``run.mirror``.

A separate thread does this, so that no step waits for the network. If the store fails, the thread
retries with growing pauses; the run never stops for it. Only the owner of the run's place in the
store writes there (``ownership.py``); if its place is taken over, it continues in another.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlvr_cluster.stores.copying import CHECKPOINTS, Behind, FolderCopy, step_of
from rlvr_cluster.stores.known import Known, hidden
from rlvr_cluster.stores.ownership import (
    TAKE_OVER,
    NotOwnerError,
    OwnedPlace,
    Ownership,
    TakenError,
    beside,
    is_beside,
)
from rlvr_core.api import (
    CheckpointSaved,
    ConfigError,
    EvalFinished,
    MachineError,
    RefusedError,
    RlvrError,
    RunError,
    StepFinished,
    Store,
    StoredFile,
)
from rlvr_core.api.launching import RunMirror
from rlvr_core.api.progress import progress
from rlvr_core.toolkit import COMPLETE

BEHIND = ".mirror-behind"
"""File in a run's folder that exists while its store may be incomplete."""

PATIENCE = 600.0
"""Seconds without progress after which the end of a run no longer waits for its mirror."""

GRACE = 60.0
"""As above, for an interrupted run: managed machines shut down two minutes after notice."""

REFUSED_GRACE = 5.0
"""As above, if the store refuses permanently."""

_LONGEST_WAIT = 60.0
_TRIES = 5


class BehindError(RunError):
    """A run has finished, and its store lacks a part of it. Exit code 5."""

    exit_code = 5


def probe(store: Store) -> None:
    """Write, list and delete a small file, so that a refusing store is noticed before the run.

    Raises:
        MachineError: If the store fails; ``RefusedError`` if it refuses permanently.
    """
    key = f".probe-{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe"
        path.write_bytes(b"probe\n")
        store.put(path, key, None, "")
    store.list(key)
    store.delete([key])


@runtime_checkable
class CountsBytes(Protocol):
    """A store that counts what it moves: a large file that takes long is not taken for stuck."""

    moved: int


class FolderMirror(RunMirror):
    """The mirror of a run: on the run's events, it copies new content of the folder.

    Args:
        uri: ``run.mirror``.
        open_store: Opens the store at a URI.
        keep: How many of the newest checkpoints the store keeps, beside the best one.
        say: Shows a message to the user.

    Raises:
        PluginError: If no plugin opens such URIs; raised before the run has a folder.
        RefusedError: If the store refuses to be written to.
    """

    def __init__(
        self,
        uri: str,
        open_store: Callable[[str], Store],
        keep: int,
        say: Callable[[str], None],
    ) -> None:
        store = open_store(uri)
        if os.environ.get("RANK", "0") == "0":  # the process that copies
            try:
                probe(store)
            except RefusedError:
                raise
            except MachineError as error:
                say(f"run.mirror: {error.complaints[0].what}; the run goes on")
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
            ConfigError: If the store already holds a run of this name, or the place of this one
                has another owner.
            BehindError: If the run finished and the store lacks a part of it.
        """
        place = f"{self._uri}/{folder.name}"
        if place == folder.absolute().as_uri():
            raise ConfigError("the run's folder would be copied to itself", where="run.mirror")
        self._mirror = Mirror(
            self._open_store(place),
            folder,
            keep=self._keep,
            place=place,
            request=os.environ.get(TAKE_OVER),
            open_store=self._open_store,
        )
        self._mirror.start(fresh=fresh)
        try:
            yield
        except BaseException as error:
            self._close(GRACE if isinstance(error, KeyboardInterrupt) else PATIENCE)
            raise
        if behind := self._close(PATIENCE):
            raise BehindError(
                f"the run has finished, and its store lacks {behind}",
                where="run.mirror",
                remedy=f"send it: rlvr jobs push {folder}",
            )

    def _close(self, limit: float) -> Behind:
        assert self._mirror is not None
        self._say("copying what is left to run.mirror")
        for text in self._mirror.close(limit):
            self._say(text)
        return self._mirror.behind

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
                self._say(f"note: {text}")


class Mirror:
    """Keeps a copy of a run's folder in a store up to date.

    Args:
        store: The place to copy to.
        folder: The run's folder.
        keep: How many of the newest checkpoints the store keeps, beside the best one.
        every: Seconds between copies of growing files.
        place: URI of the place.
        request: Name of the user's request to take the place over, if there is one.
        open_store: Opens another place, for use when this one is taken over.

    Attributes:
        behind: What the store lacked at the end.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        keep: int,
        every: float = 20.0,
        place: str = "",
        request: str | None = None,
        open_store: Callable[[str], Store] | None = None,
    ) -> None:
        there = Known(folder).place
        if place and open_store and not request and is_beside(there, place):
            store, place = open_store(there), there  # taken over before it was started again
        self._folder, self._keep, self._uri = folder, keep, place
        self._request, self._open_store = request, open_store
        self._move_to(store, place)
        self._every = every
        self._moved = 0
        self._wake = threading.Condition()
        self._changes = 0
        self._copied_changes = 0
        self._closing = False
        self._failures = 0
        self._refused = False
        self._messages: list[str] = []
        self._urgent = False
        self._last = 0.0
        self._fresh = False
        self.behind = Behind()
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)

    def _move_to(self, store: Store, place: str) -> None:
        self._store = store
        self._known = Known(self._folder, place)
        self._owner = Ownership(store, self._known)
        self._place = OwnedPlace(store, self._owner, self._folder)
        self._copy = FolderCopy(self._place, self._folder, self._keep, self._known)

    def start(self, *, fresh: bool) -> None:
        """Start copying; from now on ``BEHIND`` is in the folder until the store has everything.

        Args:
            fresh: Whether the run has just started, so that the store must be empty for it.

        Raises:
            ConfigError: If it is not, or the place has another owner.
            RefusedError: If the store refuses to be written to.
        """
        self._fresh = fresh
        try:
            self._take()
        except RefusedError:
            raise
        except MachineError as error:
            self._messages.append(f"run.mirror: {error.complaints[0].what}; the run goes on")
        (self._folder / BEHIND).touch()
        self._thread.start()

    def _take(self) -> None:
        """Become the owner of the place."""
        if self._fresh:
            there, _ = self._owner.read()
            ours = there is not None and there.nonce in self._known.nonces
            if not ours and self._store.list():
                raise ConfigError(
                    f"the store already holds another run named '{self._folder.name}'",
                    where="run.mirror",
                    remedy="give the run another name, or mirror it elsewhere",
                )
        elif self._known.fetched and self._owner.read()[0] is None:
            self._nothing_newer()
        self._owner.take(self._request, self._nothing_newer)

    def _nothing_newer(self) -> None:
        """Refuse to overwrite files of the store that this folder has never had."""
        # a listing has no checksum, so a new file must be in a second one too
        listings = [self._store.list()]
        lacking = self._unseen(listings)
        if lacking:
            listings.append(self._store.list())
            lacking = self._unseen(listings)
        if lacking:
            raise TakenError(
                f"the store has what this folder never had, as {', '.join(lacking[:3])}",
                where="run.mirror",
                remedy=(
                    "fetch it first, into a folder of its own: rlvr jobs fetch … --to DIR",
                    "or copy this run to another place: --set run.mirror=URI",
                ),
            )

    def _unseen(self, listings: list[dict[str, StoredFile]]) -> list[str]:
        """Return the keys that are in all listings and that this folder has never had.

        Checkpoints without ``COMPLETE`` do not count: their sender was killed, and no fetch takes
        them.
        """
        here = (self._folder / CHECKPOINTS).glob("step*")
        newest = max((step_of(f"{CHECKPOINTS}{path.name}/") for path in here), default=0)
        sealed = {
            step_of(key) for listing in listings for key in listing if key.endswith(f"/{COMPLETE}")
        }
        unseen = []
        for key in sorted(set(listings[0]).intersection(*listings)):
            seen, step = self._known.files.get(key), step_of(key)
            if hidden(key) or (seen and all(seen.tag == listing[key].tag for listing in listings)):
                continue
            if step and step not in sealed:
                continue
            if key.startswith(CHECKPOINTS) and step <= newest and not seen:
                continue
            unseen.append(key)
        return unseen

    def changed(self, *, checkpoint: bool = False) -> list[str]:
        """Notify the mirror that the folder has changed; never blocks.

        Args:
            checkpoint: Whether there is a new checkpoint, which is copied at once.

        Returns:
            Messages for the user since the last call.
        """
        with self._wake:
            self._changes += 1
            if checkpoint:
                self._urgent = True
                self._wake.notify_all()
        return self.news()

    def news(self) -> list[str]:
        """Return messages for the user since the last call."""
        with self._wake:
            messages, self._messages = self._messages, []
        return messages

    def close(self, limit: float) -> list[str]:
        """Copy what is left, and stop.

        Args:
            limit: Seconds without progress after which to give up.

        Returns:
            Messages for the user.
        """
        with self._wake:
            self._closing = True
            self._changes += 1
            wanted = self._changes
            self._wake.notify_all()
        sent = self._place.puts
        with progress("files sent", lambda: self._place.puts - sent):
            self._await(wanted, limit)
        self.behind = self._settle()
        messages = self.news()
        if self.behind:
            lacks = f"run.mirror lacks {self.behind}"
            messages.append(f"{lacks}; copy it with: rlvr jobs push {self._folder}")
        return messages

    def _await(self, wanted: int, limit: float) -> None:
        """Wait until everything is copied, or until ``limit`` seconds pass without progress."""
        last, moved = self._progress(), time.monotonic()
        while self._thread.is_alive():
            if time.monotonic() - moved >= (min(limit, REFUSED_GRACE) if self._refused else limit):
                break
            with self._wake:
                if self._copied_changes >= wanted:
                    break
                self._wake.wait(0.2)
            if (now := self._progress()) != last:
                last, moved = now, time.monotonic()

    def once(self) -> None:
        """Copy everything now, in the calling thread.

        Raises:
            ConfigError: If the place has another owner.
            RlvrError: If the store fails.
        """
        self._take()
        self._copy.update(everything=True)
        self._owner.release()
        self._known.save()
        self._settle()

    def _progress(self) -> tuple[int, int]:
        """Return values that change with progress; bytes of failing uploads stop counting."""
        if self._failures < _TRIES and isinstance(self._store, CountsBytes):
            self._moved = self._store.moved
        return self._place.puts, self._moved

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
                wanted, closing = self._changes, self._closing
                self._urgent = False
            try:
                self._update(everything=closing)
            except Exception as error:  # no error may end this thread, or the run
                self._failed(error)
                continue
            self._recovered()
            with self._wake:
                self._copied_changes, self._last = wanted, time.monotonic()
                self._wake.notify_all()
                if closing and self._changes == wanted:
                    return

    def _update(self, *, everything: bool) -> None:
        try:
            if not self._owner.fence:
                self._take()
            self._copy.update(everything=everything)
            if everything:
                self._owner.release()
        except (NotOwnerError, ConfigError) as error:
            if self._open_store is None or not self._uri:
                raise
            # this process's files must not be lost with its machine
            self._uri = beside(self._uri)
            with self._wake:
                what = error.complaints[0].what
                self._messages.append(
                    f"run.mirror: {what}; this run is copied to {self._uri} instead"
                )
            self._fresh = False
            self._move_to(self._open_store(self._uri), self._uri)
            self._update(everything=everything)
        with self._wake:
            self._messages += [f"run.mirror: kept aside: {key}" for key in self._place.kept]
            self._place.kept.clear()

    def _wait_until_due(self) -> None:
        """Wait for a new checkpoint or the end, at most ``every`` seconds."""
        while not (self._closing or self._urgent):
            left = self._last + self._every - time.monotonic()
            if left <= 0 and self._changes != self._copied_changes:
                return
            self._wake.wait(max(left, 0.5))

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        waited = not self._refused
        self._refused = isinstance(error, RefusedError | NotOwnerError | ConfigError)
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, RlvrError):
            what = error.complaints[0].what
        # random, so that jobs that met the same outage do not retry together
        longest = min(_LONGEST_WAIT, 2.0 ** min(self._failures, 10))
        again = time.monotonic() + random.uniform(longest / 2, longest)
        with self._wake:
            self._urgent = True
            if self._failures == 1 or (self._refused and waited):
                self._messages.append(f"run.mirror: {what}; the run goes on, and so do attempts")
            while (left := again - time.monotonic()) > 0 and not self._closing:
                self._wake.wait(left)
            if self._closing:
                self._wake.wait(min(1.0, longest))

    def _recovered(self) -> None:
        self._refused = False
        if self._failures:
            with self._wake:
                self._messages.append(f"run.mirror works again, after {self._failures} failures")
            self._failures = 0
