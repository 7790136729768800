"""What lies between the processes of a run: an all-reduce with its bandwidth, and their clocks."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlvr_core.api.services import Ranks
from rlvr_core.builtin.jobs.inside.compare import Found, listed

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_MIB = 2**20
_LONG = 0.1
"""Seconds that an all-reduce should take to be measured."""
_MOST = {"cpu": 16 * _MIB, "cuda": 256 * _MIB}
_SLOW = 0.1e9
"""Bytes a second between machines below which a warning is given: less than gigabit Ethernet."""
_APART = 2.0
"""Seconds that clocks may differ by."""
_ROUNDS = 3
_VIA = re.compile(r"NCCL INFO Channel \d+(?:/\d+)? : .* via (\S.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Link:
    """What was measured; the same in every process, but for the clocks.

    Attributes:
        processes: Number of processes.
        machines: Number of machines.
        size: Bytes of an all-reduce.
        seconds: How long one takes, in the slowest process.
        backend: ``nccl`` or ``gloo``.
        ways: Transports that were taken; empty if unknown.
        apart: By how many seconds each process's clock is before or behind that of process 0.
    """

    processes: int
    machines: int
    size: int
    seconds: float
    backend: str
    ways: tuple[str, ...]
    apart: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Bytes a second that each process sends: those of a ring, as in NCCL's tests."""
        return 2 * (self.processes - 1) / self.processes * self.size / self.seconds


def judge_link(link: Link) -> Iterator[Found]:
    """What the figures say."""
    way = f"{link.backend} ({', '.join(link.ways) or 'transport unknown'})"
    gradients = 4e9 / link.size * link.seconds
    figures = (
        f"all-reduce of {link.size / _MIB:.0f} MiB over {link.processes} processes: "
        f"{link.rate / 1e9:.3g} GB/s by {way}; gradients of 1e9 parameters would take "
        f"{gradients:.2g} s a step"
    )
    slow = link.machines > 1 and link.rate < _SLOW
    yield Found(
        "all-reduce",
        figures,
        None if slow else True,
        remedy=(
            "the slowest way sets the pace: look at the interface (NCCL_SOCKET_IFNAME, "
            "GLOO_SOCKET_IFNAME), and for another job on that network",
        )
        if slow
        else (),
    )
    if link.machines > 1 and "NET/Socket" in link.ways:
        yield Found(
            "transport",
            "NCCL goes between machines over TCP",
            None,
            remedy=(
                "where they have EFA or InfiniBand, the image needs its library: rlvr docs "
                "sagemaker, or NCCL_DEBUG=INFO to see why it is not taken",
            ),
        )
    furthest = max(link.apart, key=abs)
    rank, off = link.apart.index(furthest), abs(furthest) > _APART
    yield Found(
        "clocks",
        f"the clock of process {rank} is {furthest:+.1f} s from that of process 0"
        if off
        else f"within {max(abs(furthest), 1e-3):.3f} s of that of process 0",
        None if off else True,
        remedy=("set it by NTP: times in traces, and the age of an owner, are off by that much",)
        if off
        else (),
    )


def device_here() -> torch.device:
    """Return the device that this thread's process group works on."""
    import torch

    cuda = torch.cuda.is_available()
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")


def measure(ranks: Ranks, machines: int, lasting: float, place: torch.device) -> Link:
    """Sum tensors over all processes until one takes long enough to be measured. A collective.

    What it sums over is the run's own process group, whose connections a run needs anyway.

    Args:
        ranks: The processes, more than one.
        machines: Number of their machines.
        lasting: Seconds to go on with the largest tensor; 0 for once.
        place: The device, which is another thread's current one.
    """
    import torch
    import torch.distributed as dist

    cuda = place.type == "cuda"
    if cuda:
        torch.cuda.set_device(place)

    def summed(tensor: Any, op: Any = dist.ReduceOp.SUM) -> Any:
        dist.all_reduce(tensor, op=op)
        if cuda:
            torch.cuda.synchronize(place)
        return tensor

    def slowest(seconds: float) -> float:
        own = torch.tensor([seconds], dtype=torch.float64, device=place)
        return float(summed(own, dist.ReduceOp.MAX).item())

    def timed(size: int) -> float:
        tensor = torch.zeros(size // 4, device=place)
        begun = time.perf_counter()
        summed(tensor)
        return slowest(time.perf_counter() - begun)

    with nccl_log(cuda) as log:
        size = _MIB
        timed(size)  # connections are made by the first
        took = timed(size)
        ways = transports(log()) if cuda else _gloo_ways()
    while took < _LONG and size < _MOST[place.type]:
        size *= 2
        took = timed(size)
    times, until = [took], time.monotonic() + lasting
    while slowest(float(time.monotonic() < until)):
        times.append(timed(size))
    if cuda:  # what is planned from the card's free memory comes after this
        torch.cuda.empty_cache()
    all_ways = sorted({way for some in ranks.gather(ways) for way in some})
    return Link(
        processes=ranks.world,
        machines=machines,
        size=size,
        seconds=statistics.median(times),
        backend="nccl" if cuda else "gloo",
        ways=tuple(all_ways),
        apart=_apart(ranks),
    )


def _apart(ranks: Ranks) -> tuple[float, ...]:
    """How far each clock is from that of process 0, of some rounds the least.

    All look at their clocks right after a collective, so that what is measured is their distance
    and by how much processes come out of it at different times.
    """
    rounds = []
    for _ in range(_ROUNDS):
        ranks.gather(None)
        now = ranks.gather(time.time())
        rounds.append([one - now[0] for one in now])
    return tuple(min(each, key=abs) for each in zip(*rounds, strict=True))


def _gloo_ways() -> list[str]:
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    return [f"TCP, interface {name}" if name else "TCP, interface of this machine's name"]


def transports(log: str) -> list[str]:
    """Return the transports that NCCL says it took: P2P/CUMEM, SHM, NET/Socket, NET/IB/GDRDMA."""
    found = set()
    for match in _VIA.finditer(log):
        kind, *parts = match[1].split("/")
        if kind == "NET" and parts:
            found.add("/".join([kind, parts[0], *(["GDRDMA"] if "GDRDMA" in match[1] else [])]))
        else:
            found.add("/".join([kind, *parts[: 1 if kind == "P2P" else 0]]))
    return sorted(found)


@contextlib.contextmanager
def nccl_log(cuda: bool) -> Iterator[Callable[[], str]]:
    """Have NCCL write what it does into a file, unless the user has it write somewhere already."""
    if not cuda or "NCCL_DEBUG" in os.environ:
        yield lambda: ""
        return
    with tempfile.TemporaryDirectory(prefix="rlvr-nccl-") as folder:
        path = Path(folder, "log")
        settings = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM",
            "NCCL_DEBUG_FILE": str(path),
        }
        os.environ.update(settings)
        try:
            yield lambda: path.read_text(errors="replace") if path.exists() else ""
        finally:
            for name in settings:  # NCCL has read them; an engine's processes must not
                os.environ.pop(name, None)


def within(seconds: float, act: Callable[[], T]) -> T | None:
    """Return what a call returns; None if it has not within this time, and goes on.

    A collective that waits for a process that is not there cannot be ended from outside.
    """
    results: list[T] = []
    faults: list[BaseException] = []

    def call() -> None:
        try:
            results.append(act())
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if faults:
        raise faults[0]
    return results[0] if results else None


def named(ranks: Sequence[int], machine_of: Callable[[int], int]) -> str:
    """Name processes with their machines."""
    words = [f"{rank} (machine {machine_of(rank)})" for rank in ranks]
    return f"process{'es' * (len(ranks) > 1)} {listed(words)}"
