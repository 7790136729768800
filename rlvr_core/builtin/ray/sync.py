"""A weight sync: the trainer's weights sent once for all actors, and what each has to prove."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import (
    ConfigError,
    EngineContext,
    Generation,
    GenerationRequest,
    Json,
    NamedTensors,
    RunError,
    SamplingParams,
    TensorMeta,
    TransportChoice,
    TransportTraits,
    WeightSource,
    WeightTransport,
    traits_of,
)
from rlvr_core.api.services import (
    PROBE_TOKENS,
    check_probe,
    probe_prompt,
    shared_prefix,
    source_logprobs,
)
from rlvr_core.builtin.ray.messages import LoadedWeights, SentWeights
from rlvr_core.builtin.ray.object_store import ObjectStore
from rlvr_core.builtin.ray.weights import join_digests, tensor_digest

_PROBE_PROMPT = 65
"""Largest probe prompt in tokens: two blocks of a prefix cache plus one token."""


class WeightSync:
    """Sends weights to the actors, and checks what each says that it holds.

    Args:
        transport: How they travel.
        receivers: Number of actors that there may be.
        context: What the engine was started with.
    """

    def __init__(self, transport: WeightTransport, receivers: int, context: EngineContext) -> None:
        self._transport, self._receivers = transport, receivers
        model: Any = context.model
        self._dtype, self._device = context.dtype, model.device
        vocabulary = int(model.get_input_embeddings().weight.shape[0])
        length = max(1, min(_PROBE_PROMPT, context.max_model_len - PROBE_TOKENS))
        self._prompt = probe_prompt(context.tokenizer, vocabulary, length)
        self._answers: dict[str, Generation] = {}
        self._expected: tuple[int, Sequence[int], Sequence[float]] | None = None

    def send(
        self,
        version: int,
        weights: Callable[[], NamedTensors],
        adapter_config: Mapping[str, Json] | None = None,
    ) -> SentWeights:
        """Send weights by the transport, to whoever will receive the messages."""
        self._answers, self._expected = {}, None
        outgoing, link = Outgoing(weights), ActorLink(self._receivers, _nodes())
        with torch.no_grad():
            self._transport.send(outgoing, link)
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        probe = GenerationRequest(f"probe@{version}", self._prompt, params, (version,))
        digest = join_digests(outgoing.sent)
        return SentWeights(version, link.messages, adapter_config, digest, probe)

    def check(self, sent: SentWeights, name: str, loaded: LoadedWeights) -> None:
        """Check what an actor says after it has loaded weights.

        Raises:
            RunError: If it has others than were sent.
        """
        if loaded.digest != sent.digest:
            raise RunError(
                f"weight sync to version {sent.version}: other weights arrived at {name} than were "
                "sent",
                remedy="the transport lost or changed some: see engine.transport",
            )
        answer = loaded.answer
        if answer.version != sent.version:
            raise RunError(f"{name} says version {answer.version} after sync to {sent.version}")
        self._answers[name] = answer
        self._check_answer(name, answer)

    def compare(self, version: int, source: WeightSource) -> None:
        """Compare the actors' answers to the probe with the trainer's log-probs.

        Those of actors that load these weights later are compared when they come.

        Raises:
            RunError: If they differ.
        """
        answers = list(self._answers.items())
        token_ids = answers[0][1].token_ids if answers else self._prompt[:PROBE_TOKENS]
        # of a sharded policy a collective: every process takes part, even one without an actor
        logprobs = source_logprobs(source, self._prompt, token_ids, self._dtype)
        if answers:
            self._expected = (version, token_ids, logprobs)
        for name, answer in answers:
            self._check_answer(name, answer)

    def close(self) -> None:
        """End the transport."""
        self._transport.close()

    def _check_answer(self, name: str, answer: Generation) -> None:
        if self._expected is None:
            return
        version, token_ids, ours = self._expected
        n = shared_prefix(token_ids, answer.token_ids)
        if n == 0:
            raise RunError(
                f"{name} answers the probe of version {version} by another token than the others"
            )
        check_probe(answer.logprobs[:n], ours[:n], self._dtype, self._device, version, name=name)


class Outgoing:
    """The weights of one sync, with fingerprints of what was sent; see ``OutgoingWeights``."""

    def __init__(self, make: Callable[[], NamedTensors]) -> None:
        self._make = make
        self.sent: dict[str, str] = {}

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Names, dtypes and shapes; gathers a sharded policy, so every process must call it."""
        return [TensorMeta(name, one.dtype, tuple(one.shape)) for name, one in self._make()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over names and tensors; afterwards ``sent`` is complete."""
        for name, tensor in self._make():
            self.sent[name] = tensor_digest(tensor)
            yield name, tensor


class ActorLink:
    """The actors, which get a sync's messages together with ``load_weights``.

    Args:
        receivers: Number of actors that there may be.
        nodes: Addresses of the cluster's nodes, for ``remote_hosts``.
    """

    def __init__(self, receivers: int, nodes: tuple[str, ...] = ()) -> None:
        self.receivers, self.remote_hosts = receivers, nodes
        self.members = tuple(f"rollout actor {index}" for index in range(receivers))
        self.messages: list[Json] = []

    def deliver(self, message: Json) -> None:
        """Keep a message, also for actors that join later."""
        self.messages.append(message)


def _nodes() -> tuple[str, ...]:
    """Addresses of the cluster's nodes.

    Other machines come first, so that the way to them decides where weights are served; last the
    one by which the cluster knows this machine, for nodes that join later.
    """
    import ray

    own = ray.util.get_node_ip_address()
    every = {str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]}
    return (*sorted(every - {own}), own)


def chosen_transport(configured: TransportChoice | None) -> TransportChoice:
    """Return the configured transport, by default Ray's object store.

    Raises:
        ConfigError: If its messages cannot be received by actors that join later, or only by a
            process that inherits open files.
    """
    if configured is None:
        return ObjectStore()
    made = configured.make()
    if not traits_of(made, TransportTraits).lasting:
        raise ConfigError(
            f"transport {configured.name} needs a receiver that is there when it sends, and "
            "rollout actors come and go",
            where="engine.transport",
            remedy="leave it out, or take one whose traits say lasting, as core/files does",
        )
    return configured
