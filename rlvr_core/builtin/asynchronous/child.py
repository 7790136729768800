"""An engine in a process of its own, so that generation goes on while this one trains.

It has weights of its own, which change only at a weight sync: a transport brings them, by default
through memory that both processes share. They stay there, so a process that dies can be started
again: it is given the same weights, and asked once more what it has not answered.
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
    shared_prefix,
    source_logprobs,
    trainer_logprobs,
)
from rlvr_core.builtin.asynchronous.child_host import SpawnArgs
from rlvr_core.builtin.asynchronous.child_process import ChildProcess, gpus_for
from rlvr_core.builtin.asynchronous.child_rpc import RequestChannel
from rlvr_core.builtin.asynchronous.shared_weights import Outgoing, SharedMemory

SHARED_MEMORY = ChosenTransport(
    "core/shared-memory", f"{SharedMemory.__module__}:{SharedMemory.__name__}", "core", {}
)
"""What is taken where the configuration names no transport."""

_PROBE_PROMPT = 65
"""Tokens of the probe's prompt, at most: two blocks of a prefix cache and one."""

Answers = tuple[Generation, ...]


class _Known(NamedTuple):
    """What the last probe was answered, and the trainer's log-probs of that."""

    version: int
    token_ids: Sequence[int]
    logprobs: Sequence[float]


def in_child(engine: Engine, deadline: float, restarts: int = 0) -> ChildEngine:
    """Put an engine that is not started into a process of its own.

    Args:
        engine: The engine.
        deadline: Seconds that a weight sync or scoring may take.
        restarts: How often the process is started again when it dies.
    """
    kind = ScoringChildEngine if isinstance(engine, Scorer) else ChildEngine
    return kind(engine, deadline, restarts)


class ChildEngine:
    """The trainer's end; a ``BackgroundEngine``. Methods may be called from any thread."""

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
    )

    def __init__(self, engine: Engine, deadline: float, restarts: int) -> None:
        self._engine: Any = engine
        inner = traits_of(engine, EngineTraits)
        self.traits = EngineTraits(
            continuous=inner.continuous,
            own_weights=inner.own_weights,
            takes_adapter=inner.takes_adapter,
            takes_transport=True,
        )
        self._deadline = deadline
        self.channel = RequestChannel(restarts, self._restore)
        self._transport: WeightTransport | None = None
        self._dtype: Any = None
        self._device: Any = None
        self._probe_ids: tuple[int, ...] = ()
        self._writing = (
            threading.Lock()
        )  # held while weights are sent, or taken in by a new process
        self._held: tuple[int, list[Json], dict[str, Json] | None] | None = None
        self._known: _Known | None = None
        self._told = (0, 0)

    @property
    def in_flight(self) -> frozenset[str]:
        """See ``BackgroundEngine``."""
        if isinstance(self._engine, Interruptible):
            # what is unfinished names the adapter it began with, and that one goes
            keep = set() if self.traits.takes_adapter else {"keep"}
            return frozenset({"drain", "abort"} | keep)
        return frozenset({"drain"})

    def start(self, context: EngineContext) -> None:
        """Start the process and wait until its model is loaded; see ``Engine.start``.

        Raises:
            MachineError: If the engine cannot be moved to another process, or not start there.
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
        """Send what is queued, all of it at once; see ``BackgroundEngine``."""
        self.channel.begin()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until everything that was submitted is finished.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the process is gone for good.
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
        """Send the trainer's weights over; see ``Engine.load_weights``.

        Returns when the engine has taken them. What it had unfinished keeps the version it began
        with. When nothing is unfinished, a probe shows that they arrived.

        Raises:
            RunError: If they did not.
        """
        assert self._transport is not None
        # if the policy is sharded, every process has to ask: before anything that only some do
        module = None if source.sharded else source.module
        with self._may_write():
            weights, adapter_config = self._weights_of(source)
            link = _ChildLink()
            self._transport.send(Outgoing(weights), link)
            self._held = (version, link.messages, adapter_config)
        self.channel.call("load_weights", *self._held, timeout=self._deadline)
        answer = None if self.channel.unfinished() else self._ask_probe(version)
        ours: Sequence[float] = ()
        if module is None:
            # all have to ask here too, whether their engine has something unfinished or not
            token_ids = self._probe_ids[:PROBE_TOKENS] if answer is None else answer.token_ids
            ours = source_logprobs(source, self._probe_ids, token_ids, self._dtype)
        elif answer is not None:
            ours = trainer_logprobs(module, self._probe_ids, answer.token_ids, self._dtype)
        if answer is not None:
            check_probe(answer.logprobs, ours, self._dtype, self._device, version)
            self._known = _Known(version, answer.token_ids, ours)

    def metrics(self) -> dict[str, float]:
        """Restarts and repeated requests since the last call; see ``ReportsMetrics``."""
        now, before = (self.channel.restarts, self.channel.resent), self._told
        self._told = now
        return {
            "engine/restarts": float(now[0] - before[0]),
            "engine/resent": float(now[1] - before[1]),
        }

    def take_events(self) -> list[str]:
        """What happened to the process, in words; see ``ReportsMetrics``."""
        return self.channel.take_events()

    def sleep(self) -> None:
        """Nothing: it generates while the trainer works."""

    def wake(self) -> None:
        """Nothing."""

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
        """What the engine's process has for the trainer's model."""
        if self.traits.own_weights:
            return SimpleNamespace(
                config=model.config, generation_config=getattr(model, "generation_config", None)
            )
        return copy.deepcopy(model).cpu().requires_grad_(False)

    def _tensors_of(self, model: Any) -> Iterable[Tensor]:
        """What there has to be room for."""
        alone = self.traits.takes_adapter  # the adapter, which is all that is trained under LoRA
        return [one for one in model.parameters() if one.requires_grad or not alone]

    def _weights_of(
        self, source: WeightSource
    ) -> tuple[Callable[[], NamedTensors], dict[str, Json] | None]:
        """What to send, and the settings of the adapter if it is one."""
        if self.traits.takes_adapter:
            adapter = source.adapter()
            # without peft's own types, which the engine's process need not know
            return adapter.tensors.items, json.loads(json.dumps(adapter.config))
        if self.traits.own_weights:
            return source.tensors, None
        # what is not trained is there since the start
        sent = [
            (name, parameter)
            for name, parameter in source.module.named_parameters()
            if parameter.requires_grad or self._held is None
        ]
        return lambda: sent, None

    @contextmanager
    def _may_write(self) -> Iterator[None]:
        """While the block runs no process takes in the weights of the last sync at its start."""
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
        """A few tokens that the engine samples from new weights."""
        future = self.submit(self._probe_request(version))
        self.begin()
        try:
            # and not for what another thread may have begun meanwhile
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
        """Give a new process the weights of the last sync, and see that it samples from them."""
        with self._may_write():
            if self._held is None:
                return  # the weights of the start, which it was born with
            version = self._held[0]
            limit, known = self._deadline, self._known
            self.channel.ask(process, "load_weights", *self._held, timeout=limit)
            if known is None or known.version != version:
                return  # there was no probe of them: requests were unfinished
            request = self._probe_request(version)
            (answer,) = self.channel.ask(process, "submit", request, timeout=limit)
        n = shared_prefix(known.token_ids, answer.token_ids)
        if n == 0:
            raise RunError(
                f"the engine's process, started again with the weights of version {version}, "
                "answers their probe by another token"
            )
        # the trainer may be in the middle of an update: what it said then is what counts
        check_probe(answer.logprobs[:n], known.logprobs[:n], self._dtype, self._device, version)


class ScoringChildEngine(ChildEngine):
    """One whose engine can also score given text."""

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """See ``Scorer.score``."""
        limit = self._deadline if timeout is None else timeout
        found: list[Scores] = self.channel.call("score", list(requests), timeout, timeout=limit)
        return found


class _ChildLink:
    """The one receiver, which takes the messages together with ``load_weights``."""

    receivers = 1
    members = ("child",)
    remote_hosts = ()

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def deliver(self, message: Json) -> None:
        """Keep it, also for a process that is started again."""
        self.messages.append(message)


def _lasting(chosen: TransportChoice) -> WeightTransport:
    """The trainer's end of a transport.

    Raises:
        ConfigError: If its messages cannot be received later.
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
    # its process sees one GPU that is the trainer's, or those kept for it
    return "cuda:0" if model.device.type == "cuda" else str(model.device)
