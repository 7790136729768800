"""Engine ``ray``: rollouts by actors on the nodes of a Ray cluster; see ``docs/ray.md``."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from typing import Any

from rlvr_cluster.ray import actor_args, cluster
from rlvr_cluster.ray.config import RayConfig
from rlvr_cluster.ray.messages import Answers
from rlvr_cluster.ray.placement import Placement, reserve
from rlvr_cluster.ray.pool import ActorPool
from rlvr_cluster.ray.slots import Limits
from rlvr_cluster.ray.weight_sync import WeightSync
from rlvr_core.api import (
    ConfigError,
    EngineContext,
    EngineTraits,
    GenerationRequest,
    Interruptible,
    Json,
    Metric,
    NamedTensors,
    RlvrError,
    RunError,
    WeightSource,
    traits_of,
)
from rlvr_core.plugins import files
from rlvr_core.toolkit import ComponentRef, Host, build, load_host


class RayEngine:
    """Generates with another engine in actors of a Ray cluster."""

    Config = RayConfig
    reports = (
        Metric("engine/actors", "Rollout actors that hold the weights and are ready.", "actors"),
        Metric("engine/restarts", "Rollout actors replaced since the last step.", "restarts"),
        Metric(
            "engine/resent",
            "Completions requested again because their actor was lost or aborted them.",
            "completions",
        ),
    )
    traits = EngineTraits()

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._use, inner = _inner(config.engine)
        traits = traits_of(inner, EngineTraits)
        if traits.separate or traits.text_only or isinstance(inner, RayEngine):
            raise ConfigError(
                f"engine {self._use} starts its own processes or calls other machines, so an actor "
                "adds nothing",
                where="engine.with.engine",
                remedy="name an engine that generates in its own process, as vllm does, "
                f"or leave ray out: engine: {self._use}",
            )
        self.traits = replace(traits, takes_transport=False, elsewhere=False)
        self._interruptible = isinstance(inner, Interruptible)
        self._pool: ActorPool | None = None
        self._placement: Placement | None = None
        self._connected = False
        self._sync: WeightSync | None = None
        self._counts = (0, 0)

    def start(self, context: EngineContext) -> None:
        """Reach the cluster, reserve the places, and start the actors; see ``Engine.start``.

        Raises:
            MachineError: If Ray is missing, no cluster answers, or it has too little room.
            RlvrError: If an engine does not start.
        """
        assert context.model is not None, "the actors' models are built from the trainer's model"
        self._sync = WeightSync(context)
        self._connected = cluster.connect(self._config.address)
        try:
            self._start_actors(context)
        except BaseException:
            self.close()
            raise

    def _start_actors(self, context: EngineContext) -> None:
        config, own_weights = self._config, self.traits.own_weights
        assert self._sync is not None
        self._placement = reserve(config.resources, config.actors, config.deadline, "engine.with")
        args = actor_args.actor_args(config, self._use, context, own_weights=own_weights)
        self._pool = ActorPool(
            actor_args.slots(config, self._placement),
            Limits(config.deadline, config.restarts, config.max_in_flight),
            actor_args.put(args),
            split=self.traits.continuous,
            check=self._sync.check,
        )
        model: Any = context.model
        # an engine with weights of its own has read the model's files
        self._pool.start(None if own_weights else self._sync.send(0, model.named_parameters))

    # -- generating ------------------------------------------------------------------------------

    def submit(self, request: GenerationRequest) -> Future[Answers]:
        """Queue a request for the next ``begin`` or ``drain``.

        Raises:
            RlvrError: If the actors cannot continue.
        """
        return self._started().submit(request)

    def begin(self) -> None:
        """Send all queued requests at once; see ``BackgroundEngine``."""
        self._started().begin()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every request is answered; see ``Engine.drain``.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or the actors cannot continue.
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

        Every actor samples a probe, which is compared with the trainer's own log-probs. An actor
        that is lost meanwhile is replaced, and its successor passes the same check before it gets
        any work.

        Raises:
            RunError: If an actor did not load them. The engine then refuses all further work.
        """
        pool = self._started()
        assert self._sync is not None
        if pool.unfinished:
            raise RunError(
                f"weights of version {version} came while completions were being generated",
                remedy="drain the engine first: a completion has one version",
            )
        try:
            weights, adapter_config = self._weights_of(source)
            with pool.paused():
                pool.load_weights(self._sync.send(version, weights, adapter_config))
                self._sync.compare(version, source)
        except RlvrError as error:
            pool.fail(error)
            raise
        except BaseException as error:
            pool.fail(RunError(f"a weight sync was cut short: {type(error).__name__}: {error}"))
            raise

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; empty for an engine that cannot read its weights back.

        Raises:
            RunError: If actors hold different weights.
        """
        checksums: dict[str, int] = {}
        for name, held in self._started().fingerprints():
            if other := sorted(
                tensor for tensor in held.keys() & checksums if held[tensor] != checksums[tensor]
            ):
                raise RunError(
                    f"{name} holds other weights than the actors before it in {len(other)} of "
                    f"{len(held)} tensors: {other[0]}",
                    remedy="part of the weights did not arrive there; see rlvr docs guards#sync",
                )
            checksums |= held
        return checksums

    def _weights_of(
        self, source: WeightSource
    ) -> tuple[Callable[[], NamedTensors], dict[str, Json] | None]:
        """Return the weights to send, and the adapter's configuration if they are an adapter."""
        if self.traits.takes_adapter:
            adapter = source.adapter()
            # as plain JSON, so that an actor need not import peft
            return adapter.tensors.items, json.loads(json.dumps(adapter.config))
        if self.traits.own_weights:
            return source.tensors, None
        # the frozen ones too, for actors that join later
        return source.module.named_parameters, None

    # -- the rest --------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Return the number of actors, and of restarts and repeats since the last call."""
        pool = self._started()
        before, self._counts = self._counts, pool.counts()
        restarts, resent = self._counts
        return {
            "engine/actors": float(pool.n_ready()),
            "engine/restarts": float(restarts - before[0]),
            "engine/resent": float(resent - before[1]),
        }

    def take_events(self) -> list[str]:
        """Return the messages about lost and new actors since the last call."""
        return [] if self._pool is None else self._pool.take_events()

    def sleep(self) -> None:
        """Do nothing, because the actors have their own processors and GPUs."""

    def wake(self) -> None:
        """Do nothing, because the actors never sleep."""

    def close(self) -> None:
        """End the actors and release their resources; see ``Engine.close``."""
        if self._pool is not None:
            self._pool.close()
        placement, self._placement = self._placement, None
        if placement is not None:
            placement.remove()
        if self._connected:
            import ray

            self._connected = False
            ray.shutdown()

    def _started(self) -> ActorPool:
        if self._pool is None:
            raise RuntimeError("engine ray is not started")
        return self._pool


@cache
def _host() -> Host:
    return load_host()


def _inner(ref: ComponentRef) -> tuple[str, Any]:
    """Return a name of the engine that is valid on any node, and an instance, not started."""
    written = files.parse(ref.use)
    use = f"{written.file}:{written.name}" if written and written.in_file else ref.use
    named = ref.model_copy(update={"use": use})
    return use, build(_host(), "engine", named, "engine.with.engine")
