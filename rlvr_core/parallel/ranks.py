"""The processes of one run, as each of them sees the others.

Sampler, ledger, guards, rewards and advantages are the same in every process: each makes its share
of the completions, all exchange what they made, and from there on everyone computes the same.
Gradients alone are summed by DDP or FSDP. Rank 0 is the one that writes and shows.

When a process fails it leaves its error in the store the processes met at, and goes; the others
find the connection closed, read there why, and end too.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from rlvr_core.api import (
    Complaint,
    ConfigError,
    MachineError,
    RlvrError,
    RunError,
    one_line,
)
from rlvr_core.api.errors import IdleError

T = TypeVar("T")

LOST = 75
"""Exit code of a process that ends because another one has; it never names the fault."""

_PATIENCE = 3.0
"""Seconds a process waits for another's last words."""

_SLACK = 60.0
"""Seconds above ``run.timeout`` that processes wait for each other: a wait that is too long ends
where it happens, with its own message, before the others give up."""


class ToldElsewhereError(RlvrError):
    """Ends a process whose fault another process reports to the user; never printed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("reported by another process of this run")
        self.complaints = ()
        self.exit_code = exit_code


class LostError(RunError):
    """Another process of the run ended without recording a reason."""

    exit_code = LOST

    def __init__(self, *, late: bool) -> None:
        super().__init__(
            "another process of this run did not answer in time"
            if late
            else "another process of this run ended without reporting an error: it was killed, or "
            "its machine or the connection failed",
            remedy="continue from the newest checkpoint with --resume",
        )


class Ranks:
    """The processes of a run.

    Attributes:
        index: This process, counted from 0.
        world: How many there are.
    """

    def __init__(self, index: int = 0, world: int = 1) -> None:
        self.index = index
        self.world = world

    @property
    def main(self) -> bool:
        """Whether this process writes the run's folder and shows progress."""
        return self.index == 0

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's part: every ``world``-th item."""
        return items[self.index :: self.world]

    def gather(self, mine: T) -> list[T]:
        """Return the values of all processes, by rank. A collective."""
        if self.world == 1:
            return [mine]
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.world
        dist.all_gather_object(gathered, mine)
        return gathered

    def weave(self, mine: Sequence[T]) -> list[T]:
        """Put the processes' ``share`` of a list together again, in order."""
        parts = self.gather(mine)
        woven: list[Any] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            woven[rank :: self.world] = part
        return woven

    def on_main(self, act: Callable[[], T]) -> T:
        """Call ``act`` on rank 0 alone, and return its result in every process."""
        if self.world == 1:
            return act()
        import torch.distributed as dist

        box: list[Any] = [act() if self.main else None]
        dist.broadcast_object_list(box, src=0)
        result: T = box[0]
        return result

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Report an error in this block to the other processes, and raise theirs.

        Raises:
            ToldElsewhereError: If another process tells the user.
            RlvrError: The fault; on rank 0 also that of another process.
        """
        if self.world == 1:
            yield
            return
        try:
            yield
        except ToldElsewhereError:
            raise
        except LostError as error:  # found beside the collectives
            raise self._lost(error) from error
        except RlvrError as error:
            words = [
                [complaint.what, complaint.where, *complaint.remedy]
                for complaint in error.complaints
            ]
            first = _in_time(self._tell, error.exit_code, words)
            if first is not None and first["complaints"] == words:  # all met the same
                raise ToldElsewhereError(error.exit_code) from error
            raise
        except RuntimeError as error:
            if not connection_lost(error):
                _in_time(self._leave_word, 1, [[one_line(error), ""]])
                raise
            raise self._lost(error) from error
        except Exception as error:
            _in_time(self._leave_word, 1, [[one_line(error), ""]])
            raise

    def _lost(self, error: Exception) -> RlvrError:
        """Return why the connection to the other processes is lost."""
        cause = _in_time(self._cause)
        if not self.main:
            return ToldElsewhereError(LOST)
        if cause is None:
            return LostError(late="timed out" in str(error).lower())
        rank, word = cause
        complaints = [
            Complaint(what, where, tuple(more)) for what, where, *more in word["complaints"]
        ]
        return fault_of(rank, word["code"], complaints)

    def _cause(self) -> tuple[int, dict[str, Any]] | None:
        """Wait for a process that recorded why it stopped; return its rank and record.

        Then record that this process stops, too.
        """
        until = time.monotonic() + _PATIENCE
        cause = None
        while cause is None and time.monotonic() < until:
            time.sleep(0.05)
            words = {rank: self._word_of(rank) for rank in range(self.world) if rank != self.index}
            cause = next(((r, w) for r, w in words.items() if w and w["code"] != LOST), None)
        self._leave_word(LOST, [])
        return cause

    def _tell(self, code: int, complaints: list[list[str]]) -> dict[str, Any] | None:
        """Record this process's error; return that of rank 0 if it is another process."""
        self._leave_word(code, complaints)
        return None if self.main else self._word_of(0, wait=_PATIENCE)

    def _leave_word(self, code: int, complaints: list[list[str]]) -> None:
        word = json.dumps({"code": code, "complaints": complaints})
        with contextlib.suppress(RuntimeError):  # whoever keeps the store may have gone first
            _store().set(f"rlvr/word/{self.index}", word)

    def _word_of(self, rank: int, *, wait: float = 0.0) -> dict[str, Any] | None:
        key, until = f"rlvr/word/{rank}", time.monotonic() + wait
        with contextlib.suppress(RuntimeError):
            while True:
                if _store().check([key]):
                    word: dict[str, Any] = json.loads(_store().get(key))
                    return word
                if time.monotonic() >= until:
                    break
                time.sleep(0.05)
        return None

    def part(self) -> None:
        """Wait until every process is done, so that none is taken for dead while it writes."""
        import torch.distributed as dist

        with contextlib.suppress(RuntimeError):  # one that is gone already needs no goodbye
            self.gather(None)
            dist.destroy_process_group()


def fault_of(rank: int, code: int, complaints: Sequence[Complaint]) -> RlvrError:
    """Rebuild another process's error, of the class that has its exit code."""
    mine = f"process {rank}"
    kinds = {kind.exit_code: kind for kind in (RunError, ConfigError, IdleError)}
    return kinds.get(code, MachineError).collect(
        [
            replace(complaint, where=f"{complaint.where}, {mine}" if complaint.where else mine)
            for complaint in complaints
        ]
    )


def count() -> int:
    """Return the number of processes of this run, from the launcher's environment."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def launched() -> bool:
    """Whether a launcher watches this process, and signals come from it."""
    return count() > 1 or "TORCHELASTIC_RUN_ID" in os.environ


@contextlib.contextmanager
def joined(deadline: float) -> Iterator[Ranks]:
    """Join the process group of the run, if there is more than one process.

    Args:
        deadline: ``run.timeout``: seconds any one wait may take.

    Raises:
        MachineError: If they cannot be met, or were started for something else.
    """
    if count() == 1:
        yield Ranks()
        return
    ranks = _meet(deadline)
    try:
        with ranks.explained():
            yield ranks
    except KeyboardInterrupt:
        ranks.part()
        if ranks.main:
            raise
        raise ToldElsewhereError(130) from None
    ranks.part()


def _meet(deadline: float) -> Ranks:
    import torch
    from accelerate import PartialState

    _check_start()
    cuda = torch.cuda.is_available()
    local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if cuda and local >= gpus:
        raise MachineError(
            f"process {local} of this machine has no GPU: there are {gpus}",
            remedy="start as many processes as GPUs, or hide all: CUDA_VISIBLE_DEVICES=''",
        )
    # gloo for what processes tell each other, NCCL for tensors on GPUs
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    timeout = timedelta(seconds=deadline + _SLACK)
    try:
        with warnings.catch_warnings():
            # Accelerate gives each process its share of the cores, and warns that it does
            warnings.simplefilter("ignore", UserWarning)
            state = PartialState(cpu=not cuda, backend=backend, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise MachineError(
            f"process {os.environ.get('RANK')} of {count()} cannot meet the others: "
            f"{one_line(error)}",
            remedy="start all of them by rlvr launch",
        ) from error
    return Ranks(state.process_index, state.num_processes)


def _check_start() -> None:
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR") if name not in os.environ]
    if missing:
        raise MachineError(
            f"WORLD_SIZE is {count()}, but {', '.join(missing)} is not set",
            remedy="start several processes by rlvr launch, or unset WORLD_SIZE",
        )
    for name in ("DEEPSPEED", "FSDP"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() == "true":
            raise MachineError(
                f"accelerate's own configuration asks for {name}, which a run does not read",
                where=f"ACCELERATE_USE_{name}",
                remedy="say train.parallel: fsdp in the config instead",
            )


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _in_time(ask: Callable[..., T], *arguments: Any) -> T | None:
    """Ask the store; None if it does not answer in time, as its machine is unreachable."""
    answers: list[T] = []
    asking = threading.Thread(target=lambda: answers.append(ask(*arguments)), daemon=True)
    asking.start()
    asking.join(3 * _PATIENCE)
    return answers[0] if answers else None


def connection_lost(error: Exception) -> bool:
    """Whether a collective failed because another process has gone or does not answer."""
    import torch.distributed as dist

    words = str(error).lower()
    signs = ("gloo", "closed by peer", "reset by peer", "broken pipe")
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(sign in words for sign in signs)
    )
