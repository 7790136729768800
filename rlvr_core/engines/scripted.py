"""An engine that returns prepared texts, for tests of everything around an engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import (
    ComponentConfig,
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    MachineError,
    RunError,
    WeightSource,
)
from rlvr_core.engines.transformers import eos_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel

QueuedRequest = tuple[GenerationRequest, "Future[tuple[Generation, ...]]"]


class ScriptedEngine:
    """Answers from a list, in turn; the same requests in the same order get the same answers."""

    traits = EngineTraits(seeded=False)

    class Config(ComponentConfig):
        """The script, and what goes wrong."""

        answers: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(min_length=1)
        """Texts by key; a key answers the first request whose id or prompt text contains it.
        An empty key answers everything. The samples of a request take the texts in turn, and the
        next request with that key goes on where the last one stopped. An answer that no stop
        string ends gets the end-of-sequence token."""
        logprob: float | None = -1.0
        """Log-prob of every token; null computes them with the run's model."""
        delay: float = Field(default=0.0, ge=0.0)
        """Seconds each request takes."""
        abort: list[int] = []
        """Requests, counted from 0 over the run, whose generations are aborted half-way."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._turn: dict[str, int] = {}
        self._queue: list[QueuedRequest] = []
        self._count = 0
        self._version = 0
        self._context: EngineContext | None = None
        self._model: PreTrainedModel | None = None
        self._end: tuple[int, ...] = ()

    def start(self, context: EngineContext) -> None:
        """Take tokenizer and model.

        Raises:
            MachineError: If log-probs are to be computed and there is no model.
        """
        self._context, self._model = context, context.model
        if self._config.logprob is None and context.model is None:
            raise MachineError(
                "the scripted engine cannot compute log-probs without a model",
                where="engine",
                remedy="set its logprob to a number",
            )
        tokenizer_end = context.tokenizer.eos_token_id
        ends = eos_ids(context.model, context.tokenizer) if context.model else (tokenizer_end,)
        self._end = tuple(end for end in ends[:1] if isinstance(end, int))

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request."""
        future: Future[tuple[Generation, ...]] = Future()
        self._queue.append((request, future))
        return future

    def drain(self, timeout: float | None = None) -> None:
        """Answer everything that is queued.

        Raises:
            RunError: If the delays add up to more than ``timeout``.
        """
        begun = time.monotonic()
        queued, self._queue = self._queue, []
        for position, (request, future) in enumerate(queued):
            spent = time.monotonic() - begun
            if timeout is not None and spent + self._config.delay > timeout:
                error = RunError(f"generation passed its deadline of {timeout:g} s")
                for _, open_future in queued[position:]:
                    open_future.set_exception(error)
                raise error
            time.sleep(self._config.delay)
            number, self._count = self._count, self._count + 1
            try:
                future.set_result(self._answer(request, aborted=number in self._config.abort))
            except RunError as error:
                future.set_exception(error)

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Label what comes next."""
        self._model = source.module
        self._version = version

    def sleep(self) -> None:
        """Do nothing: there is nothing to release."""

    def wake(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Let go of the model."""
        self._model = self._context = None

    def _answer(self, request: GenerationRequest, *, aborted: bool) -> tuple[Generation, ...]:
        assert self._context is not None
        tokenizer = self._context.tokenizer
        prompt = tokenizer.decode(list(request.prompt_ids))
        key = next((k for k in self._config.answers if k in request.id or k in prompt), None)
        if key is None:
            raise RunError(
                f"the script has no answer for request {request.id}",
                remedy='add its problem id to answers, or the key "" for all others',
            )
        texts = self._config.answers[key]
        room = self._context.max_model_len - len(request.prompt_ids)
        cap = max(0, min(request.params.max_tokens, room))
        generations = []
        for _ in request.seeds:
            turn = self._turn.get(key, 0)
            self._turn[key] = turn + 1
            text, stopped = _up_to_stop(texts[turn % len(texts)], request.params.stop)
            whole = tuple(tokenizer.encode(text, add_special_tokens=False))
            if not stopped:
                whole += self._end
            ids = whole[: len(whole) // 2] if aborted else whole[:cap]
            reason: Literal["stop", "length", "abort"] = "stop"
            if aborted:
                reason = "abort"
            elif len(ids) < len(whole):
                reason = "length"
            generations.append(
                Generation(
                    token_ids=ids,
                    logprobs=self._logprobs(request, ids),
                    text=str(tokenizer.decode(list(ids), skip_special_tokens=True)),
                    finish_reason=reason,
                    version=self._version,
                )
            )
        return tuple(generations)

    def _logprobs(self, request: GenerationRequest, ids: tuple[int, ...]) -> tuple[float, ...]:
        if self._config.logprob is not None:
            return (self._config.logprob,) * len(ids)
        import torch

        model: Any = self._model
        sequence = torch.tensor([[*request.prompt_ids, *ids]], device=model.device)
        with torch.no_grad():
            logits_TV = model(input_ids=sequence).logits[0, len(request.prompt_ids) - 1 : -1]
        logp_TV = (logits_TV.float() / (request.params.temperature or 1.0)).log_softmax(-1)
        chosen = torch.tensor(ids, dtype=torch.long, device=model.device)[:, None]
        values: list[float] = logp_TV.gather(1, chosen)[:, 0].tolist()
        return tuple(values)


def _up_to_stop(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Return a text up to its first stop string, which is kept, and whether it has one."""
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends, default=len(text))], bool(ends)
