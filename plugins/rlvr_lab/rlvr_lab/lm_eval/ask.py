"""Runs the harness's requests on our engines, with the harness's tokenisation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Completion,
    ConfigError,
    DataError,
    Generation,
    GenerationRequest,
    ModelAccess,
    RunError,
    SamplingParams,
    Scorer,
    ScoreRequest,
)
from rlvr_core.engines.sampling import completion_seed
from rlvr_lab.lm_eval.load import CHAT, Document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WINDOW = 256
"""Documents per batch: the most that a kill can lose."""

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True)
class Codec:
    """Contexts and continuations as token ids.

    Attributes:
        tokenizer: The model's tokenizer.
        limit: Context length of the model in tokens.
    """

    tokenizer: Any
    limit: int

    def text(self, context: str) -> str:
        """Return a context as the model sees it: chats are rendered, other text is unchanged."""
        if not context.startswith(CHAT):
            return context
        turns, open_turn = json.loads(context[len(CHAT) :])
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(
                "chat: true, but the model's tokenizer has no chat template",
                where="lm_eval",
                remedy="leave chat out",
            )
        return str(
            self.tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=open_turn,
                continue_final_message=not open_turn,
            )
        )

    def encode(self, text: str) -> list[int]:
        """Encode with the tokenizer's default special tokens, unless the text begins with them."""
        bos = self.tokenizer.bos_token
        special = not (bos and text.startswith(bos))
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=special)
        return ids

    @property
    def prefix_id(self) -> int:
        """The token before a text without context."""
        for id_ in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if id_ is not None:
                return int(id_)
        raise ConfigError(
            "the task scores texts without a context, and the tokenizer has neither a beginning- "
            "nor an end-of-sequence token to put before them",
            where="lm_eval",
        )

    def pair(self, context: str, continuation: str) -> Pair:
        """Encode a context and its continuation, split where the context alone would end.

        Spaces at the end of the context move to the continuation, as they do in its tokens.
        """
        text = self.text(context)
        if not text:
            ids = self.tokenizer.encode(continuation, add_special_tokens=False)
            return ([self.prefix_id], ids) if ids[:1] != [self.prefix_id] else (ids[:1], ids[1:])
        spaces = len(text) - len(text.rstrip())
        bare = text[: len(text) - spaces]
        whole = self.encode(text + continuation)
        before = self.encode(bare) if bare else []
        return (before, whole[len(before) :]) if before else ([self.prefix_id], whole)

    def windows(self, text: str) -> list[Pair]:
        """Split a text into windows that fit the model; each token is scored once."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        windows = get_rolling_token_windows(
            token_list=self.encode(text),
            prefix_token=self.prefix_id,
            max_seq_len=self.limit - 2,
            context_len=1,
        )
        return [(list(before), list(after)) for before, after in map(make_disjoint_window, windows)]

    def pairs(self, instance: Any) -> list[Pair]:
        """Return the pairs to score for one request."""
        if instance.request_type == "loglikelihood":
            return [self.pair(*instance.args)]
        return self.windows(instance.args[0])

    def longest(self, document: Document) -> int:
        """Return the context length that the document needs.

        Raises:
            DataError: If the model's is shorter.
        """
        if document.sampling is None:
            pairs = [pair for instance in document.instances for pair in self.pairs(instance)]
            if not all(after for _, after in pairs):
                raise DataError(f"{document.id}: a text to score has no tokens")
            most = max((len(before) + len(after) for before, after in pairs), default=1) + 1
        else:
            prompt = len(self.encode(self.text(document.context)))
            if not prompt:
                raise DataError(f"{document.id}: the prompt has no tokens")
            # an answer that does not fit is truncated there, and counted as truncated
            most = max(prompt + 1, min(prompt + document.sampling.max_tokens, self.limit))
        if most > self.limit:
            raise DataError(
                f"{document.id}: it takes {most} tokens, and the model attends to {self.limit}",
                remedy="lower num_fewshot",
            )
        return most


@dataclass(frozen=True, slots=True)
class DocumentAnswers:
    """Answers to one document: a completion for each repeat."""

    document: Document
    prompt: str
    completions: tuple[Completion, ...]


def ask(
    documents: Sequence[Document], repeats: int, model: ModelAccess
) -> Iterator[DocumentAnswers]:
    """Run documents on the engine.

    Raises:
        ConfigError: If texts are to be scored and the engine cannot.
        RunError: If the engine fails.
    """
    assert model.engine is not None
    codec = Codec(model.tokenizer, model.max_length)
    if any(document.sampling is None for document in documents):
        _scorer(model.engine)
    for start in range(0, len(documents), WINDOW):
        part = documents[start : start + WINDOW]
        model.say(f"lm_eval: documents {start + 1} to {start + len(part)} of {len(documents)}")
        yield from _score(
            [document for document in part if document.sampling is None], codec, repeats, model
        )
        yield from _generate(
            [document for document in part if document.sampling], codec, repeats, model
        )


def _scorer(engine: object) -> Scorer:
    if isinstance(engine, Scorer):
        return engine
    raise ConfigError(
        f"the task scores given texts, and engine {type(engine).__name__} only generates",
        where="--engine",
        remedy="take transformers or vllm; or a task that generates",
    )


def _score(
    documents: Sequence[Document], codec: Codec, repeats: int, model: ModelAccess
) -> Iterator[DocumentAnswers]:
    """Yield one answer each: a list of [log-likelihood, greedy], or of log-likelihoods only."""
    if not documents:
        return
    pairs_by_document = [
        [codec.pairs(instance) for instance in document.instances] for document in documents
    ]
    requests = [
        ScoreRequest(tuple(before), tuple(after))
        for pairs_of in pairs_by_document
        for pairs in pairs_of
        for before, after in pairs
    ]
    scores = iter(_scorer(model.engine).score(requests, model.deadline))
    for document, pairs_of in zip(documents, pairs_by_document, strict=True):
        answers: list[Any] = []
        for instance, pairs in zip(document.instances, pairs_of, strict=True):
            scored = [next(scores) for _ in pairs]
            total = float(sum(sum(pair_score.logprobs) for pair_score in scored))
            greedy = all(all(pair_score.greedy) for pair_score in scored)
            alone = instance.request_type == "loglikelihood_rolling"
            answers.append(total if alone else [total, greedy])
        completion = Completion.from_text(json.dumps(answers))
        yield DocumentAnswers(document, codec.text(document.context), (completion,) * repeats)


def _generate(
    documents: Sequence[Document], codec: Codec, repeats: int, model: ModelAccess
) -> Iterator[DocumentAnswers]:
    assert model.engine is not None
    waiting = []
    for document in documents:
        assert document.sampling is not None
        text = codec.text(document.context)
        request = GenerationRequest(
            id=document.id,
            prompt_ids=tuple(codec.encode(text)),
            params=_room(document.sampling, len(codec.encode(text)), codec.limit),
            seeds=tuple(
                completion_seed(model.seed, document.id, 0, 0, sample) for sample in range(repeats)
            ),
        )
        waiting.append((document, text, request, model.engine.submit(request)))
    model.engine.drain(model.deadline)
    for document, text, request, future in waiting:
        answers = future.result(model.deadline)
        yield DocumentAnswers(
            document, text, tuple(_completion(request, answer) for answer in answers)
        )


def _room(params: SamplingParams, prompt: int, limit: int) -> SamplingParams:
    cap = min(params.max_tokens, limit - prompt)
    return SamplingParams(params.temperature, params.top_p, params.top_k, cap, params.stop)


def _completion(request: GenerationRequest, generation: Generation) -> Completion:
    if generation.finish_reason not in ("stop", "length"):
        raise RunError(f"{request.id}: the engine ended an answer by '{generation.finish_reason}'")
    return Completion(
        prompt_ids=request.prompt_ids,
        token_ids=generation.token_ids,
        logprobs=generation.logprobs,
        loss_mask=(True,) * len(generation.token_ids),
        text=generation.text,
        finish_reason=generation.finish_reason,
        version=generation.version,
    )


def longest(documents: Sequence[Document], tokenizer: PreTrainedTokenizerBase, limit: int) -> int:
    """Return the context length that the engine needs.

    Raises:
        DataError: If a document does not fit the model.
    """
    codec = Codec(tokenizer, limit)
    return max((codec.longest(document) for document in documents), default=1)
