"""The trainer's handle on an engine's process: starting, messaging, monitoring, ending."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from rlvr_core.api import MachineError, RlvrError, RunError
from rlvr_core.workers.apart import apart
from rlvr_core.workers.process import Child

if TYPE_CHECKING:
    import torch

Message = tuple[Any, ...]

_LAST_LINES = 5
_FAREWELL = 5.0


class ChildProcess:
    """One process from start to end.

    Args:
        spawn_args: The pickled ``SpawnArgs``.
        gpus: Visible GPUs; empty for those that this process sees.
        hear: Called with each received message, in a separate thread.
        ended: Called in that thread with the reason; not called if it was told to end.
    """

    def __init__(
        self,
        spawn_args: bytes,
        gpus: str,
        hear: Callable[[Message], None],
        ended: Callable[[RlvrError], None],
    ) -> None:
        self._hear, self._ended = hear, ended
        self._begun: Future[None] = Future()
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._closing = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._child = Child(
            "rlvr_core.engines.child.child_host",
            [],
            env=environment(gpus),
            output=self._log.fileno(),
        )
        self._connection = Connection(self._child.socket.detach())
        self._outbox.put(spawn_args)
        for work in (self._listen, self._write):
            threading.Thread(target=work, name="engine-process", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def await_start(self, limit: float) -> None:
        """Wait until its engine has started.

        Raises:
            MachineError: If it takes longer than ``limit`` seconds.
            RlvrError: If the engine does not start, or the process dies.
        """
        try:
            self._begun.result(limit)
        except TimeoutError as error:
            raise MachineError(
                f"the engine's process was not ready within {limit:g} s", where="engine"
            ) from error

    def send(self, *message: Any) -> None:
        """Queue a message after all earlier ones; returns at once."""
        self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Ask it to end, and make sure that it does; safe to call twice."""
        if self._closing:
            return
        self._closing = True
        self.send("close")
        self._outbox.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.process.wait(timeout=_FAREWELL)
        self.kill()
        self._log.close()

    def kill(self) -> None:
        """Kill it and its process group at once; safe if it has already ended."""
        self._child.kill()

    # -- its two threads -------------------------------------------------------------------------

    def _listen(self) -> None:
        """Receive messages until the process has ended."""
        try:
            while True:
                message: Message = pickle.loads(self._connection.recv_bytes())
                if message[0] == "ready":
                    self._begun.set_result(None)
                elif message[0] == "broken":
                    self._begun.set_exception(message[1])
                else:
                    self._hear(message)
        except Exception as error:
            reason = self._end() if isinstance(error, EOFError | OSError) else _unreadable(error)
            self._outbox.put(None)
            if not self._begun.done():
                self._begun.set_exception(reason)
            if not self._closing:
                self._ended(reason)

    def _write(self) -> None:
        """Send queued messages, in a separate thread.

        Writing to a suspended process blocks forever; a caller that waits for an answer must still
        reach its deadline (T29).
        """
        while (message := self._outbox.get()) is not None:
            try:
                self._connection.send_bytes(message)
            except OSError:
                return  # it has ended: the other thread reads the end of file and reports it

    def _end(self) -> RlvrError:
        """Return why the process ended."""
        if self._closing:
            return RunError("the engine was closed")
        cause = self._child.cause_of_death(_FAREWELL)
        return RunError(
            f"the engine's process is gone: {cause}",
            where=self._last_words(),
            remedy="rlvr run --resume goes on from the last checkpoint",
        )

    def _last_words(self) -> str:
        try:
            log = self._log.fileno()
            text = os.pread(log, 4096, max(0, os.fstat(log).st_size - 4096)).decode(
                "utf-8", "replace"
            )
        except ValueError:  # closed meanwhile: the reason is no longer needed
            return ""
        return "\n".join(text.strip().splitlines()[-_LAST_LINES:])


def environment(gpus: str) -> dict[str, str]:
    """Return the environment of an engine's process, without the variables of the training run."""
    return apart() | ({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})


def gpus_for(device: torch.device) -> str:
    """Return the GPUs for an engine: those reserved for engines, else only that of the model.

    vLLM uses the first GPU it sees, and every process of a run sees the GPUs of all.
    """
    reserved = engine_gpus()
    if reserved or device.type != "cuda":
        return reserved
    shown = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    index = device.index or 0
    return shown[index] if shown else str(index)


def engine_gpus() -> str:
    """Return the GPUs the launcher reserves for this process's engine; empty if there are none.

    They are divided among the processes of a machine; if there are too few, some processes share
    one.
    """
    reserved = [gpu for gpu in os.environ.get("RLVR_ENGINE_GPUS", "").split(",") if gpu]
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    per_process = len(reserved) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    mine = (
        reserved[local_rank * per_process : (local_rank + 1) * per_process]
        if per_process
        else reserved[local_rank % max(1, len(reserved)) :][:1]
    )
    return ",".join(mine)


def _unreadable(error: Exception) -> RlvrError:
    first, *_ = str(error).strip().splitlines() or [""]
    return RunError(
        f"what the engine's process said cannot be read: {type(error).__name__}: {first}",
        remedy="an engine's own exceptions must survive pickle; take RunError or MachineError",
    )
