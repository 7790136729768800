"""One owner for each run in a store, so that two writers never mix their records.

Beside the run's files lies an owner object, ``.owner.json``. A writer takes it by a conditional
write: it creates the object if there is none, or replaces it if it has not changed since it was
read. The object holds a fencing token, a number that rises with every change of owner, and a nonce
of the owner. Before each write and deletion the owner checks that the object is still its own. If
it is not, the owner stops writing. A place is taken over only if the user asks for it.

Checking and writing are two requests, and a writer may sleep between them. So there is a second
guard: each write expects the tag that the file had for this writer, and a file that another writer
has changed is copied to ``.kept/`` before it is replaced.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rlvr_cluster.stores.known import Known, begins_with
from rlvr_core.api import ChangedError, ConfigError, MachineError, Store, StoredFile

OWNER = ".owner.json"
"""Key of the owner object."""

HOLDER = "RLVR_OWNER"
"""Environment variable: the name of a job, whose attempts count as one owner."""

TAKE_OVER = "RLVR_TAKE_OVER"
"""Environment variable: the name of a request to take over the run's place, granted once."""

_APART = "-apart-"

RENEWED = 60.0
"""Seconds after which an owner renews its object, to show that it is still at work."""

_TRIES = 20


class NotOwnerError(MachineError):
    """Another process has taken over the place that this process wrote to."""


class TakenError(ConfigError):
    """A place already has an owner, and the user has not asked to take it over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of an owner object.

    Attributes:
        fence: The fencing token: one more with every change of owner or session.
        nonce: Nonce of the session that wrote it.
        holder: Name of the job whose attempts count as one owner; may be empty.
        where: Host and process, for people to read.
        renewed: Seconds since 1970 by the owner's clock, for people to read.
        released: Whether the owner has ended and sent everything.
        granted: Requests to take over that were granted so far.
    """

    fence: int
    nonce: str
    holder: str = ""
    where: str = ""
    renewed: float = 0.0
    released: bool = False
    granted: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: bytes) -> Claim:
        """Parse an owner object.

        Raises:
            ValueError: If the text is not an owner object.
        """
        data = json.loads(text)
        try:
            return cls(**{**data, "fence": int(data["fence"]), "granted": tuple(data["granted"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"no owner object: {error}") from error

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.renewed))
        state = "ended" if self.released else "last seen"
        return f"{self.holder or self.where} ({state} {at} by its clock, fence {self.fence})"


def beside(place: str) -> str:
    """Return a new place beside one that a later attempt has taken, for the earlier attempt."""
    return f"{place}{_APART}{uuid.uuid4().hex[:6]}"


def is_beside(name: str, place: str = "") -> bool:
    """Return whether ``beside`` made a name, from the given place or from any."""
    return bool(re.fullmatch(f"{re.escape(place) or '.+'}({_APART}[0-9a-f]{{6}})+", name))


class Ownership:
    """The ownership of one place by this process.

    Args:
        store: The place.
        known: The folder's record of the place; it keeps the nonces across a kill.
    """

    def __init__(self, store: Store, known: Known) -> None:
        self._store = store
        self._known = known
        self._holder = os.environ.get(HOLDER, "")
        self._claim: Claim | None = None
        self._tag = ""
        self._renewed = 0.0

    @property
    def fence(self) -> int:
        """The fencing token; 0 before the place was taken."""
        return self._claim.fence if self._claim is not None else 0

    def take(self, request: str | None, may: Callable[[], None]) -> None:
        """Become the owner.

        Args:
            request: Name of the user's request to take over, if there is one.
            may: Raises ``TakenError`` if this folder lacks files of the place. Called if the place
                belongs to another owner or a later attempt, and again after a takeover.

        Raises:
            TakenError: If the place has another owner and the user did not ask to take it over.
            NotOwnerError: If a later attempt of this job has continued there.
            MachineError: If the store fails.
        """
        for _ in range(_TRIES):
            there, tag = self.read()
            if there is None:
                taken_over = False
                claim = self._new(1, ())
            elif self._ours(there):
                self._refuse_superseded(there, may)
                taken_over = False
                claim = self._new(there.fence + 1, there.granted)
            elif request and request not in there.granted:
                may()
                taken_over = True
                claim = self._new(there.fence + 1, (*there.granted[-15:], request))
            else:
                raise TakenError(
                    f"this run's place in the store belongs to {there}",
                    where="run.mirror",
                    remedy=(
                        "wait until that one has ended, or stop it",
                        "to continue from here in its place, use --take-over",
                        "or copy to another place: --set run.mirror=URI",
                    ),
                )
            self._known.nonces.append(claim.nonce)
            self._known.save()  # before it is sent: a kill in between must not lose the place
            try:
                self._tag = self._write(claim, tag)
            except ChangedError:
                continue  # another process was faster
            self._claim, self._renewed = claim, time.monotonic()
            if taken_over:
                may()
            return
        raise MachineError("the owner of the run's place in the store changes all the time")

    def from_here(self) -> bool:
        """Return whether the files of the place were sent from this folder, by any process."""
        if not self._known.nonces:
            return False
        there, _ = self.read()
        return there is not None and there.nonce in self._known.nonces

    def check(self) -> None:
        """Check before a write that this process still is the owner, and renew the claim.

        Raises:
            NotOwnerError: If it is not.
            MachineError: If the store fails.
        """
        assert self._claim is not None, "nothing is written to a place that was not taken"
        stored = self._store.list(OWNER).get(OWNER)
        if stored is None:  # deleted by hand: still ours, unless another is faster
            self._put(self._claim, "")
        elif stored.tag != self._tag:
            there, tag = self.read()
            if there is None or there.nonce != self._claim.nonce:
                raise self._lost(there)
            self._tag = tag
        if time.monotonic() - self._renewed > RENEWED:
            self._put(self._claim, self._tag)

    def release(self) -> None:
        """Record that this owner has ended and has sent everything; it remains the owner."""
        if self._claim is not None:
            self._put(replace(self._claim, released=True), self._tag)

    def read(self) -> tuple[Claim | None, str]:
        """Return the owner object and its tag, or None and "" if there is none.

        Raises:
            MachineError: If it cannot be read or is damaged.
        """
        stored: StoredFile | None = None
        for _ in range(2):  # a listing has no checksum: one may lack what is there
            stored = stored or self._store.list(OWNER).get(OWNER)
        if stored is None:
            return None, ""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "owner"
            try:
                self._store.get(OWNER, path)
                return Claim.read(path.read_bytes()), stored.tag
            except FileNotFoundError:
                return None, ""
            except ValueError as error:
                raise MachineError(
                    f"the store's {OWNER} is damaged: {error}",
                    remedy="look who writes there, then delete it",
                ) from error

    def _new(self, fence: int, granted: tuple[str, ...]) -> Claim:
        return Claim(fence, uuid.uuid4().hex, self._holder, _here(), time.time(), False, granted)

    def _ours(self, there: Claim) -> bool:
        same_job = bool(self._holder) and there.holder == self._holder
        return same_job or there.nonce in self._known.nonces

    def _refuse_superseded(self, there: Claim, may: Callable[[], None]) -> None:
        """Refuse an attempt that lost the place to a later one and was started again.

        If the later one has sent nothing that this folder lacks, the place may be taken.
        """
        if not self._known.nonces or there.nonce in self._known.nonces:
            return
        try:
            may()
        except TakenError as error:
            raise NotOwnerError(
                f"a later attempt of this job has gone on in this run's place: {there}",
                where="run.mirror",
                remedy=error.complaints[0].remedy,
            ) from error

    def _put(self, claim: Claim, expect: str) -> None:
        claim = replace(claim, renewed=time.time())
        try:
            self._tag = self._write(claim, expect)
        except ChangedError as error:
            there, tag = self.read()
            if there is None or there.nonce != claim.nonce:
                raise self._lost(there) from error
            self._tag = tag  # the response to our earlier renewal was lost
        self._claim, self._renewed = claim, time.monotonic()

    def _write(self, claim: Claim, expect: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "owner"
            path.write_text(json.dumps(asdict(claim)) + "\n", encoding="utf-8")
            return self._store.put(path, OWNER, None, expect)

    def _lost(self, there: Claim | None) -> NotOwnerError:
        return NotOwnerError(
            f"this run's place in the store was taken over by {there or 'somebody'}",
            where="run.mirror",
            remedy="this process writes there no more",
        )


class OwnedPlace:
    """A place in a store, with a guard on every request that changes it.

    Args:
        store: The place.
        owner: The ownership; taken before the first write.
        folder: The run's folder, for temporary files.

    Attributes:
        puts: Number of files sent so far.
        kept: Keys of the copies of files that another writer had changed.
    """

    def __init__(self, store: Store, owner: Ownership, folder: Path) -> None:
        self.store = store
        self.owner = owner
        self.puts = 0
        self.kept: list[str] = []
        self._folder = folder
        self._tags: dict[str, str] = {}

    def learn(self, known: Known) -> Mapping[str, str]:
        """Read which files the place has; return their tags.

        Args:
            known: What this folder has sent or fetched. A record that has changed since, or that
                this folder never had, belongs to another writer.
        """
        there = {key: file.tag for key, file in self.store.list().items() if key != OWNER}
        files = known.files
        ours = {key for key in there if key in files or key.startswith("checkpoints/")}
        self._tags = {key: files[key].tag if key in files else there[key] for key in ours}
        return there

    def put(self, path: Path, key: str, size: int | None = None) -> str:
        """Store a file; return its tag.

        Raises:
            NotOwnerError: If this process is no longer the owner.
            MachineError: If the store fails.
        """
        self.owner.check()
        try:
            tag = self.store.put(path, key, size, self._tags.get(key, ""))
        except ChangedError:
            self.owner.check()
            tag = self.store.put(path, key, size, self._keep(key, path))
        self._tags[key] = tag
        self.puts += 1
        return tag

    def delete(self, keys: list[str]) -> None:
        """Delete files; keep copies of those that another writer has changed."""
        if not keys:
            return
        self.owner.check()
        there = self.store.list(_common(keys))
        for key in there.keys() & set(keys):
            if there[key].tag != self._tags.get(key):
                self._keep(key, None)
        if there.keys() & set(keys):
            self.store.delete(sorted(there.keys() & set(keys)))
        for key in keys:
            self._tags.pop(key, None)

    def altered(self) -> set[str]:
        """Return the keys of files that have changed since this process stored them."""
        there = self.store.list()
        altered = {key for key, tag in self._tags.items() if _tag(there, key) != tag}
        for key in altered - there.keys():
            del self._tags[key]
        return altered

    def _keep(self, key: str, ours: Path | None) -> str:
        """Copy a file that another writer has changed to ``.kept/``; return its tag."""
        tag = _tag(self.store.list(key), key)
        if tag is None:
            return ""
        with tempfile.TemporaryDirectory() as folder:
            aside = Path(folder) / "kept"
            try:
                self.store.get(key, aside)
            except FileNotFoundError:
                return ""
            # an older state of a growing file is contained in the newer one
            if ours is None or not begins_with(ours, aside):
                there = f".kept/{self.owner.fence:04d}/{key}-{uuid.uuid4().hex[:8]}"
                self.store.put(aside, there, None, "")
                self.kept.append(there)
        return tag


def _tag(there: Mapping[str, StoredFile], key: str) -> str | None:
    return there[key].tag if key in there else None


def _common(keys: list[str]) -> str:
    """Return the common prefix of all keys."""
    low, high = min(keys), max(keys)
    pairs = enumerate(zip(low, high, strict=False))
    return low[: next((n for n, (a, b) in pairs if a != b), min(len(low), len(high)))]


def _here() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
