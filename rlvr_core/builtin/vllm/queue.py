"""Requests in a vLLM engine: from seeds to answers, with nothing lost and nothing half done."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Generation, GenerationRequest, RlvrError, RunError
from rlvr_core.builtin.vllm.io import generation, sampling_params
from rlvr_core.builtin.vllm.process import VERBOSE, first_line
from rlvr_core.engines.stop import StopStrings

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest
    from vllm.outputs import RequestOutput

MAX_ATTEMPTS = 3
"""How often a completion is sampled before an engine that keeps aborting it is an error."""


@dataclass(slots=True)
class _Pending:
    """A submitted request and its answers so far, in seed order."""

    request: GenerationRequest
    future: Future[tuple[Generation, ...]]
    answers: list[Generation | None]


@dataclass(slots=True)
class _Sample:
    """One seed of a request, in the engine."""

    pending: _Pending
    index: int
    version: int
    attempt: int = 1


class Queue:
    """Submitted requests of one vLLM engine.

    Each seed is a request of its own there: completions of one prompt share its cache blocks.

    Args:
        llm: vLLM's ``LLMEngine``.
        stop_strings: Of the run's tokenizer.
        eos_ids: Tokens that end a completion.
    """

    def __init__(self, llm: Any, stop_strings: StopStrings, eos_ids: tuple[int, ...]) -> None:
        self._llm = llm
        self._stop_strings = stop_strings
        self._eos_ids = eos_ids
        self._samples: dict[str, _Sample] = {}
        self._names = itertools.count()
        self.version = 0
        self.adapter: LoRARequest | None = None

    def __len__(self) -> int:
        """Completions that are not finished."""
        return len(self._samples)

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; its future is resolved in ``run``.

        Raises:
            RunError: If vLLM does not take its parameters or its token ids.
        """
        pending = _Pending(request, Future(), [None] * len(request.seeds))
        if not request.seeds:
            pending.future.set_result(())
        for index in range(len(request.seeds)):
            self._add(_Sample(pending, index, self.version))
        return pending.future

    def run(self, timeout: float | None, between: Callable[[], None] | None = None) -> None:
        """Step the engine until all are finished.

        Args:
            timeout: Seconds it may take.
            between: Called between steps; it may submit, abort, and change the weights.

        Raises:
            RunError: If that took longer than ``timeout`` seconds.
            Exception: Whatever vLLM raised.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self._samples:
            if time.monotonic() > deadline:
                raise self._abandon(timeout)
            for output in self._llm.step():
                self._take(output)
            self._resubmit_lost()
            if between is not None:
                between()
        # on a GPU a step may have been scheduled ahead; weights and cache must not change under it
        while self._llm.engine_core.engine_core.batch_queue:
            self._llm.step()

    def abort(self) -> None:
        """Cancel every open future."""
        samples, self._samples = self._samples, {}
        self._llm.abort_request(list(samples))
        for sample in samples.values():
            sample.pending.future.cancel()

    def fail(self, error: RunError) -> None:
        """Give every open future this error."""
        samples, self._samples = self._samples, {}
        for sample in samples.values():
            if not sample.pending.future.done():
                sample.pending.future.set_exception(error)

    def _add(self, sample: _Sample) -> None:
        request = sample.pending.request
        name = str(next(self._names))
        stop_ids = self._stop_strings.special_ids(request.params.stop).union(self._eos_ids)
        try:
            self._llm.add_request(
                name,
                {"type": "token", "prompt_token_ids": list(request.prompt_ids)},
                sampling_params(request.params, request.seeds[sample.index], sorted(stop_ids)),
                lora_request=self.adapter,
            )
        except Exception as error:  # its validation errors have no base of their own
            raise RunError(f"request {request.id}: vLLM refuses it: {first_line(error)}") from error
        self._samples[name] = sample

    def _take(self, output: RequestOutput) -> None:
        sample = self._samples.pop(output.request_id, None)
        if sample is None or sample.pending.future.done():
            return
        pending, answer = sample.pending, output.outputs[0]
        if answer.finish_reason not in ("stop", "length"):
            self._again(sample, str(answer.finish_reason))
            return
        try:
            found = generation(answer, pending.request, self._stop_strings.text, sample.version)
        except RlvrError as error:
            pending.future.set_exception(error)
            return
        pending.answers[sample.index] = found
        answers = tuple(one for one in pending.answers if one is not None)
        if len(answers) == len(pending.answers):
            pending.future.set_result(answers)

    def _resubmit_lost(self) -> None:
        """Sample again what was aborted from elsewhere: in process, vLLM reports no such end."""
        scheduler = self._llm.engine_core.engine_core.scheduler
        if not self._samples or scheduler.has_unfinished_requests():
            return
        lost, self._samples = self._samples, {}
        self._llm.abort_request(list(lost))  # what is left of them outside the scheduler
        for sample in lost.values():
            self._again(sample, "abort")

    def _again(self, sample: _Sample, reason: str) -> None:
        """Sample once more what ended without an answer: a partial one is none (T20)."""
        pending = sample.pending
        if pending.future.done():
            return
        if sample.attempt < MAX_ATTEMPTS:
            self._add(_Sample(pending, sample.index, self.version, sample.attempt + 1))
            return
        pending.future.set_exception(
            RunError(
                f"request {pending.request.id}: vLLM ended it by '{reason}' {MAX_ATTEMPTS} times",
                remedy=VERBOSE,
            )
        )

    def _abandon(self, timeout: float | None) -> RunError:
        error = RunError(
            f"generation was not finished within {timeout:g} s; {len(self)} completions were left",
            remedy="raise run.timeout, or ask for fewer or shorter completions",
        )
        self._llm.abort_request(list(self._samples))
        self.fail(error)
        return error
