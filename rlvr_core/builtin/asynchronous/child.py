"""Runs an engine in a process of its own, so that it generates while this process trains.

The engine has its own weights, which change only at a weight sync. A transport sends them, by
default through memory that both processes share. They stay in that memory, so that a process that
died can be restarted with the same weights, and is sent the unanswered requests again.
"""

from __future__ import annotations

import copy
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor

from rlvr_core.api import (
    ConfigError,
    Engine,
    EngineContext,
    EngineTraits,
    FingerprintsWeights,
    Generation,
    GenerationRequest,
    InheritsFiles,
    Interruptible,
    Json,
    MachineError,
    Metric,
    NamedTensors,
    RunError,
    SamplingParams,
    Scorer,
    ScoreRequest,
    Scores,
    TransportChoice,
    TransportTraits,
    WeightSource,
    WeightTransport,
    traits_of,
)
from rlvr_core.api.services import (
    PROBE_TOKENS,
    ChosenTransport,
    check_probe,
    probe_prompt,
    source_logprobs,
    trainer_logprobs,
)
from rlvr_core.builtin.asynchronous.child_host import SpawnArgs
from rlvr_core.builtin.asynchronous.child_process import ChildProcess, gpus_for
from rlvr_core.builtin.asynchronous.child_rpc import RequestChannel
from rlvr_core.builtin.asynchronous.prefix import shared_prefix
from rlvr_core.builtin.asynchronous.renewals import Renewals
from rlvr_core.builtin.asynchronous.shared_weights import Outgoing, SharedMemory, folder_on_disk

SHARED_MEMORY = ChosenTransport(
    "core/shared-memory", f"{SharedMemory.__module__}:{SharedMemory.__name__}", "core", {}
)
"""The transport used if the configuration names none."""

_PROBE_PROMPT = 65
"""Largest probe prompt in tokens: two blocks of a prefix cache plus one token."""

Answers = tuple[Generation, ...]


class _Known(NamedTuple):
    """The answer to the last probe, and the trainer's log-probs of it."""

    version: int
    token_ids: Sequence[int]
    logprobs: Sequence[float]


def in_child(engine: Engine, deadline: float, restarts: int = 0) -> ChildEngine:
    """Wrap an engine that has not been started so that it runs in its own process.

    Args:
        engine: The engine.
        deadline: Seconds allowed for a weight sync or scoring.
        restarts: How often the process is restarted if it dies.
    """
    kind = ScoringChildEngine if isinstance(engine, Scorer) else ChildEngine
    return kind(engine, deadline, restarts)


class ChildEngine:
    """The trainer's side: a ``BackgroundEngine``. Methods may be called from any thread."""

    reports = (
        Metric(
            "engine/restarts",
            "Processes of asynchronous engines started again since the last step.",
            "restarts",
        ),
        Metric(
            "engine/resent",
            "Completions asked for again, as their process was lost.",
            "completions",
        ),
        Metric(
            "engine/syncs_on_disk",
            "Weight syncs since the last step that went through a file outside shared memory, "
            "which has no room for the weights.",
            "syncs",
        ),
    )

    def __init__(self, engine: Engine, deadline: float, restarts: int) -> None:
        self._engine: Any = engine
        inner = traits_of(engine, EngineTraits)
        self.traits = EngineTraits(
            continuous=inner.continuous,
            own_weights=inner.own_weights,
            takes_adapter=inner.takes_adapter,
            takes_transport=True,
            inverts_stream=inner.inverts_stream,
        )
        self._deadline = deadline
        self.channel = RequestChannel(restarts, self._restore)
        self._transport: WeightTransport | None = None
        self._dtype: Any = None
        self._device: Any = None
        self._probe_ids: tuple[int, ...] = ()
        self._writing = threading.Lock()  # held while weights are sent, or loaded by a new process
        self._held: tuple[int, list[Json], dict[str, Json] | None] | None = None
        self._known: _Known | None = None
        self._renewals = Renewals()
        self._reported = (0, 0)
        self._on_disk: str | None = None
        self._syncs = 0

    @property
    def in_flight(self) -> frozenset[str]:
        """See ``BackgroundEngine``."""
        if isinstance(self._engine, Interruptible):
            # unfinished requests name the adapter they began with, which would be unloaded
            keep = set() if self.traits.takes_adapter else {"keep"}
            return frozenset({"drain", "abort"} | keep)
        return frozenset({"drain"})

    def start(self, context: EngineContext) -> None:
        """Start the process and wait until its model is loaded; see ``Engine.start``.

        Raises:
            MachineError: If the engine cannot be moved to another process, or cannot start there.
        """
        import torch

        model: Any = context.model
        assert model is not None, "the trainer's model is what it is copied from"
        self._dtype, self._device = context.dtype, model.device
        chosen = context.transport or SHARED_MEMORY
        self._transport = _lasting(chosen)
        files: Sequence[int] = ()
        if isinstance(self._transport, InheritsFiles):
            files = self._transport.open_files(self._tensors_of(model))
            self._on_disk = next(filter(None, map(folder_on_disk, files)), None)
        if self._on_disk is not None:
            self.channel.tell(
                f"weights go to the engine's process through a file in {self._on_disk}, slower "
                "than shared memory: /dev/shm is too small or absent (docker: --shm-size)"
            )
        vocabulary = int(model.get_input_embeddings().weight.shape[0])
        length = max(1, min(_PROBE_PROMPT, context.max_model_len - PROBE_TOKENS))
        self._probe_ids = probe_prompt(context.tokenizer, vocabulary, length)
        spawn_args = SpawnArgs(
            engine=self._engine,
            context=replace(context, model=self._copy_of(model), transport=None),
            device="" if self.traits.own_weights else _place_of(model),
            transport=chosen,
            threads=torch.get_num_threads(),
        )
        try:
            message = pickle.dumps(spawn_args, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise MachineError(
                f"engine {type(self._engine).__name__} cannot be put into a process of its own: "
                f"{error}",
                where="engine",
                remedy="set train.max_staleness: 0, or choose another engine",
            ) from error
        self.channel.open(message, files, gpus_for(model.device))

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin`` or ``drain``."""
        return self.channel.submit(request)

    def begin(self) -> None:
        """Send all queued requests at once; see ``BackgroundEngine``."""
        self.channel.begin()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every submitted request is finished.

        Raises:
            RunError: If it takes longer than ``timeout`` seconds, or the process is dead and not
                restarted.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.begin()
            waiting = self.channel.unfinished()
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
                    remedy="raise run.timeout, or ask for fewer or shorter completions",
                ) from error

    def abort(self) -> None:
        """See ``BackgroundEngine``."""
        if self.channel.drop():
            self.channel.call("abort", timeout=self._deadline)

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Send the trainer's weights to the engine; see ``Engine.load_weights``.

        Returns when the engine has loaded them. Unfinished requests keep the version they began
        with. If no request is unfinished, a probe checks that the weights arrived.

        Raises:
            RunError: If they did not arrive.
        """
        assert self._transport is not None
        # gathering a sharded policy is collective: do it before any branch that only some processes
        # take
        module = None if source.sharded else source.module
        with self._may_write():
            weights, adapter_config = self._weights_of(source)
            link = _ChildLink()
            self._transport.send(Outgoing(weights), link)
            self._held = (version, link.messages, adapter_config)
        self.channel.call("load_weights", *self._held, timeout=self._deadline)
        self._syncs += 1
        unfinished = self.channel.unfinished()
        self._renewals.loaded(version, unfinished)
        answer = None if unfinished else self._ask_probe(version)
        ours: Sequence[float] = ()
        if module is None:
            # collective too: every process takes part, even if its engine has unfinished requests
            token_ids = self._probe_ids[:PROBE_TOKENS] if answer is None else answer.token_ids
            ours = source_logprobs(source, self._probe_ids, token_ids, self._dtype)
        elif answer is not None:
            ours = trainer_logprobs(module, self._probe_ids, answer.token_ids, self._dtype)
        if answer is not None:
            check_probe(answer.logprobs, ours, self._dtype, self._device, version)
            self._known = _Known(version, answer.token_ids, ours)

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; nothing of an engine that cannot read its weights back."""
        if not isinstance(self._engine, FingerprintsWeights):
            return {}
        found: dict[str, int] = self.channel.call("fingerprint", timeout=self._deadline)
        return found

    def metrics(self) -> dict[str, float]:
        """Return restarts and repeated requests since the last call; see ``ReportsMetrics``."""
        now, before = (self.channel.restarts, self.channel.resent), self._reported
        self._reported = now
        found = {
            "engine/restarts": float(now[0] - before[0]),
            "engine/resent": float(now[1] - before[1]),
        }
        if self._on_disk is not None:
            found["engine/syncs_on_disk"], self._syncs = float(self._syncs), 0
        return found

    def take_events(self) -> list[str]:
        """Return messages about what happened to the process; see ``ReportsMetrics``."""
        return self.channel.take_events()

    def sleep(self) -> None:
        """Do nothing: the engine generates while the trainer works."""

    def wake(self) -> None:
        """Do nothing: the engine never sleeps."""

    def close(self) -> None:
        """End the process; see ``Engine.close``."""
        self.channel.close()
        if self._transport is not None:
            self._transport.close()

    @property
    def pid(self) -> int:
        """Process id of the engine's process."""
        assert self.channel.working is not None
        return self.channel.working.pid

    # -- weights ---------------------------------------------------------------------------------

    def _copy_of(self, model: Any) -> Any:
        """Return the object that represents the trainer's model in the engine's process."""
        if self.traits.own_weights:
            return SimpleNamespace(
                config=model.config, generation_config=getattr(model, "generation_config", None)
            )
        return copy.deepcopy(model).cpu().requires_grad_(False)

    def _tensors_of(self, model: Any) -> Iterable[Tensor]:
        """Return the tensors that the transport must have room for."""
        alone = self.traits.takes_adapter  # only the adapter, which is all that LoRA trains
        return [one for one in model.parameters() if one.requires_grad or not alone]

    def _weights_of(
        self, source: WeightSource
    ) -> tuple[Callable[[], NamedTensors], dict[str, Json] | None]:
        """Return the weights to send, and the adapter's configuration if they are an adapter."""
        if self.traits.takes_adapter:
            adapter = source.adapter()
            # without peft's types, which the engine's process need not import
            return adapter.tensors.items, json.loads(json.dumps(adapter.config))
        if self.traits.own_weights:
            return source.tensors, None
        # frozen weights are there since the start
        sent = [
            (name, parameter)
            for name, parameter in source.module.named_parameters()
            if parameter.requires_grad or self._held is None
        ]
        return lambda: sent, None

    @contextmanager
    def _may_write(self) -> Iterator[None]:
        """Within the block, no starting process loads the weights of the last sync."""
        if not self._writing.acquire(timeout=self._deadline):
            raise RunError(
                f"the engine's process, started again, did not take its weights within "
                f"{self._deadline:g} s",
                remedy="raise run.timeout",
            )
        try:
            yield
        finally:
            self._writing.release()

    def _probe_request(self, version: int) -> GenerationRequest:
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        return GenerationRequest(f"probe@{version}", self._probe_ids, params, (version,))

    def _ask_probe(self, version: int) -> Generation:
        """Ask the engine to sample a few tokens with new weights."""
        future = self.submit(self._probe_request(version))
        self.begin()
        try:
            # but not requests that another thread has begun meanwhile
            (answer,) = future.result(self._deadline)
        except TimeoutError as error:
            raise RunError(
                f"the engine did not answer the probe of version {version} within "
                f"{self._deadline:g} s",
                remedy="raise run.timeout",
            ) from error
        if answer.version != version:
            raise RunError(f"the engine says version {answer.version} after sync to {version}")
        return answer

    def _restore(self, process: ChildProcess) -> None:
        """Send a new process the weights of the last sync, and check that it samples from them."""
        with self._may_write():
            if self._held is None:
                return  # it started with these weights
            version = self._held[0]
            limit, known = self._deadline, self._known
            self.channel.ask(process, "load_weights", *self._held, timeout=limit)
            if known is None or known.version != version:
                return  # they were not probed, because requests were unfinished
            request = self._probe_request(version)
            (answer,) = self.channel.ask(process, "submit", request, timeout=limit)
        n = shared_prefix(known.token_ids, answer.token_ids)
        if n == 0:
            raise RunError(
                f"the engine's process, started again with the weights of version {version}, "
                "answers their probe by another token"
            )
        # the trainer may be in the middle of an update: compare with its earlier answer
        check_probe(answer.logprobs[:n], known.logprobs[:n], self._dtype, self._device, version)


class ScoringChildEngine(ChildEngine):
    """A ``ChildEngine`` whose engine can also score given text."""

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """See ``Scorer.score``."""
        limit = self._deadline if timeout is None else timeout
        found: list[Scores] = self.channel.call("score", list(requests), timeout, timeout=limit)
        return found


class _ChildLink:
    """The single receiver, which gets the messages together with ``load_weights``."""

    receivers = 1
    members = ("child",)
    remote_hosts = ()

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def deliver(self, message: Json) -> None:
        """Store a message, also for a process that is restarted later."""
        self.messages.append(message)


def _lasting(chosen: TransportChoice) -> WeightTransport:
    """Create the trainer's side of a transport.

    Raises:
        ConfigError: If its messages cannot be received again by a restarted process.
    """
    transport = chosen.make()
    if not traits_of(transport, TransportTraits).lasting:
        raise ConfigError(
            f"transport {chosen.name} sends to receivers that wait for it, and an engine in a "
            "process of its own takes weights between two tokens",
            where="engine.transport",
            remedy="leave it out, or take one whose traits say lasting, as core/files does",
        )
    return transport


def _place_of(model: Any) -> str:
    # its process sees one GPU: the trainer's, or one reserved for engines
    return "cuda:0" if model.device.type == "cuda" else str(model.device)
