"""A prompt and all its completions as one sequence: the prompt is computed once in any model.

Completions stand behind one another and cannot see each other: the attention mask is a tree, with
the prompt for its trunk, and each completion's positions go on from the prompt's end.

Dimensions: S prompts, B rows, T completion positions, L positions of a tree, N loss tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlvr_core.train.batch import MicroBatch, Row, micro_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

_LOCAL = ("sliding_window", "attention_chunk_size", "window_size", "attention_window")
"""Settings of attention that does not reach every position, whose masks only the model makes."""

_MARGIN = 0.9
"""Trees are used where they should take less than this part of the time of whole rows."""

_PROVEN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Trees:
    """Where every token of a micro-batch stands, one tree a prompt.

    A completion's last token predicts nothing and is left out.

    Attributes:
        ids_SL: Token ids, 0 on padding.
        position_SL: Positions in the text that each row is.
        segment_SL: 0 for the prompt, the row's number plus 1 for a completion, -1 for padding.
        place_B: Where in its tree each row begins.
    """

    ids_SL: Tensor
    position_SL: Tensor
    segment_SL: Tensor
    place_B: Tensor

    @classmethod
    def of(cls, batch: MicroBatch) -> Trees:
        """Lay out a micro-batch."""
        place_B, length_S = _places(batch)
        S, device = len(length_S), batch.prompt_ids_SP.device
        position_P = torch.arange(batch.prompt_ids_SP.shape[1], device=device)
        s_N, p_N = (position_P < batch.prompt_len_S[:, None]).nonzero(as_tuple=True)
        t_T = torch.arange(batch.completion_ids_BT.shape[1], device=device)
        b_M, t_M = (t_T < (batch.completion_len_B - 1)[:, None]).nonzero(as_tuple=True)
        root_M = batch.prompt_of_row_B[b_M]
        into = torch.cat([s_N, root_M]), torch.cat([p_N, place_B[b_M] + t_M])
        shape = (S, int(length_S.max()))

        def laid(prompts_N: Tensor, rows_M: Tensor, fill: int) -> Tensor:
            empty = torch.full(shape, fill, dtype=torch.long, device=device)
            return empty.index_put(into, torch.cat([prompts_N, rows_M]))

        return cls(
            ids_SL=laid(batch.prompt_ids_SP[s_N, p_N], batch.completion_ids_BT[b_M, t_M], 0),
            position_SL=laid(p_N, batch.prompt_len_S[root_M] + t_M, 0),
            segment_SL=laid(torch.zeros_like(s_N), b_M + 1, -1),
            place_B=place_B,
        )

    def visible(self) -> Tensor:
        """Whether a token (second axis) sees another (third): the mask."""
        L = self.segment_SL.shape[1]
        query_SL1, key_S1L = self.segment_SL[:, :, None], self.segment_SL[:, None, :]
        before_LL = torch.ones(L, L, dtype=torch.bool, device=query_SL1.device).tril()
        # every token sees itself: a row of a softmax without any entry would be NaN
        itself_LL = torch.eye(L, dtype=torch.bool, device=query_SL1.device)
        return (((key_S1L == 0) | (key_S1L == query_SL1)) & before_LL) | itself_LL


def tree_rows(module: Any, batch: MicroBatch, dtype: torch.dtype) -> Tensor:
    """Run each prompt with its completions as one sequence.

    Args:
        module: A Hugging Face model or its body, one that ``takes_trees``.
        batch: The rows.
        dtype: Of the module's parameters.

    Returns:
        The module's output (hidden states or logits) that predicts each loss token, (N, ...).
    """
    trees = Trees.of(batch)
    mask_S1LL = trees.visible()[:, None]
    if module.config._attn_implementation == "eager":  # it adds its mask to the scores
        lowest = torch.finfo(dtype).min
        mask_S1LL = torch.zeros(mask_S1LL.shape, dtype=dtype, device=mask_S1LL.device).masked_fill(
            ~mask_S1LL, lowest
        )
    output = module(
        input_ids=trees.ids_SL,
        attention_mask=mask_S1LL,
        position_ids=trees.position_SL,
        use_cache=False,
    )
    predicted_SL: Tensor = output[0]
    row_N, t_N = batch.mask_BT.nonzero(as_tuple=True)
    root_N = batch.prompt_of_row_B[row_N]
    trunk_end_N = batch.prompt_len_S[root_N] - 1
    return predicted_SL[root_N, torch.where(t_N == 0, trunk_end_N, trees.place_B[row_N] + t_N - 1)]


def saves_time(model: PreTrainedModel, batch: MicroBatch) -> bool:
    """Whether trees take less time than whole rows, by an estimate.

    A layer's linear maps cost about 24 H^2 operations a position, attention 4 H for each position
    that is looked at; padding and masked positions cost what others do.
    """
    hidden = int(model.config.get_text_config().hidden_size)

    def cost(rows: int, length: int) -> int:
        return rows * length * (6 * hidden + length)

    _, length_S = _places(batch)
    longest = int((batch.prompt_len_S[batch.prompt_of_row_B] + batch.completion_len_B).max())
    whole = cost(len(batch.completion_len_B), longest)
    return cost(len(length_S), int(length_S.max())) < _MARGIN * whole


def takes_trees(model: PreTrainedModel, whole_rows: Callable[[Any, MicroBatch], Tensor]) -> bool:
    """Whether the model honours a mask and positions of our own: found out by trying, once.

    Args:
        model: The model.
        whole_rows: How rows are run one by one.
    """
    if model not in _PROVEN:
        _PROVEN[model] = _sees_everything(model) and _agrees(model, whole_rows)
    return _PROVEN[model]


def _sees_everything(model: PreTrainedModel) -> bool:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    local = any(getattr(config, name, None) is not None for name in _LOCAL)
    known = model.config._attn_implementation in ("sdpa", "eager")
    return known and kinds == {"full_attention"} and not local


@torch.no_grad()
def _agrees(model: PreTrainedModel, whole_rows: Callable[[Any, MicroBatch], Tensor]) -> bool:
    vocabulary = int(model.config.get_text_config().vocab_size)
    texts = [(range(3, 8), 4), (range(3, 8), 6), (range(11, 14), 5)]
    rows = []
    for i, (prompt, n) in enumerate(texts):
        answer = tuple((17 * (i + 1) + 5 * t) % vocabulary for t in range(n))
        prompt_ids = tuple(token % vocabulary for token in prompt)
        rows.append(Row(prompt_ids, answer, (True,) * n, (0.0,) * n, 0.0))
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000, device=model.device)
    training = [module for module in model.modules() if module.training]
    model.train(False)
    try:
        whole = whole_rows(model, batch)
        trees = tree_rows(model, batch, model.dtype)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False  # it has no use for such a mask
    finally:
        for module in training:
            module.training = True
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 5e-2
    scale = whole.abs().max().clamp(min=1.0)
    return bool((whole - trees).abs().max() <= tolerance * scale)


def _places(batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Where in its tree each row begins, (B,), and the length of each tree, (S,)."""
    fed_B = (batch.completion_len_B - 1).clamp(min=0)
    same_BB = batch.prompt_of_row_B[:, None] == batch.prompt_of_row_B
    before_B = (same_BB.tril(-1) * fed_B).sum(1)
    place_B = batch.prompt_len_S[batch.prompt_of_row_B] + before_B
    length_S = batch.prompt_len_S.index_add(0, batch.prompt_of_row_B, fed_B)
    return place_B, length_S
