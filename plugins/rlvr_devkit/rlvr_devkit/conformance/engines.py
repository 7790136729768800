"""Promises of engines."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from rlvr_core.api import GenerationRequest, SamplingParams
from rlvr_core.testing.contexts import tiny_context
from rlvr_devkit.conformance.subject import Check, Subject, demand


class _Weights:
    """The weights of a module as a trainer's source for an engine; see ``WeightSource``."""

    sharded = False

    def __init__(self, module: Any) -> None:
        self.module = module

    def tensors(self) -> Any:
        """See ``WeightSource``."""
        return ((name, tensor.detach()) for name, tensor in self.module.named_parameters())

    def adapter(self) -> Any:
        """There is none."""
        raise ValueError("no adapter is trained")


def engine_answers(subject: Subject) -> None:
    """Check answers, their order, lengths, log-probs and versions, across a weight sync."""
    context = (subject.example.context or partial(tiny_context, subject.folder))()
    engine = subject.build()
    engine.start(context)
    try:
        for version in (0, 3):
            if version:
                engine.load_weights(version, _Weights(context.model))
            _answers(engine, version)
            engine.sleep()
            engine.wake()
        engine.drain(60)  # without any request
    finally:
        engine.close()
    engine.close()


def _answers(engine: Any, version: int) -> None:
    params = SamplingParams(max_tokens=5)
    requests = [GenerationRequest(f"r{i}", (10 + i, 20, 30), params, (1, 2)) for i in range(2)]
    futures = [engine.submit(request) for request in requests]
    engine.drain(300)
    for request, future in zip(requests, futures, strict=True):
        demand(future.done(), f"{request.id}: drain returned before its future was resolved")
        generations = future.result(0)
        n = len(generations)
        demand(n == 2, f"{request.id}: {n} generations for 2 seeds")
        for generation in generations:
            length, logprobs = len(generation.token_ids), generation.logprobs
            demand(0 < length <= 5, f"{request.id}: {length} tokens, where 1 to 5 were wanted")
            demand(len(logprobs) == length, f"{request.id}: {len(logprobs)} log-probs for {length}")
            fine = all(math.isfinite(x) and x <= 1e-4 for x in logprobs)
            demand(fine, f"{request.id}: log-probs are not finite and at most 0: {logprobs}")
            reason = generation.finish_reason
            demand(reason in ("stop", "length"), f"{request.id}: it finished by '{reason}'")
            got = generation.version
            demand(got == version, f"{request.id}: labelled with version {got}, not {version}")


ENGINE_CHECKS: tuple[Check, ...] = (
    Check("answers", "a generation per seed, labelled with its version", engine_answers),
)
