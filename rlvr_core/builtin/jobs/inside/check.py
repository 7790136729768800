"""The check of the machines that the processes of a job make before the model is loaded.

It has two halves. Before the processes join, each tells its facts to the store that the launcher's
agents meet at, and process 0 compares them: a process that does not come, other code or a driver
that is too old ends the job there, by one message. Once they have joined, an all-reduce shows
whether they reach each other, and how fast. Neither waits without a deadline.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from rlvr_core.api import MachineError, RlvrError
from rlvr_core.api.services import LOST, Ranks, Resolved, RunObserver, ToldElsewhereError
from rlvr_core.builtin.jobs.inside.compare import Found, judge
from rlvr_core.builtin.jobs.inside.facts import Facts, facts_here
from rlvr_core.builtin.jobs.inside.link import device_here, judge_link, measure, named, within

ALONE = "RLVR_MACHINES"
"""Environment variable with a file for the findings: the check is then all that is done."""

COMING = 600.0
"""Seconds within which every process has to come to the check, as machines to their meeting."""
LINKING = 120.0
"""Seconds that the all-reduces may take, but for those of ``MEASURED``."""
MEASURED = 10.0
"""Seconds of all-reduces where the check is all that is done."""
_WORDS = 3.0
"""Seconds that processes leave the one that reports the fault, before their end ends it too."""
_SLACK = 60.0

_PREFIX = "rlvr/machines"


def examined(resolved: Resolved, display: RunObserver) -> Machines:
    """The service ``core/machines``: the first half of the check.

    Returns:
        What makes the second, once the processes have joined.

    Raises:
        MachineError: If machines cannot do the run; raised by one process.
    """
    display.phase("the machines of the job")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    facts = facts_here(resolved)
    store = _agent_store() if world > 1 else None
    coming = min(COMING, resolved.config.run.timeout + _SLACK)
    if store is None:
        found = judge([facts])
    else:
        try:
            found = exchange(store, facts, world, coming)
        except KeyboardInterrupt:
            if facts.rank == 0:
                raise
            raise ToldElsewhereError(130) from None
    file = os.environ.get(ALONE)
    refuse_wrong(found, alone=file is not None)
    return Machines(resolved, found, facts, store, display, Path(file) if file else None)


class Machines:
    """The check, of which the first half is done.

    Args:
        resolved: The configuration of the run.
        found: What it found.
        facts: This process's.
        store: The store of the launcher's agents; None if there is none.
        display: Shown what is found.
        file: Where the findings go if the check is all that is done.
    """

    def __init__(
        self,
        resolved: Resolved,
        found: list[Found],
        facts: Facts,
        store: Any,
        display: RunObserver,
        file: Path | None,
    ) -> None:
        self._resolved = resolved
        self._found, self._facts, self._store = found, facts, store
        self._display, self._file = display, file

    def connected(self, ranks: Ranks) -> None:
        """Make the second half, now that the processes have joined, and show what was found.

        Raises:
            MachineError: If an all-reduce does not end.
            ToldElsewhereError: If the check is all that is done: there is no fault to report.
        """
        if ranks.world > 1:
            self._found += self._link(ranks)
        if self._file is not None:
            good, what, remedy = self._resolved.host.service("core/model-fits")(
                self._resolved, ranks
            )
            self._found.append(Found("model", what, good, remedy=remedy))
            if self._facts.first:
                self._file.write_text(json.dumps([asdict(one) for one in self._found]))
            if ranks.world > 1:
                ranks.part()
            raise ToldElsewhereError(0)
        for one in self._found:
            if one.good is None or one.check in ("machines", "all-reduce"):
                self._display.message(one.line())

    def _link(self, ranks: Ranks) -> Sequence[Found]:
        if self._store is not None:
            self._store.set(f"{_PREFIX}/linking/{ranks.index}", b"1")
        per_machine = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
        lasting = MEASURED if self._file else 0.0
        place = device_here()
        machines = ranks.world // per_machine
        link = within(LINKING + lasting, lambda: measure(ranks, machines, lasting, place))
        if link is not None:
            return list(judge_link(link))
        raise unlinked(self._store, ranks.world, LINKING + lasting)


def unlinked(store: Any, world: int, seconds: float) -> MachineError:
    """Return why all-reduces did not end in time, as far as it can be seen."""
    there = f"{_PREFIX}/linking"
    missing = _missing(store, there, world) if store is not None else []
    if missing:
        what = f"{named(missing, _machine_of)} did not come to an all-reduce within {seconds:g} s"
        remedy: tuple[str, ...] = ("look at its output, and what it does: py-spy dump",)
    else:
        what = f"an all-reduce of all {world} processes did not end within {seconds:g} s"
        remedy = (
            "all have come, but cannot send to each other: a firewall between the machines, or an "
            "interface that leads elsewhere (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)",
            "NCCL_DEBUG=INFO shows what NCCL tries",
        )
    return MachineError(what, where="the check of the machines", remedy=remedy)


def exchange(store: Any, facts: Facts, world: int, seconds: float) -> list[Found]:
    """Publish this process's facts, and return what process 0 finds in those of all.

    Process 0 alone reads them and publishes what it finds: the store is read a few times for each
    process, however many there are.

    Args:
        store: A store that all processes reach.
        facts: This process's.
        world: Number of processes.
        seconds: Deadline.

    Raises:
        MachineError: If a process does not come; raised in process 0, or else in the first that
            is there.
        ToldElsewhereError: In the others.
    """
    try:
        store.set(f"{_PREFIX}/facts/{facts.rank}", facts.as_json())
        if facts.rank == 0:
            found = _compared(store, world, seconds)
            store.set(f"{_PREFIX}/found", json.dumps([asdict(one) for one in found]))
            return found
        # process 0 reports who is missing after its own deadline
        if not _there(store, [f"{_PREFIX}/found"], seconds + _WORDS):
            raise _absent(store, facts.rank, world, seconds)
        found_there = json.loads(store.get(f"{_PREFIX}/found"))
    except RuntimeError as error:  # its keeper, machine 0, is gone
        raise ToldElsewhereError(LOST) from error
    return [Found(**(one | {"remedy": tuple(one["remedy"])})) for one in found_there]


def _compared(store: Any, world: int, seconds: float) -> list[Found]:
    keys = [f"{_PREFIX}/facts/{rank}" for rank in range(world)]
    if _there(store, keys, seconds):
        return judge([Facts.of_json(store.get(key)) for key in keys])
    missing = _missing(store, f"{_PREFIX}/facts", world)
    return [
        Found(
            "processes",
            f"{named(missing, _machine_of)} did not come to the check of the machines within "
            f"{seconds:g} s",
            False,
            remedy=(
                "look at its output: it may have failed, hang, or still import from a slow disk",
            ),
        )
    ]


def _absent(store: Any, rank: int, world: int, seconds: float) -> RlvrError:
    """Process 0 says nothing: the first process that is there reports it."""
    missing = _missing(store, f"{_PREFIX}/facts", world)
    if rank > next(one for one in range(world) if one not in missing):
        time.sleep(_WORDS)
        return ToldElsewhereError(LOST)
    return MachineError(
        f"process 0 did not come to the check of the machines within {seconds:g} s",
        where="the check of the machines",
        remedy="look at the output of machine 0: it may have failed, or hang",
    )


def refuse_wrong(found: Sequence[Found], *, alone: bool) -> None:
    """End the process if something is wrong, by the word of process 0.

    Args:
        found: The findings.
        alone: Whether the check is all that is done: then the findings are the answer, unless the
            processes cannot even meet.

    Raises:
        MachineError: In process 0.
        ToldElsewhereError: In the others.
    """
    wrong = [one for one in found if one.good is False]
    if not wrong or (alone and not any(one.check == "processes" for one in wrong)):
        return
    if os.environ.get("RANK", "0") == "0":
        raise MachineError.collect([one.complaint() for one in wrong])
    time.sleep(_WORDS)
    raise ToldElsewhereError(LOST)


def _there(store: Any, keys: list[str], seconds: float) -> bool:
    """Wait for keys; signals are heard meanwhile."""
    until, pause = time.monotonic() + seconds, 0.01
    while not store.check(keys):
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(1.5 * pause, 0.5)
    return True


def _missing(store: Any, prefix: str, world: int) -> list[int]:
    return [rank for rank in range(world) if not store.check([f"{prefix}/{rank}"])]


def _machine_of(rank: int) -> int:
    return rank // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _agent_store() -> Any:
    """The store that the agents of torch's launcher keep; None if these are not there."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() != "true":
        return None
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=_SLACK))
