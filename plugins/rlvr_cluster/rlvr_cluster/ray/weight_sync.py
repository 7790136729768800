"""A weight sync: sends the trainer's weights once for all actors, and probes each actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from rlvr_cluster.ray.messages import SentWeights
from rlvr_core.api import (
    EngineContext,
    Generation,
    GenerationRequest,
    Json,
    NamedTensors,
    RunError,
    SamplingParams,
    WeightSource,
)
from rlvr_core.engines.vllm.probe import (
    PROBE_TOKENS,
    check_probe,
    probe_prompt,
    shared_prefix,
    source_logprobs,
)

_PROBE_PROMPT = 65
"""Largest probe prompt in tokens: two blocks of a prefix cache plus one token."""


class WeightSync:
    """Puts weights into Ray's object store, and checks what each actor samples with them.

    Args:
        context: The context that the engine was started with.
    """

    def __init__(self, context: EngineContext) -> None:
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
        """Put weights into the object store, once for all present and later actors."""
        import ray

        self._answers, self._expected = {}, None
        with torch.no_grad():
            tensors = {name: tensor.detach().cpu() for name, tensor in weights()}
        params = SamplingParams(max_tokens=PROBE_TOKENS)
        probe = GenerationRequest(f"probe@{version}", self._prompt, params, (version,))
        return SentWeights(version, [ray.put(tensors)], adapter_config, probe)

    def check(self, sent: SentWeights, name: str, answer: Generation) -> None:
        """Check an actor's answer to the probe after it has loaded weights.

        Raises:
            RunError: If it holds other weights than were sent.
        """
        if answer.version != sent.version:
            raise RunError(f"{name} says version {answer.version} after sync to {sent.version}")
        self._answers[name] = answer
        self._check_answer(name, answer)

    def compare(self, version: int, source: WeightSource) -> None:
        """Compare the actors' answers to the probe with the trainer's log-probs.

        Actors that load these weights later are compared then.

        Raises:
            RunError: If they differ.
        """
        answers = list(self._answers.items())
        token_ids = answers[0][1].token_ids if answers else self._prompt[:PROBE_TOKENS]
        # a collective of a sharded policy: every process takes part, even one without an actor
        logprobs = source_logprobs(source, self._prompt, token_ids, self._dtype)
        if answers:
            self._expected = (version, token_ids, logprobs)
        for name, answer in answers:
            self._check_answer(name, answer)

    def _check_answer(self, name: str, answer: Generation) -> None:
        if self._expected is None:
            return
        version, token_ids, ours = self._expected
        n = shared_prefix(token_ids, answer.token_ids)
        if n == 0:
            raise RunError(
                f"{name} answers the probe of version {version} with another token than the others"
            )
        check_probe(answer.logprobs[:n], ours[:n], self._dtype, self._device, version, name=name)
