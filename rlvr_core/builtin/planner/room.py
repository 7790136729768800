"""Whether a model fits on the machines of a job: asked there by ``rlvr launch --preflight``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import RlvrError
from rlvr_core.api.services import Ranks, model_path
from rlvr_core.builtin.planner.cards import RESERVED
from rlvr_core.builtin.planner.checkpointing import MARGIN, choose, setup_for_run
from rlvr_core.builtin.planner.memory import held_by, memory_of
from rlvr_core.builtin.planner.setup import MASTER, Setup, every_of

if TYPE_CHECKING:
    from rlvr_core.api.services import Resolved

GIB = 2**30
_CGROUP = Path("/sys/fs/cgroup")

Verdict = tuple[bool | None, str, tuple[str, ...]]
"""Whether it fits (None: it is close, or not known), what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory that a process has; bytes.

    Attributes:
        machine: Number of its machine.
        gpu_free: Free on its GPU; 0 without one.
        gpu_total: Of its GPU.
        host_free: Free on its machine, as far as its container may use it.
    """

    machine: int
    gpu_free: int
    gpu_total: int
    host_free: int


def model_fits(resolved: Resolved, ranks: Ranks) -> Verdict:
    """The service ``core/model-fits``: plan the memory of a run, and compare it with what is free.

    No weight is read. A collective; process 0 plans for all.

    Args:
        resolved: The configuration.
        ranks: The processes that will train.
    """
    rooms = ranks.gather(_room_here())
    verdict = _planned(resolved, rooms) if ranks.index == 0 else None
    planned = ranks.gather(verdict)[0]
    assert planned is not None
    return planned


def _planned(resolved: Resolved, rooms: Sequence[Room]) -> Verdict:
    card = min(one.gpu_total for one in rooms)
    try:
        path = model_path(resolved.config.model.path, resolved.host)
        setup = setup_for_run(resolved, path, len(rooms), card or _fullest(rooms).host_free)
    except RlvrError as error:
        return None, f"cannot be planned: {error.complaints[0].what}", ()
    return judge_gpus(setup, resolved, rooms) if card else judge_hosts(setup, rooms)


def judge_gpus(setup: Setup, resolved: Resolved, rooms: Sequence[Room]) -> Verdict:
    """Compare the planned peak with the GPU that has least free.

    CUDA and NCCL have taken their part of it already, so what is planned for them is left out
    before it is called too little.
    """
    fullest = min(rooms, key=lambda one: one.gpu_free)
    again = ""
    if resolved.config.train.gradient_checkpointing == "auto":
        which = choose(setup, fullest.gpu_free).which
        setup = replace(setup, every=every_of(which))
        again = f" with gradient checkpointing {which}"
    memory = memory_of(setup)
    free, rank = fullest.gpu_free, rooms.index(fullest)
    what = (
        f"planned peak {memory.peak / GIB:.1f} GiB in {memory.moment}{again}; {free / GIB:.1f} of "
        f"{fullest.gpu_total / GIB:.1f} GiB are free on the GPU of process {rank} (machine "
        f"{fullest.machine})"
    )
    remedy = ("rlvr plan CONFIG --gpu NAME --count N says by part what takes it, and what helps",)
    if memory.peak - RESERVED > free:
        return False, f"the model does not fit: {what}", remedy
    if memory.kv_needed > memory.kv_room:
        lacks = (memory.kv_needed - memory.kv_room) / GIB
        words = f"the engine lacks {lacks:.1f} GiB for its weights and one longest completion"
        return False, f"{words}; {what}", remedy
    if memory.peak > (1 - MARGIN) * free:
        return None, f"it is close: {what}", remedy
    return True, what, ()


def judge_hosts(setup: Setup, rooms: Sequence[Room]) -> Verdict:
    """Compare what processes on the CPU need at least with the free memory of their machine.

    Weights, gradient and optimizer are counted. Activations, which the planner has formulas of for
    GPUs alone, come on top.
    """
    held = held_by(setup)
    gradient = 0.0 if setup.buckets else MASTER * setup.trained / setup.shards
    engine = setup.width * setup.shape.params if _engine_beside(setup) else 0
    each = held.total + gradient + engine
    fullest = _fullest(rooms)
    n = sum(one.machine == fullest.machine for one in rooms)
    processes = f"{n} process{'es' * (n > 1)} of machine {fullest.machine}"
    what = (
        f"{processes} on the CPU: at least {n * each / GIB:.2g} GiB of weights, gradients and "
        f"optimizer, and {fullest.host_free / GIB:.2g} GiB are free; activations are not planned"
    )
    if n * each > fullest.host_free:
        return False, f"the model does not fit: {what}", ("take fewer processes, or more memory",)
    return True, what, ()


def _engine_beside(setup: Setup) -> bool:
    """Whether an engine on this machine has a copy of the weights."""
    return setup.engine.own_weights and setup.engine.shared


def _fullest(rooms: Sequence[Room]) -> Room:
    """Return a process of the machine that has least memory for each of its processes."""

    def share(room: Room) -> float:
        return room.host_free / sum(one.machine == room.machine for one in rooms)

    return min(rooms, key=share)


def _room_here() -> Room:
    import psutil
    import torch

    free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0)
    host = min([psutil.virtual_memory().available, *_free_of_container(_CGROUP)])
    return Room(int(os.environ.get("GROUP_RANK", "0")), free, total, host)


def _free_of_container(folder: Path) -> Iterator[int]:
    """Yield what the container may use yet, where it has a limit (cgroup v2)."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return
    if limit.isdigit():
        yield max(0, int(limit) - used)
