"""The training processes that share one vLLM engine: tensor parallelism.

Consecutive processes of one machine form a group. Each holds a shard of every layer and runs vLLM's
scheduler itself (vLLM's executor ``external_launcher``). Shards are added up within each layer, so
all processes of a group must compute the same batches in the same order.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from rlvr_core.api import ConfigError
from rlvr_core.parallel.ranks import count

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")

WHERE = "engine.with.tensor_parallel_size"


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of one engine, as each of them sees the others.

    Attributes:
        index: This process, counted from 0 within the group.
        size: How many there are.
        processes: Connects them on the CPU.
    """

    index: int
    size: int
    processes: ProcessGroup

    @classmethod
    def of_vllm(cls) -> Group:
        """Return the group that vLLM made for the engine that was started last."""
        from vllm.distributed import get_tp_group

        made = get_tp_group()
        return cls(made.rank_in_group, made.world_size, made.cpu_group)

    def numbers(self, mine: list[int]) -> list[list[int]]:
        """Return a row of integers of each process, by index. A collective; rows are as long."""
        row = torch.tensor(mine)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        torch.distributed.all_gather(rows, row, group=self.processes)
        return [row.tolist() for row in rows]

    def gather(self, mine: T) -> list[T]:
        """Return the values of all processes, by index. A collective."""
        gathered: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(gathered, mine, group=self.processes)
        return gathered


def check_size(size: int) -> None:
    """Refuse a number of processes of one engine that does not divide those of the run.

    Whether it divides the model's heads and widths, vLLM says when it starts.

    Raises:
        ConfigError: If it does not divide the processes of the run, or those of this machine.
    """
    world = count()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    if world % size:
        least = -(-world // size) * size
        what = "1 process does" if world == 1 else f"{world} processes do"
        raise ConfigError(
            f"{what} not divide into engines of {size} processes",
            where=WHERE,
            remedy=(
                f"rlvr launch --processes {least}, or another multiple of {size}",
                f"--set {WHERE}=1",
            ),
        )
    if local % size:
        raise ConfigError(
            f"an engine of {size} processes would span machines: this one has {local} of the "
            f"run's {world} processes",
            where=WHERE,
            remedy=f"set a divisor of {local}, or start a multiple of {size} on every machine",
        )


def add_up_by_gloo() -> None:
    """Have the shards of vLLM's CPU build exchange sums by gloo instead of shared memory.

    The shared memory has the same name in every run on a machine, so that two runs would write
    into each other's; and a process that waits for the others' sums keeps its core busy.
    """
    module: Any = importlib.import_module("vllm.distributed.device_communicators.cpu_communicator")
    module.CpuCommunicator._all_group_ranks_share_shm_group_name = _never


def _never(communicator: object) -> bool:
    return False
