"""Log-probs of given text under a Hugging Face causal LM, in batches.

Dimensions: R rows (distinct inputs), L positions, K scored positions at the end of a row, V
vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.api import RunError, ScoreRequest, Scores
from rlvr_core.engines.decode import left_padded

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LOGIT_BYTES = 512 << 20
"""Float32 logits held at once, unless a single row has more."""

Input = tuple[int, ...]


def score(
    model: PreTrainedModel,
    requests: Sequence[ScoreRequest],
    *,
    max_rows: int,
    max_batch_tokens: int,
    deadline: float | None = None,
) -> list[Scores]:
    """Score each request's tokens behind its prompt.

    Texts that differ in their last token only, as the letters of a multiple choice do, are one row.

    Args:
        model: In evaluation mode, without a graph.
        requests: What to score; neither prompts nor texts are empty.
        max_rows: Rows of one batch.
        max_batch_tokens: Positions of one batch, padding included.
        deadline: ``time.monotonic()`` after which to give up.

    Returns:
        One result a request, in order.

    Raises:
        RunError: If the deadline passed.
    """
    sharing: dict[Input, list[int]] = {}
    for index, request in enumerate(requests):
        if not request.prompt_ids or not request.token_ids:
            raise ValueError("a prompt and a text to score must have tokens")
        ids = (*request.prompt_ids, *request.token_ids[:-1])
        sharing.setdefault(ids, []).append(index)
    most = {ids: max(len(requests[i].token_ids) for i in users) for ids, users in sharing.items()}
    done: dict[int, Scores] = {}
    vocabulary = int(model.get_output_embeddings().weight.shape[0])  # type: ignore[no-untyped-call]
    max_scored = max(1, _LOGIT_BYTES // (4 * vocabulary))
    for rows in _batches(most, max_rows, max_batch_tokens, max_scored):
        if deadline is not None and time.monotonic() > deadline:
            raise RunError(
                f"scoring passed its deadline with {len(requests) - len(done)} of {len(requests)} "
                f"texts left",
                remedy="raise the deadline",
            )
        logp_RKV = _forward(model, rows, max(most[ids] for ids in rows))
        for row, ids in enumerate(rows):
            for index in sharing[ids]:
                done[index] = _read(logp_RKV[row], requests[index].token_ids)
    return [done[index] for index in range(len(requests))]


def _batches(
    most: dict[Input, int], max_rows: int, max_tokens: int, max_scored: int
) -> Iterator[list[Input]]:
    """Batch rows of similar length, the longest first, so that a lack of memory shows at once."""
    batch: list[Input] = []
    width = scored = 0
    for ids in sorted(most, key=lambda ids: (-len(ids), ids)):
        n = len(batch) + 1
        wide, deep = max(width, len(ids)), max(scored, most[ids])
        if batch and (n > max_rows or n * wide > max_tokens or n * deep > max_scored):
            yield batch
            batch, wide, deep = [], len(ids), most[ids]
        batch.append(ids)
        width, scored = wide, deep
    if batch:
        yield batch


def _forward(model: Any, rows: Sequence[Input], keep: int) -> Tensor:
    """Return log-probs (R, K, V) float32 of the next token at the last ``keep`` positions."""
    ids_RL, mask_RL, position_RL = left_padded(rows, model.device)
    output = model(
        input_ids=ids_RL,
        attention_mask=mask_RL,
        position_ids=position_RL,
        use_cache=False,
        logits_to_keep=keep,
    )
    logits_RKV: Tensor = output.logits[:, -keep:]
    wide = torch.promote_types(logits_RKV.dtype, torch.float32)
    return torch.log_softmax(logits_RKV.to(wide), -1)


def _read(logp_KV: Tensor, token_ids: Sequence[int]) -> Scores:
    target_T = torch.tensor(token_ids, device=logp_KV.device)
    logp_TV = logp_KV[-len(token_ids) :]
    logp_T = logp_TV.gather(-1, target_T[:, None])[:, 0]
    greedy_T = logp_TV.argmax(-1) == target_T
    return Scores(tuple(logp_T.tolist()), tuple(greedy_T.tolist()))
