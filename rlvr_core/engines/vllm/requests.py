"""Requests in the vLLM engine of this process: samples completions, and scores given text.

Every request ends with all its answers, or with an error.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Generation,
    GenerationRequest,
    RlvrError,
    RunError,
    SamplingParams,
    ScoreRequest,
    Scores,
    one_line,
)
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.vllm.process import VERBOSE

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest
    from vllm.outputs import RequestOutput

MAX_ATTEMPTS = 3
"""Maximum attempts to sample a completion that the engine keeps aborting."""
_FLOOR = -9999.0  # what a server says instead of minus infinity and NaN


def room_for(request: GenerationRequest, max_model_len: int) -> int:
    """Return the maximum number of tokens of a completion.

    Args:
        request: The request.
        max_model_len: Maximum tokens of prompt and completion together.

    Raises:
        RunError: If the prompt is empty, or leaves no room for a token.
    """
    length = len(request.prompt_ids)
    if length == 0:
        raise RunError(f"request {request.id}: the prompt has no tokens")
    if length >= max_model_len:
        raise RunError(
            f"request {request.id}: a prompt of {length} tokens leaves no room for an answer "
            f"in the engine's {max_model_len}",
            remedy="lower data.max_prompt_tokens, or raise sampling.max_tokens",
        )
    return max_model_len - length


def sampling_fields(params: SamplingParams, seed: int, stop_ids: Sequence[int]) -> dict[str, Any]:
    """Return vLLM's sampling parameters for one completion with its own seed.

    Args:
        params: How to sample.
        seed: Seed of this completion.
        stop_ids: Tokens that end it, and stay in it.
    """
    return {
        "n": 1,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "max_tokens": params.max_tokens,
        "seed": seed % 2**63,  # -1 would mean none
        "stop": list(params.stop),
        "stop_token_ids": sorted(stop_ids),
        "include_stop_str_in_output": True,
        "logprobs": 0,  # of the sampled token only
        "detokenize": bool(params.stop),  # vLLM needs text only to look for stop strings
    }


def generation(
    request: GenerationRequest,
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    spans: Sequence[tuple[int, int, int]],
    finish_reason: str,
    text: Callable[[Sequence[int]], str],
    version: int,
) -> Generation:
    """Make a generation of a completion that vLLM finished by ``stop`` or ``length``.

    Its text is decoded from all its tokens. vLLM's own text ends exactly at a stop string, which
    the last token may extend beyond: the graded text would not be the trained one.

    Args:
        request: Its request, for messages.
        token_ids: Its tokens.
        logprobs: Their log-probs.
        spans: Version, first token and end (exclusive) of each span of tokens, in order: vLLM's own
            labels of the weights that sampled them.
        finish_reason: Why it ended.
        text: Decodes token ids.
        version: Policy version of an answer without tokens.

    Raises:
        RunError: If there is not one finite log-prob and one label per token.
    """
    n = len(token_ids)
    if len(logprobs) != n or not all(
        math.isfinite(logprob) and logprob > _FLOOR for logprob in logprobs
    ):
        raise RunError(
            f"request {request.id}: vLLM returned log-probs that are not finite",
            remedy="the weights have overflowed: look at the loss and gradient norm of the last "
            "steps, lower train.lr, or use bfloat16 instead of float16",
        )
    versions = [label for label, start, end in spans for _ in range(start, end)]
    if len(versions) != n:
        raise RunError(
            f"vLLM says of {len(versions)} of {n} tokens by which weights they were sampled",
            remedy="take the version of vLLM that rlvr docs installation names",
        )
    first = versions[0] if versions else version
    return Generation(
        token_ids=tuple(token_ids),
        logprobs=tuple(logprobs),
        text=text(token_ids),
        finish_reason="stop" if finish_reason == "stop" else "length",
        version=first,
        token_versions=tuple(versions) if set(versions) - {first} else (),
    )


@dataclass(slots=True)
class Pending:
    """A submitted request and its answers so far, in seed order.

    Attributes:
        request: The request.
    """

    request: GenerationRequest
    future: Future[tuple[Generation, ...]] = field(default_factory=Future)
    answers: list[Generation | None] = field(init=False)

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.request.seeds)

    def finish(self) -> None:
        """Resolve the future if all answers are there."""
        if None not in self.answers and not self.future.done():
            self.future.set_result(tuple(answer for answer in self.answers if answer is not None))

    def fail(self, error: RlvrError) -> None:
        """Resolve the future with an error."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class _Sample:
    """One seed of a request, in the engine."""

    pending: Pending
    index: int
    version: int
    attempt: int = 1


class Requests:
    """Submitted requests of one vLLM engine.

    Each seed is a separate request to vLLM; completions of one prompt share its cache blocks.

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
        self.cached_tokens = 0
        """Tokens of the last answered prompt whose keys and values were in the prefix cache."""

    def __len__(self) -> int:
        """Number of unfinished completions."""
        return len(self._samples)

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; its future is resolved in ``run``.

        Raises:
            RunError: If vLLM rejects its parameters or its token ids.
        """
        return self.submit_alike(request)

    def submit_alike(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request that every process of the engine queues too; all get the answers.

        Raises:
            RunError: If vLLM rejects its parameters or its token ids.
        """
        pending = Pending(request)
        self._begin(pending)
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
                self._record_answer(output)
            self._resubmit_lost()
            if between is not None:
                between()
        self._finish_scheduled()

    def abort(self) -> None:
        """Cancel every open future."""
        samples, self._samples = self._samples, {}
        self._llm.abort_request(list(samples))
        for sample in samples.values():
            sample.pending.future.cancel()

    def fail(self, error: RunError) -> None:
        """Fail every open future with this error."""
        samples, self._samples = self._samples, {}
        for sample in samples.values():
            sample.pending.fail(error)

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """Score each request's tokens after its prompt, on the idle engine.

        Args:
            requests: The requests to score.
            timeout: Time limit in seconds.

        Returns:
            One result per request, in order.

        Raises:
            RunError: If it took too long, or vLLM left an answer out.
            Exception: Whatever vLLM raised.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        deadline = math.inf if timeout is None else time.monotonic() + timeout
        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            prompt_logprobs=0,  # of the prompt's own tokens only
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        names = [f"score-{index}" for index in range(len(requests))]
        for name, request in zip(names, requests, strict=True):
            ids = [*request.prompt_ids, *request.token_ids]
            self._llm.add_request(
                name, {"type": "token", "prompt_token_ids": ids}, params, lora_request=self.adapter
            )
        scores: dict[str, Scores] = {}
        by_name = dict(zip(names, requests, strict=True))
        while self._llm.has_unfinished_requests():
            if self._late(time.monotonic() > deadline):
                self._llm.abort_request([name for name in names if name not in scores])
                raise RunError(
                    f"scoring was not finished within {timeout:g} s; "
                    f"{len(names) - len(scores)} of {len(names)} texts were left",
                    remedy="raise the deadline",
                )
            for output in self._llm.step():
                if output.request_id in by_name and output.finished:
                    scores[output.request_id] = _scores_of(output, by_name[output.request_id])
        if len(scores) != len(names):
            raise RunError(f"vLLM scored {len(scores)} of {len(names)} texts")
        return [scores[name] for name in names]

    def _late(self, mine: bool) -> bool:
        """Whether scoring is to stop, by whether the time of this process is over."""
        return mine

    def _finish_scheduled(self) -> None:
        """Take the steps that a GPU has scheduled ahead.

        Weights and cache must not change under them.
        """
        while self._llm.engine_core.engine_core.batch_queue:
            self._llm.step()

    def _begin(self, pending: Pending) -> None:
        """Give vLLM the seeds of a request."""
        pending.finish()
        for index in range(len(pending.answers)):
            self._add(_Sample(pending, index, self.version))

    def _add(self, sample: _Sample) -> None:
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        request = sample.pending.request
        name = str(next(self._names))
        stop_ids = self._stop_strings.special_ids(request.params.stop).union(self._eos_ids)
        try:
            fields = sampling_fields(request.params, request.seeds[sample.index], list(stop_ids))
            self._llm.add_request(
                name,
                {"type": "token", "prompt_token_ids": list(request.prompt_ids)},
                VllmSamplingParams(**fields, output_kind=RequestOutputKind.FINAL_ONLY),
                lora_request=self.adapter,
            )
        except Exception as error:  # its validation errors have no common base class
            raise RunError(f"request {request.id}: vLLM refuses it: {one_line(error)}") from error
        self._samples[name] = sample

    def _record_answer(self, output: RequestOutput) -> None:
        sample = self._samples.pop(output.request_id, None)
        if sample is None or sample.pending.future.done():
            return
        pending, answer = sample.pending, output.outputs[0]
        self.cached_tokens = output.num_cached_tokens or 0
        if answer.finish_reason not in ("stop", "length"):
            self._retry(sample, str(answer.finish_reason))
            return
        entries = zip(answer.token_ids, answer.logprobs or (), strict=False)
        try:
            pending.answers[sample.index] = generation(
                pending.request,
                [int(token) for token in answer.token_ids],
                [float(at_position[token].logprob) for token, at_position in entries],
                [(int(s.version), s.start, s.end) for s in answer.weight_versions or ()],
                answer.finish_reason,
                self._text(pending),
                sample.version,
            )
        except RlvrError as error:
            pending.fail(error)
            return
        pending.finish()

    def _text(self, pending: Pending) -> Callable[[Sequence[int]], str]:
        """Return the detokenizer of the answers."""
        return self._stop_strings.text

    def _resubmit_lost(self) -> None:
        """Sample aborted completions again: in process, vLLM does not report that they ended."""
        scheduler = self._llm.engine_core.engine_core.scheduler
        if not self._samples or scheduler.has_unfinished_requests():
            return
        lost, self._samples = self._samples, {}
        self._llm.abort_request(list(lost))  # removes their state outside the scheduler
        for sample in lost.values():
            self._retry(sample, "abort")

    def _retry(self, sample: _Sample, reason: str) -> None:
        """Sample again a completion that ended incomplete: a partial one does not count."""
        pending = sample.pending
        if pending.future.done():
            return
        if sample.attempt < MAX_ATTEMPTS:
            self._add(_Sample(pending, sample.index, self.version, sample.attempt + 1))
            return
        pending.fail(
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


def _scores_of(output: Any, request: ScoreRequest) -> Scores:
    """Return the scores of the scored tokens; rank 1 is the most likely token."""
    n = len(request.token_ids)
    entries = [
        at_position[token]
        for token, at_position in zip(request.token_ids, output.prompt_logprobs[-n:], strict=True)
    ]
    return Scores(
        tuple(float(entry.logprob) for entry in entries),
        tuple(entry.rank == 1 for entry in entries),
    )
