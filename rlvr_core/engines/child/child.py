"""Runs an engine in a process of its own, so that it generates while this process trains.

The engine has its own weights, which change only at a weight sync. A transport sends them, by
default through files in shared memory.
"""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rlvr_core.api import (
    ConfigError,
    Engine,
    EngineContext,
    EngineTraits,
    FingerprintsWeights,
    Generation,
    GenerationRequest,
    Interruptible,
    Json,
    MachineError,
    NamedTensors,
    RunError,
    SamplingParams,
    Scorer,
    ScoreRequest,
    Scores,
    TransportTraits,
    WeightSource,
    WeightTransport,
    traits_of,
)
from rlvr_core.api.transport import TransportChoice
from rlvr_core.engines.child.child_host import SpawnArgs
from rlvr_core.engines.child.child_process import EngineProcess, gpus_for
from rlvr_core.engines.child.shared_weights import Outgoing
from rlvr_core.engines.vllm.files import FILES
from rlvr_core.engines.vllm.probe import (
    PROBE_TOKENS,
    check_probe,
    probe_prompt,
    source_logprobs,
    trainer_logprobs,
)

_PROBE_PROMPT = 65
"""Largest probe prompt in tokens: two blocks of a prefix cache plus one token."""

Answers = tuple[Generation, ...]


def in_child(engine: Engine, deadline: float) -> ChildEngine:
    """Wrap an engine that has not been started so that it runs in its own process.

    Args:
        engine: The engine.
        deadline: Seconds allowed for a weight sync or scoring.
    """
    kind = ScoringChildEngine if isinstance(engine, Scorer) else ChildEngine
    return kind(engine, deadline)


class ChildEngine:
    """The trainer's side: a ``BackgroundEngine``. Methods may be called from any thread."""

    def __init__(self, engine: Engine, deadline: float) -> None:
        self._engine: Any = engine
        inner = traits_of(engine, EngineTraits)
        self.traits = EngineTraits(
            continuous=inner.continuous,
            own_weights=inner.own_weights,
            takes_adapter=inner.takes_adapter,
            takes_transport=True,
        )
        self._deadline = deadline
        self._process: EngineProcess | None = None
        self._transport: WeightTransport | None = None
        self._dtype: Any = None
        self._device: Any = None
        self._probe_ids: tuple[int, ...] = ()
        self._sent_before = False

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
        chosen = context.transport or FILES
        self._transport = _lasting(chosen)
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
        self._process = EngineProcess(message, gpus_for(model.device))
        self._process.await_start()

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin`` or ``drain``."""
        return self.channel.submit(request)

    def begin(self) -> None:
        """Send all queued requests at once; see ``BackgroundEngine``."""
        self.channel.begin()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every submitted request is finished.

        Raises:
            RunError: If it takes longer than ``timeout`` seconds, or the process has died.
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
        self.channel.drop()
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
        weights, adapter_config = self._weights_of(source)
        link = _ChildLink()
        self._transport.send(Outgoing(weights), link)
        sent = (version, link.messages, adapter_config)
        self.channel.call("load_weights", *sent, timeout=self._deadline)
        self._sent_before = True
        answer = None if self.channel.unfinished() else self._ask_probe(version)
        ours: Sequence[float] = ()
        if module is None:
            # collective too: every process takes part, even if its engine has unfinished requests
            token_ids = self._probe_ids[:PROBE_TOKENS] if answer is None else answer.token_ids
            ours = source_logprobs(source, self._probe_ids, token_ids, self._dtype)
        elif answer is not None:
            ours = trainer_logprobs(module, self._probe_ids, answer.token_ids, self._dtype)
        if answer is not None:
            check_probe(answer.logprobs, ours, self._dtype, self._device, version)

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; empty if the engine cannot read its weights back."""
        if not isinstance(self._engine, FingerprintsWeights):
            return {}
        checksums: dict[str, int] = self.channel.call("fingerprint", timeout=self._deadline)
        return checksums

    def sleep(self) -> None:
        """Do nothing: the engine generates while the trainer works."""

    def wake(self) -> None:
        """Do nothing: the engine never sleeps."""

    def close(self) -> None:
        """End the process; see ``Engine.close``."""
        if self._process is not None:
            self._process.close()
        if self._transport is not None:
            self._transport.close()

    @property
    def channel(self) -> EngineProcess:
        """The engine's process."""
        assert self._process is not None, "the engine is not started"
        return self._process

    # -- weights ---------------------------------------------------------------------------------

    def _copy_of(self, model: Any) -> Any:
        """Return the object that represents the trainer's model in the engine's process."""
        if self.traits.own_weights:
            return SimpleNamespace(
                config=model.config, generation_config=getattr(model, "generation_config", None)
            )
        # torch computes a layer in another way where its weight asks for no gradient
        return copy.deepcopy(model).cpu()

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
            if parameter.requires_grad or not self._sent_before
        ]
        return lambda: sent, None

    def _ask_probe(self, version: int) -> Generation:
        """Ask the engine to sample a few tokens with new weights."""
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        future = self.submit(
            GenerationRequest(f"probe@{version}", self._probe_ids, params, (version,))
        )
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


class ScoringChildEngine(ChildEngine):
    """A ``ChildEngine`` whose engine can also score given text."""

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """See ``Scorer.score``."""
        limit = self._deadline if timeout is None else timeout
        scores: list[Scores] = self.channel.call("score", list(requests), timeout, timeout=limit)
        return scores


class _ChildLink:
    """The single receiver, which gets the messages together with ``load_weights``."""

    receivers = 1
    members = ("child",)
    remote_hosts = ()

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def deliver(self, message: Json) -> None:
        """Store a message."""
        self.messages.append(message)


def _lasting(chosen: TransportChoice) -> WeightTransport:
    """Create the trainer's side of a transport.

    Raises:
        ConfigError: If its messages can be received only while it sends.
    """
    transport = chosen.make()
    if not traits_of(transport, TransportTraits).lasting:
        raise ConfigError(
            f"transport {chosen.name} needs receivers that wait for it, and an engine in a "
            "process of its own cannot wait",
            where="engine.transport",
            remedy="leave it out, or use a transport with the trait lasting, such as core/files",
        )
    return transport


def _place_of(model: Any) -> str:
    # its process sees one GPU: the trainer's, or one reserved for engines
    return "cuda:0" if model.device.type == "cuda" else str(model.device)
