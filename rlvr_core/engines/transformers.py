"""The embedded engine: samples in process from the trainer's own weights.

There is nothing to synchronise, and on one thread nothing that depends on timing: a run with it
is reproducible bit for bit.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field

from rlvr_core.api import (
    ComponentConfig,
    EngineContext,
    Generation,
    GenerationRequest,
    MachineError,
    ScoreRequest,
    Scores,
    WeightSource,
)
from rlvr_core.engines.decode import HuggingFaceDecoder, RowPlan, Sampled, decode
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.sync import evaluating, weight_checksums
from rlvr_core.parallel.model_adapter import adapter_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

QueuedRequest = tuple[GenerationRequest, "Future[tuple[Generation, ...]]"]


class TransformersEngine:
    """Batched sampling on the model that is being trained."""

    class Config(ComponentConfig):
        """How much is sampled at once."""

        max_rows: int = Field(default=256, gt=0)
        """Completions in one batch."""
        max_batch_tokens: int = Field(default=262144, gt=0)
        """Prompt and completion positions in one batch, counted at their caps: bounds the memory
        of the key-value cache."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._context: Any = None
        self._model: Any = None
        self._stop_strings: StopStrings | None = None
        self._eos_ids: tuple[int, ...] = ()
        self._queue: list[QueuedRequest] = []
        self._running: list[QueuedRequest] = []
        self._version = 0
        self._aborted = False
        self.between: Callable[[], None] | None = None

    def start(self, context: EngineContext) -> None:
        """Take the trainer's model.

        Raises:
            MachineError: If there is none in this process.
        """
        if context.model is None:
            raise MachineError(
                "the transformers engine samples from the trainer's own model, and there is none "
                "in this process",
                where="engine",
                remedy="choose engine: vllm",
            )
        self._context = context
        self._model = context.model
        self._stop_strings = StopStrings(context.tokenizer)
        self._eos_ids = eos_ids(context.model, context.tokenizer)

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request for the next ``drain``."""
        if not request.prompt_ids:
            raise ValueError(f"request {request.id}: the prompt is empty")
        future: Future[tuple[Generation, ...]] = Future()
        self._queue.append((request, future))
        return future

    def drain(self, timeout: float | None = None) -> None:
        """Sample everything that is queued.

        Raises:
            RunError: If that took longer than ``timeout`` seconds; open futures then carry it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        queued, self._queue = self._queue, []
        self._running, self._aborted = queued, False
        try:
            for wave in self._waves(queued):
                self._sample(wave, deadline)
                self._listen()
        except _AbortedError:
            pass  # whose futures are cancelled
        except BaseException as error:
            for _, future in queued:
                if not future.done():
                    future.set_exception(error)
            raise
        finally:
            self._running = []

    def abort(self) -> None:
        """Cancel every request that is not finished; see ``Interruptible``."""
        queued, self._queue, self._running = self._running + self._queue, [], []
        for _, future in queued:
            future.cancel()
        self._aborted = True

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """See ``Scorer.score``."""
        with self._inference():
            from rlvr_core.engines.score import score

            return score(
                self._model,
                requests,
                max_rows=self._config.max_rows,
                max_batch_tokens=self._config.max_batch_tokens,
                deadline=None if timeout is None else time.monotonic() + timeout,
            )

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Label what comes next; the weights are the trainer's and no cache outlives a drain."""
        self._model = source.module
        self._version = version

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; adapters are merged with the scale that generation has."""
        with self._inference(), torch.autocast(self._model.device.type, enabled=False):
            return weight_checksums(adapter_of(self._model).merged_tensors(self._model))

    def sleep(self) -> None:
        """Do nothing: no memory is held between drains."""

    def wake(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Let go of the model."""
        self._model = self._context = None

    def _waves(self, queued: Sequence[QueuedRequest]) -> Iterator[list[QueuedRequest]]:
        """Cut the queue, in its order, into batches within the configured size.

        A request larger than a batch has one of its own.
        """
        wave: list[QueuedRequest] = []
        rows = reach = 0
        for request, future in queued:
            n, length = len(request.seeds), len(request.prompt_ids) + max(self._limit(request), 0)
            too_long = (rows + n) * max(reach, length) > self._config.max_batch_tokens
            if wave and (too_long or rows + n > self._config.max_rows):
                yield wave
                wave, rows, reach = [], 0, 0
            wave.append((request, future))
            rows, reach = rows + n, max(reach, length)
        if wave:
            yield wave

    def _limit(self, request: GenerationRequest) -> int:
        room: int = self._context.max_model_len - len(request.prompt_ids)
        return min(request.params.max_tokens, room)

    def _sample(self, wave: Sequence[QueuedRequest], deadline: float | None) -> None:
        assert self._stop_strings is not None
        live = [queued for queued in wave if self._limit(queued[0]) > 0 and queued[0].seeds]
        sampled: Iterator[Sampled] = iter(())
        begun = self._version
        changes: list[tuple[int, int]] = []
        if live:
            with self._inference():

                def between(position: int) -> None:
                    before = self._version
                    self._listen()
                    if self._version != before:
                        changes.append((position, self._version))

                sampled = iter(
                    decode(
                        HuggingFaceDecoder(self._model),
                        [request.prompt_ids for request, _ in live],
                        [self._plans(request) for request, _ in live],
                        eos_ids=self._eos_ids,
                        stop_strings=self._stop_strings,
                        deadline=deadline,
                        between=None if self.between is None else between,
                    )
                )
        nothing = repeat(Sampled((), (), "length"))
        for request, future in wave:
            source = sampled if self._limit(request) > 0 else nothing
            answers = islice(source, len(request.seeds))
            future.set_result(
                tuple(
                    Generation(
                        token_ids=answer.token_ids,
                        logprobs=answer.logprobs,
                        text=self._stop_strings.text(answer.token_ids),
                        finish_reason=answer.finish_reason,
                        version=begun,
                        token_versions=_token_versions(len(answer.token_ids), begun, changes),
                    )
                    for answer in answers
                )
            )

    def _plans(self, request: GenerationRequest) -> list[RowPlan]:
        limit = self._limit(request)
        return [RowPlan(request.params, seed, limit) for seed in request.seeds]

    def _listen(self) -> None:
        if self.between is not None:
            self.between()
        if self._aborted:
            raise _AbortedError

    @contextlib.contextmanager
    def _inference(self) -> Iterator[None]:
        """Context without graph and dropout, in the run's precision; modes are restored."""
        dtype = self._context.dtype
        half = dtype != torch.float32 and any(p.dtype != dtype for p in self._model.parameters())
        with (
            evaluating(self._model),
            torch.no_grad(),  # what a model keeps of inference mode could not be trained through
            torch.autocast(self._model.device.type, dtype=dtype, enabled=half),
        ):
            yield


class _AbortedError(Exception):
    """Raised to leave the sampling loop after ``abort``."""


def _token_versions(length: int, begun: int, changes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the policy version of each token; empty when all have the first one."""
    if not changes or changes[0][0] >= length:
        return ()
    versions = [begun] * length
    for position, version in changes:
        versions[position:] = [version] * (length - position)
    return tuple(versions)


def eos_ids(model: PreTrainedModel, tokenizer: Any) -> tuple[int, ...]:
    """Return every end-of-sequence id: of generation config, model config and tokenizer."""
    ids: list[int] = []
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        ids.extend([value] if isinstance(value, int) else value or ())
    return tuple(dict.fromkeys(int(token) for token in ids))
