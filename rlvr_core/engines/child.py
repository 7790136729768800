"""An engine in a process of its own, so that generation goes on while this one trains.

It has weights of its own, which change only at a weight sync: the trainer copies its weights into
memory that both processes share, and the engine takes them from there.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from torch import Tensor

from rlvr_core.engines.child_host import Birth
from rlvr_core.engines.shared import SharedTensors
from rlvr_core.engines.sync import PROBE_TOKENS, check_probe, probe_prompt, trainer_logprobs
from rlvr_core.errors import MachineError, RlvrError, RunError
from rlvr_core.protocols import (
    Engine,
    EngineContext,
    Generation,
    Interruptible,
    ScoreRequest,
    Scores,
    WeightSource,
)
from rlvr_core.types import GenerationRequest, SamplingParams

if TYPE_CHECKING:
    import torch

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from rlvr_core.engines.child_host import main; main(int(sys.argv[1]))"
)
START_LIMIT = 900.0
"""Seconds the process has to load the model."""
_PROBE_PROMPT = 65
"""Tokens of the probe's prompt, at most: two blocks of a prefix cache and one."""
_LAST_LINES = 5

Answers = tuple[Generation, ...]


def in_child(engine: Engine, deadline: float) -> ChildEngine:
    """Put an engine that is not started into a process of its own.

    Args:
        engine: The engine.
        deadline: Seconds that a weight sync or scoring may take.
    """
    kind = ScoringChildEngine if hasattr(engine, "score") else ChildEngine
    return kind(engine, deadline)


class ChildEngine:
    """The trainer's end; a ``BackgroundEngine``. Methods may be called from any thread."""

    def __init__(self, engine: Engine, deadline: float) -> None:
        self._engine: Any = engine
        self._deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._connection: Connection | None = None
        self._shared: SharedTensors | None = None
        self._context: EngineContext | None = None
        self._probe_ids: tuple[int, ...] = ()
        self._copied = False
        self._lock = threading.Lock()
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._tickets = itertools.count()
        self._queue: list[tuple[int, GenerationRequest]] = []
        self._open: dict[int, Future[Any]] = {}
        self._calls: dict[int, Future[Any]] = {}
        self._broken: RlvrError | None = None
        self._closing = False

    @property
    def at_sync(self) -> frozenset[str]:
        """See ``BackgroundEngine``."""
        if isinstance(self._engine, Interruptible):
            return frozenset({"drain", "abort", "keep"})
        return frozenset({"drain"})

    @property
    def continuous(self) -> bool:
        """Whether it takes up a request while it is at work on others."""
        return bool(getattr(self._engine, "continuous", False))

    def start(self, context: EngineContext) -> None:
        """Start the process and wait until its model is loaded; see ``Engine.start``.

        Raises:
            MachineError: If the engine cannot be moved to another process, or not start there.
        """
        import torch

        model: Any = context.model
        assert model is not None, "the trainer's model is what it is copied from"
        self._context = context
        self._shared = SharedTensors.create(self._tensors_of(model))
        vocabulary = int(model.get_input_embeddings().weight.shape[0])
        length = max(1, min(_PROBE_PROMPT, context.max_model_len - PROBE_TOKENS))
        self._probe_ids = probe_prompt(context.tokenizer, vocabulary, length)
        birth = Birth(
            engine=self._engine,
            context=replace(context, model=self._copy_of(model)),
            device="" if self._has_own_weights else _place_of(model),
            fd=self._shared.fd,
            size=self._shared.size,
            threads=torch.get_num_threads(),
        )
        try:
            message = pickle.dumps(birth, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise MachineError(
                f"engine {type(self._engine).__name__} cannot be put into a process of its own: "
                f"{error}",
                where="engine",
                remedy="set train.max_staleness: 0, or choose another engine",
            ) from error
        self._launch(message)

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin`` or ``drain``."""
        future: Future[Answers] = Future()
        with self._lock:
            self._check()
            self._queue.append((next(self._tickets), request))
            self._open[self._queue[-1][0]] = future
        return future

    def begin(self) -> None:
        """Send what is queued, all of it at once; see ``BackgroundEngine``."""
        with self._lock:
            queued, self._queue = self._queue, []
            if queued:
                self._send("submit", queued)

    def drain(self, timeout: float | None = None) -> None:
        """Wait until everything that was submitted is finished.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the process is gone.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.begin()
            with self._lock:
                waiting = list(self._open.values())
                self._check()
            if not waiting:
                return
            left = None if until is None else until - time.monotonic()
            try:
                waiting[0].exception(left)
            except CancelledError:
                continue
            except TimeoutError as error:
                raise RunError(
                    f"generation was not finished within {timeout:g} s; {len(waiting)} requests "
                    f"were left in the engine's process",
                    remedy="raise run.deadline, or ask for fewer or shorter completions",
                ) from error

    def abort(self) -> None:
        """See ``BackgroundEngine``."""
        with self._lock:
            queued, self._queue = self._queue, []
            futures = [self._open.pop(ticket) for ticket, _ in queued]
        for future in futures:
            future.cancel()
        self._call("abort", timeout=self._deadline)

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Copy the trainer's weights over; see ``Engine.load_weights``.

        Returns when the engine has taken them. What it had unfinished keeps the version it began
        with. When nothing is unfinished, a probe shows that they arrived.

        Raises:
            RunError: If they did not.
        """
        assert self._shared is not None
        # if the policy is sharded, every process has to ask: before anything that only some do
        module = source.module
        places = self._shared.write(self._weights_of(source))
        self._call("load_weights", version, places, timeout=self._deadline)
        self._copied = True
        with self._lock:
            busy = bool(self._open)
        if not busy:
            self._probe(version, module)

    def sleep(self) -> None:
        """Nothing: it generates while the trainer works."""

    def wake(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """End the process; see ``Engine.close``."""
        self._closing = True
        process, self._process = self._process, None
        if process is None:
            return
        self._send("close")
        self._outbox.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5.0)
        _kill(process)
        self._fail(RunError("the engine was closed before the request was finished"))
        if self._shared is not None:
            self._shared.close()
        if self._log is not None:
            self._log.close()

    @property
    def pid(self) -> int:
        """Process id of the engine's process."""
        assert self._process is not None
        return self._process.pid

    # -- weights ---------------------------------------------------------------------------------

    @property
    def _has_own_weights(self) -> bool:
        return bool(getattr(self._engine, "own_weights", False))

    def _copy_of(self, model: Any) -> Any:
        """What the engine's process has for the trainer's model."""
        if self._has_own_weights:
            return SimpleNamespace(
                config=model.config, generation_config=getattr(model, "generation_config", None)
            )
        return copy.deepcopy(model).cpu().requires_grad_(False)

    def _tensors_of(self, model: Any) -> Iterable[Tensor]:
        return list(model.parameters())

    def _weights_of(self, source: WeightSource) -> Iterable[tuple[str, Tensor]]:
        if self._has_own_weights:
            return source.tensors()
        # what is not trained is there since the start
        return [
            (name, parameter)
            for name, parameter in source.module.named_parameters()
            if parameter.requires_grad or not self._copied
        ]

    def _probe(self, version: int, module: Any) -> None:
        """Sample a few tokens and hold their log-probs against the trainer's."""
        assert self._context is not None
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        future = self.submit(
            GenerationRequest(f"probe@{version}", self._probe_ids, params, (version,))
        )
        self.drain(self._deadline)
        (answer,) = future.result(0)
        if answer.version != version:
            raise RunError(f"the engine says version {answer.version} after sync to {version}")
        dtype: torch.dtype = self._context.dtype
        ours = trainer_logprobs(module, self._probe_ids, answer.token_ids, dtype)
        check_probe(answer.logprobs, ours, dtype, module.device, version)

    # -- the process -----------------------------------------------------------------------------

    def _launch(self, birth: bytes) -> None:
        assert self._shared is not None
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the engine
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno(), self._shared.fd],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is the trainer's to handle
                env=os.environ | ({"CUDA_VISIBLE_DEVICES": engine_gpus()} if engine_gpus() else {}),
            )
        self._connection = Connection(ours.detach())
        begun: Future[None] = Future()
        self._outbox.put(birth)
        for work in (partial(self._listen, begun), self._write):
            threading.Thread(target=work, name="engine-process", daemon=True).start()
        try:
            begun.result(START_LIMIT)
        except TimeoutError as error:
            self.close()
            raise MachineError(
                f"the engine's process was not ready within {START_LIMIT:g} s", where="engine"
            ) from error

    def _listen(self, begun: Future[None]) -> None:
        """Take in what the process says until it is gone."""
        assert self._connection is not None
        try:
            while True:
                kind, *rest = pickle.loads(self._connection.recv_bytes())
                if kind == "ready":
                    begun.set_result(None)
                elif kind == "broken":
                    begun.set_exception(rest[0])
                elif kind == "answer":
                    call, answer, error = rest
                    self._settle(self._calls, call, answer, error)
                elif kind == "cancelled":
                    self._settle(self._open, rest[0], None, None, cancelled=True)
                else:
                    error = rest[1] if kind == "failed" else None
                    self._settle(self._open, rest[0], rest[1], error)
        except Exception as error:
            told = self._end() if isinstance(error, EOFError | OSError) else _unreadable(error)
            if not begun.done():
                begun.set_exception(told)
            self._fail(told)

    def _write(self) -> None:
        """Send what is to be sent, in a thread of its own.

        A process that is stopped reads nothing, and writing to it has no end: whoever waits for an
        answer must be able to reach its deadline meanwhile (T29).
        """
        assert self._connection is not None
        while (message := self._outbox.get()) is not None:
            try:
                self._connection.send_bytes(message)
            except OSError:
                return  # it is gone: the other thread hears the end of file, and tells

    def _settle(
        self,
        futures: dict[int, Future[Any]],
        number: int,
        answer: Any,
        error: BaseException | None,
        *,
        cancelled: bool = False,
    ) -> None:
        with self._lock:
            future = futures.pop(number)
        if cancelled:
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)

    def _call(self, name: str, *arguments: Any, timeout: float) -> Any:
        future: Future[Any] = Future()
        with self._lock:
            self._check()
            number = next(self._tickets)
            self._calls[number] = future
            self._send(name, number, *arguments)
        try:
            return future.result(timeout)
        except TimeoutError as error:
            raise RunError(
                f"the engine's process did not answer '{name}' within {timeout:g} s",
                remedy="raise run.deadline if it was at work on long completions",
            ) from error

    def _send(self, *message: Any) -> None:
        """Have it sent, after all that was put there before; see ``_write``."""
        self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _fail(self, error: RlvrError) -> None:
        """Give every open future this error, and refuse further work."""
        with self._lock:
            self._broken = self._broken or error
            futures = [*self._open.values(), *self._calls.values()]
            self._open, self._calls, self._queue = {}, {}, []
        for future in futures:
            future.set_exception(error)

    def _end(self) -> RlvrError:
        """Why the process is gone."""
        process = self._process
        if self._closing or process is None:
            return RunError("the engine was closed")
        try:
            code = process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return RunError("the engine's process closed its connection")
        cause = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return RunError(
            f"the engine's process is gone: {cause}",
            where=self._last_words(),
            remedy="rlvr run --resume goes on from the last checkpoint",
        )

    def _last_words(self) -> str:
        assert self._log is not None
        try:
            log = self._log.fileno()
            text = os.pread(log, 4096, max(0, os.fstat(log).st_size - 4096)).decode(
                "utf-8", "replace"
            )
        except ValueError:  # closed meanwhile: nobody asks any more
            return ""
        return "\n".join(text.strip().splitlines()[-_LAST_LINES:])


class ScoringChildEngine(ChildEngine):
    """One whose engine can also score given text."""

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """See ``Scorer.score``."""
        limit = self._deadline if timeout is None else timeout
        found: list[Scores] = self._call("score", list(requests), timeout, timeout=limit)
        return found


def _unreadable(error: Exception) -> RlvrError:
    first, *_ = str(error).strip().splitlines() or [""]
    return RunError(
        f"what the engine's process said cannot be read: {type(error).__name__}: {first}",
        remedy="an engine's own exceptions must survive pickle; take RunError or MachineError",
    )


def engine_gpus() -> str:
    """GPUs that the launcher keeps for this process's engine; empty when it shares the trainer's.

    Each process of a machine has its part of them; where there are too few, some share one.
    """
    kept = [gpu for gpu in os.environ.get("RLVR_ENGINE_GPUS", "").split(",") if gpu]
    here = int(os.environ.get("LOCAL_RANK", "0"))
    each = len(kept) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    mine = kept[here * each : (here + 1) * each] if each else kept[here % max(1, len(kept)) :][:1]
    return ",".join(mine)


def _place_of(model: Any) -> str:
    return "cuda:0" if model.device.type == "cuda" and engine_gpus() else str(model.device)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it and the processes of its group; it may be gone."""
    act: Callable[[int, int], None] = os.killpg
    with contextlib.suppress(ProcessLookupError, PermissionError):
        act(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5.0)
