"""The trainer's handle on an engine's process: starting, requests and answers, ending."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Generation, GenerationRequest, MachineError, RlvrError, RunError, one_line
from rlvr_core.engines.child.link import Link, Message, Replies
from rlvr_core.workers.apart import apart
from rlvr_core.workers.process import Child

if TYPE_CHECKING:
    import torch

START_LIMIT = 900.0
"""Seconds the process may take to load the model."""
_LAST_LINES = 5
_FAREWELL = 5.0


class EngineProcess:
    """An engine's process, from start to end. Methods may be called from any thread.

    Args:
        spawn_args: The pickled ``SpawnArgs``.
        gpus: Visible GPUs; empty for those that this process sees.
    """

    def __init__(self, spawn_args: bytes, gpus: str) -> None:
        self._lock = threading.Lock()
        self._replies = Replies()
        self._queue: list[tuple[int, GenerationRequest]] = []
        self._requests: list[Future[Any]] = []
        self._begun: Future[None] = Future()
        self._closing = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._child = Child(
            "rlvr_core.engines.child.child_host",
            [],
            env=environment(gpus),
            output=self._log.fileno(),
        )
        self._link = Link(Connection(self._child.socket.detach()))
        self._link.send(spawn_args)
        self._link.start(self._take, self._lost)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def await_start(self) -> None:
        """Wait until its engine has started; the process is gone if that fails.

        Raises:
            MachineError: If it takes longer than ``START_LIMIT`` seconds.
            RlvrError: If the engine does not start, or the process dies.
        """
        try:
            self._begun.result(START_LIMIT)
        except BaseException as error:
            self._child.kill()
            self.close()
            if isinstance(error, TimeoutError):
                raise MachineError(
                    f"the engine's process was not ready within {START_LIMIT:g} s", where="engine"
                ) from error
            raise

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request for the next ``begin``."""
        with self._lock:
            number, future = self._replies.expect()
            self._queue.append((number, request))
            self._requests.append(future)
        return future

    def begin(self) -> None:
        """Send all queued requests at once."""
        with self._lock:
            queued, self._queue = self._queue, []
            if queued:
                self._link.send("submit", queued)

    def unfinished(self) -> list[Future[Any]]:
        """Return the futures of all unanswered requests.

        Raises:
            RlvrError: If the process has ended.
        """
        self._replies.check()
        with self._lock:
            self._requests = [future for future in self._requests if not future.done()]
            return list(self._requests)

    def drop(self) -> None:
        """Cancel requests that were not sent."""
        with self._lock:
            queued, self._queue = self._queue, []
        for number, _ in queued:
            self._replies.take(("cancelled", number))

    def call(self, name: str, *arguments: Any, timeout: float) -> Any:
        """Call the process and wait for the answer.

        Raises:
            RunError: If there is none within ``timeout`` seconds.
            RlvrError: If the call failed, or the process has ended.
        """
        number, future = self._replies.expect()
        self._link.send(name, number, *arguments)
        try:
            return future.result(timeout)
        except TimeoutError as error:
            raise RunError(
                f"the engine's process did not answer '{name}' within {timeout:g} s",
                remedy="raise run.timeout if it was at work on long completions",
            ) from error

    def close(self) -> None:
        """Ask it to end, and make sure that it does; safe to call twice."""
        if not self._closing:
            self._closing = True
            self._link.send("close")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.process.wait(timeout=_FAREWELL)
            self._link.close()
            self._child.kill()
            self._log.close()
        self._replies.fail(RunError("the engine was closed before the request was finished"))

    def _take(self, message: Message) -> None:
        """Take a message of the process."""
        if message[0] == "ready":
            self._begun.set_result(None)
        elif message[0] == "broken":
            self._begun.set_exception(message[1])
        else:
            self._replies.take(message)

    def _lost(self, error: Exception) -> None:
        """Fail everything that is open: it has ended, or says what cannot be read."""
        reason = self._end() if isinstance(error, EOFError | OSError) else _unreadable(error)
        if not self._begun.done():
            self._begun.set_exception(reason)
        if not self._closing:
            self._replies.fail(reason)

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
    return RunError(
        f"what the engine's process said cannot be read: {one_line(error)}",
        remedy="an engine's own exceptions must survive pickle; take RunError or MachineError",
    )
