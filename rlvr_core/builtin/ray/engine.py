"""Engine ``ray``: rollouts by actors on the nodes of a Ray cluster; see ``docs/ray.md``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

from pydantic import Field, model_validator

from rlvr_core import __version__
from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    Interruptible,
    Json,
    MachineError,
    Metric,
    NamedTensors,
    RlvrError,
    RunError,
    SamplingParams,
    TransportChoice,
    WeightSource,
    WeightTransport,
    traits_of,
)
from rlvr_core.api.services import (
    PROBE_TOKENS,
    ComponentRef,
    Host,
    build,
    check_probe,
    files,
    is_secret,
    load_host,
    probe_prompt,
    shared_prefix,
    source_logprobs,
)
from rlvr_core.builtin.ray import cluster
from rlvr_core.builtin.ray.actor import ActorArgs, Answers, Held, RolloutActor
from rlvr_core.builtin.ray.pool import ActorPool
from rlvr_core.builtin.ray.slots import Limits, Slot
from rlvr_core.builtin.ray.weights import (
    ActorLink,
    Outgoing,
    chosen_transport,
    join_digests,
    without_weights,
)

_PROBE_PROMPT = 65
"""Largest probe prompt in tokens: two blocks of a prefix cache plus one token."""
_EXTRA_CALLS = 64
"""Calls of an actor beside those for completions."""
_PASSED_ON = ("RLVR_PLUGINS", "VLLM_", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables of this process that actors get; those named like a secret are left out."""

Places = Annotated[int, Field(gt=0)]


class RayEngine:
    """Generates with another engine in actors of a Ray cluster."""

    class Config(ComponentConfig):
        """The actors, and what is in each."""

        engine: ComponentRef = ComponentRef(use="transformers")
        """The engine of each actor, with its options."""
        actors: Places = 1
        """Actors of each training process: one place for each is reserved, in one placement group,
        before the run starts."""
        max_actors: Places | None = None
        """Actors it may grow to as the cluster gets room; null: no more than ``actors``."""
        cpus: Annotated[float, Field(ge=0)] = 1
        """Processors of each actor."""
        gpus: Annotated[float, Field(ge=0)] = 0
        """GPUs of each actor."""
        address: str | None = None
        """``host:port`` of the cluster's head. null: that of RAY_ADDRESS, else the cluster that
        runs on this machine."""
        restarts: Annotated[int, Field(ge=0)] = 3
        """How often in a row an actor is replaced that has answered nothing."""
        deadline: Annotated[float, Field(gt=0)] = 600
        """Seconds for places to be free, for actors to start, and for them to take weights."""
        max_in_flight: Places = 256
        """Completions one actor is asked for at a time."""

        @model_validator(mode="after")
        def _grows(self) -> RayEngine.Config:
            if self.max_actors is not None and self.max_actors < self.actors:
                raise ValueError(f"max_actors is {self.max_actors}, and actors {self.actors}")
            if not self.cpus and not self.gpus:
                raise ValueError("an actor needs cpus or gpus")
            return self

    reports = (
        Metric("engine/actors", "Rollout actors that hold the weights and can be asked.", "actors"),
        Metric("engine/restarts", "Rollout actors replaced since the last step.", "restarts"),
        Metric(
            "engine/resent",
            "Completions asked for again, as their actor was lost or aborted them.",
            "completions",
        ),
    )
    traits = EngineTraits(takes_transport=True)

    def __init__(self, config: Config) -> None:
        self._config = config
        self._use, inner = _inner(config.engine)
        traits = traits_of(inner, EngineTraits)
        if traits.separate or traits.text_only or isinstance(inner, RayEngine):
            raise ConfigError(
                f"engine {self._use} makes processes of its own or asks other machines: an actor "
                "adds nothing",
                where="engine.with.engine",
                remedy="name an engine that generates in its process, as vllm and transformers do, "
                f"or leave ray out: engine: {self._use}",
            )
        self.traits = replace(traits, takes_transport=True, elsewhere=False)
        self._interruptible = isinstance(inner, Interruptible)
        self._pool: ActorPool | None = None
        self._group: Any = None
        self._ours = False
        self._transport: WeightTransport | None = None
        self._context: Any = None
        self._probe_ids: tuple[int, ...] = ()
        self._proofs: dict[str, Generation] = {}
        self._known: tuple[int, Sequence[int], Sequence[float]] | None = None
        self._told = (0, 0)

    def start(self, context: EngineContext) -> None:
        """Reach the cluster, reserve the places, and start the actors; see ``Engine.start``.

        Raises:
            ConfigError: If the transport cannot be used.
            MachineError: If Ray is missing, no cluster answers, or it has too little room.
            RlvrError: What an engine says that does not start.
        """
        config = self._config
        model: Any = context.model
        assert model is not None, "the trainer's model is what the actors' are made like"
        self._context, self._device = context, model.device
        chosen = chosen_transport(context.transport, _host())
        self._transport = chosen.make()
        vocabulary = int(model.get_input_embeddings().weight.shape[0])
        length = max(1, min(_PROBE_PROMPT, context.max_model_len - PROBE_TOKENS))
        self._probe_ids = probe_prompt(context.tokenizer, vocabulary, length)
        self._ours = cluster.connect(config.address)
        try:
            self._start_actors(self._args(context, chosen), model)
        except BaseException:
            self.close()
            raise

    def _start_actors(self, args: ActorArgs, model: Any) -> None:
        import ray

        config = self._config
        resources = {"CPU": config.cpus, "GPU": config.gpus}
        bundle = {name: count for name, count in resources.items() if count}
        self._group = cluster.reserve([bundle] * config.actors, config.deadline)
        try:
            reference = ray.put(args)
        except Exception as error:
            raise MachineError(
                f"what engine {self._use} needs cannot be sent to a rollout actor: {error}",
                where="engine.with.engine",
                remedy="choose another engine",
            ) from error
        self._pool = ActorPool(
            list(self._slots()),
            Limits(config.deadline, config.restarts, config.max_in_flight),
            reference,
            single=self.traits.continuous,
            check=self._holds,
        )
        # an engine with weights of its own has read the model's files
        held = None if self.traits.own_weights else self._send(0, model.named_parameters)
        self._pool.start(held)

    def _slots(self) -> Iterator[Slot]:
        for index in range(self._config.max_actors or self._config.actors):
            elastic = index >= self._config.actors
            yield Slot(f"rollout actor {index}", elastic, self._creator(index, elastic))

    def _creator(self, index: int, elastic: bool) -> Callable[[], Any]:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        config = self._config
        strategy: Any = "SPREAD"
        if not elastic:
            strategy = PlacementGroupSchedulingStrategy(self._group, index)
        actor = ray.remote(RolloutActor).options(
            num_cpus=config.cpus,
            num_gpus=config.gpus,
            max_restarts=0,
            max_concurrency=config.max_in_flight + _EXTRA_CALLS,
            scheduling_strategy=strategy,
        )
        return lambda: actor.remote()

    def _args(self, context: EngineContext, chosen: TransportChoice) -> ActorArgs:
        own = self.traits.own_weights
        model: Any = context.model
        bare: Any = SimpleNamespace(
            config=model.config, generation_config=getattr(model, "generation_config", None)
        )
        path = Path(context.model_path)
        return ActorArgs(
            use=self._use,
            options=self._config.engine.with_,
            context=replace(
                context,
                model=bare if own else without_weights(model),
                model_path=str(path.absolute()) if path.exists() else context.model_path,
                transport=None,
            ),
            own_weights=own,
            device="cuda:0" if self._config.gpus else "cpu",
            transport=chosen,
            threads=max(1, math.floor(self._config.cpus)),
            environment={
                name: value
                for name, value in os.environ.items()
                if name.startswith(_PASSED_ON) and not is_secret(name)
            },
            version=__version__,
        )

    # -- generating ------------------------------------------------------------------------------

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin`` or ``drain``.

        Raises:
            RlvrError: If the actors cannot go on.
        """
        return self._started().submit(request)

    def begin(self) -> None:
        """Send all queued requests at once; see ``BackgroundEngine``."""
        self._started().begin()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every request is answered; see ``Engine.drain``.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the actors cannot go on.
        """
        self._started().wait(timeout)

    @property
    def in_flight(self) -> frozenset[str]:
        """See ``BackgroundEngine``."""
        return frozenset({"drain", "abort"} if self._interruptible else {"drain"})

    def abort(self) -> None:
        """See ``BackgroundEngine``."""
        self._started().cancel()

    # -- weights ---------------------------------------------------------------------------------

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Send the trainer's weights to all actors; see ``Engine.load_weights``.

        Every actor says by a fingerprint of all bits what arrived, and samples a probe that is
        compared with the trainer's own log-probs. An actor that is lost meanwhile is replaced, and
        its successor proves the same before it is asked for anything.

        Raises:
            RunError: If an actor did not take them. The engine then refuses all further work.
        """
        pool = self._started()
        if pool.unfinished:
            raise RunError(
                f"weights of version {version} came while completions were being generated",
                remedy="drain the engine first: a completion has one version",
            )
        try:
            weights, adapter_config = self._weights_of(source)
            with pool.holding():
                self._proofs, self._known = {}, None
                pool.give(self._send(version, weights, adapter_config))
                self._compare(version, source)
        except RlvrError as error:
            pool.fail(error)
            raise
        except BaseException as error:
            pool.fail(RunError(f"a weight sync was cut short: {type(error).__name__}: {error}"))
            raise

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; nothing of an engine that cannot read its weights back.

        Raises:
            RunError: If actors hold different weights.
        """
        found: dict[str, int] = {}
        for name, held in self._started().ask_all("fingerprint"):
            if other := sorted(one for one in held.keys() & found if held[one] != found[one]):
                raise RunError(
                    f"{name} holds other weights than the actors before it in {len(other)} of "
                    f"{len(held)} tensors: {other[0]}",
                    remedy="part of the weights did not arrive there; see docs/guards.md#sync",
                )
            found |= held
        return found

    def _weights_of(
        self, source: WeightSource
    ) -> tuple[Callable[[], NamedTensors], dict[str, Json] | None]:
        """Return the weights to send, and the adapter's configuration if they are an adapter."""
        if self.traits.takes_adapter:
            adapter = source.adapter()
            # without peft's types, which an actor need not import
            return adapter.tensors.items, json.loads(json.dumps(adapter.config))
        if self.traits.own_weights:
            return source.tensors, None
        # the frozen ones too, for actors that join later
        return source.module.named_parameters, None

    def _send(
        self,
        version: int,
        weights: Callable[[], NamedTensors],
        adapter_config: Mapping[str, Json] | None = None,
    ) -> Held:
        """Send weights by the transport, to whoever will receive the messages."""
        import torch

        assert self._transport is not None
        outgoing, link = Outgoing(weights), ActorLink(len(list(self._slots())))
        with torch.no_grad():
            self._transport.send(outgoing, link)
        probe = GenerationRequest(
            f"probe@{version}", self._probe_ids, SamplingParams(max_tokens=PROBE_TOKENS), (version,)
        )
        return Held(version, link.messages, adapter_config, join_digests(outgoing.sent), probe)

    def _holds(self, name: str, held: Held, value: Any) -> None:
        """Check what an actor says after it has loaded weights.

        Raises:
            RunError: If it has others than were sent.
        """
        digest, answer = value
        if digest != held.digest:
            raise RunError(
                f"weight sync to version {held.version}: other weights arrived at {name} than were "
                "sent",
                remedy="the transport lost or changed some: see engine.transport",
            )
        if answer.version != held.version:
            raise RunError(f"{name} says version {answer.version} after sync to {held.version}")
        self._proofs[name] = answer
        if self._known is not None and self._known[0] == held.version:
            self._like_known(name, answer)

    def _compare(self, version: int, source: WeightSource) -> None:
        """Compare the actors' answers to the probe with the trainer's log-probs."""
        answers = list(self._proofs.items())
        token_ids = answers[0][1].token_ids if answers else self._probe_ids[:PROBE_TOKENS]
        # of a sharded policy a collective: every process takes part, even one without an actor
        ours = source_logprobs(source, self._probe_ids, token_ids, self._context.dtype)
        if not answers:
            return
        self._known = (version, token_ids, ours)
        for name, answer in answers:
            self._like_known(name, answer)

    def _like_known(self, name: str, answer: Generation) -> None:
        assert self._known is not None
        version, token_ids, ours = self._known
        n = shared_prefix(token_ids, answer.token_ids)
        if n == 0:
            raise RunError(
                f"{name} answers the probe of version {version} by another token than the others"
            )
        dtype = self._context.dtype
        check_probe(answer.logprobs[:n], ours[:n], dtype, self._device, version, name=name)

    # -- the rest --------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Actors, and replacements and repeated completions since the last call."""
        pool = self._started()
        now, before = (pool.restarts, pool.resent), self._told
        self._told = now
        return {
            "engine/actors": float(pool.n_ready()),
            "engine/restarts": float(now[0] - before[0]),
            "engine/resent": float(now[1] - before[1]),
        }

    def take_events(self) -> list[str]:
        """Messages about lost actors, and those that joined, since the last call."""
        return [] if self._pool is None else self._pool.take_events()

    def sleep(self) -> None:
        """Do nothing: the actors have processors and GPUs of their own."""

    def wake(self) -> None:
        """Do nothing: they never sleep."""

    def close(self) -> None:
        """End the actors and give their places back; see ``Engine.close``."""
        if self._pool is not None:
            self._pool.close()
        group, self._group = self._group, None
        if group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group)
        if self._ours:
            import ray

            self._ours = False
            ray.shutdown()
        if self._transport is not None:
            self._transport.close()

    def _started(self) -> ActorPool:
        if self._pool is None:
            raise RuntimeError("engine ray is not started")
        return self._pool


@cache
def _host() -> Host:
    return load_host()


def _inner(ref: ComponentRef) -> tuple[str, Any]:
    """Return how an actor on any node may name the engine, and one of it, not started."""
    written = files.parse(ref.use)
    use = f"{written.file}:{written.name}" if written and written.in_file else ref.use
    named = ref.model_copy(update={"use": use})
    return use, build(_host(), "engine", named, "engine.with.engine")
