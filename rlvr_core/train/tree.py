"""Several texts as one sequence: a prompt computed once for its completions, and no padding.

A *tree* is a prompt with all its completions behind one another, or with a single one of them. The
attention mask lets a completion see its prompt and itself; its positions go on from the prompt's
end. Trees that are shorter than the longest share a sequence, and see nothing of each other.

Dimensions: S prompts, U trees, B rows, T completion positions, G sequences of L positions each, N
loss tokens.
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
class Plan:
    """Which rows make a tree, and which trees share a sequence.

    Attributes:
        prompt_of_tree_U: Index of each tree's prompt.
        tree_of_row_B: Tree of each row.
        sequence_U: Sequence of each tree.
        start_U: Where in it the tree begins.
        place_B: Where in its tree each row begins.
        shape: Sequences and their length, (G, L).
    """

    prompt_of_tree_U: Tensor
    tree_of_row_B: Tensor
    sequence_U: Tensor
    start_U: Tensor
    place_B: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, batch: MicroBatch, *, apart: bool) -> Plan:
        """Plan for one tree a prompt, or with ``apart`` for one a row."""
        device = batch.prompt_len_S.device
        if apart:
            prompt_of_tree_U = batch.prompt_of_row_B
            tree_of_row_B = torch.arange(len(prompt_of_tree_U), device=device)
        else:
            prompt_of_tree_U = torch.arange(len(batch.prompt_len_S), device=device)
            tree_of_row_B = batch.prompt_of_row_B
        # a completion's last token predicts nothing and is left out
        fed_B = (batch.completion_len_B - 1).clamp(min=0)
        same_BB = tree_of_row_B[:, None] == tree_of_row_B
        before_B = (same_BB.tril(-1) * fed_B).sum(1)
        length_U = batch.prompt_len_S[prompt_of_tree_U].index_add(0, tree_of_row_B, fed_B)
        sequence_U, start_U, shape = _packed(length_U)
        return cls(
            prompt_of_tree_U=prompt_of_tree_U,
            tree_of_row_B=tree_of_row_B,
            sequence_U=sequence_U,
            start_U=start_U,
            place_B=batch.prompt_len_S[batch.prompt_of_row_B] + before_B,
            shape=shape,
        )


def _packed(length_U: Tensor) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Longest first, each into the first sequence with room; the longest tree fills one."""
    lengths = length_U.tolist()
    longest = max(lengths)
    used: list[int] = []
    sequences, starts = [0] * len(lengths), [0] * len(lengths)
    for tree in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        fits = (g for g, full in enumerate(used) if full + lengths[tree] <= longest)
        found = next(fits, len(used))
        if found == len(used):
            used.append(0)
        sequences[tree], starts[tree] = found, used[found]
        used[found] += lengths[tree]
    placed_2U = torch.tensor([sequences, starts], device=length_U.device)
    return placed_2U[0], placed_2U[1], (len(used), longest)


@dataclass(frozen=True, slots=True)
class Trees:
    """Where every token of a micro-batch stands.

    Attributes:
        ids_GL: Token ids, 0 on padding.
        position_GL: Positions in the text that each row is.
        tree_GL: Number of the tree, -1 for padding.
        segment_GL: 0 for the prompt, the row's number plus 1 for a completion, -1 for padding.
    """

    ids_GL: Tensor
    position_GL: Tensor
    tree_GL: Tensor
    segment_GL: Tensor

    @classmethod
    def of(cls, batch: MicroBatch, plan: Plan) -> Trees:
        """Lay out a micro-batch."""
        device = batch.prompt_ids_SP.device
        prompt_ids_UP = batch.prompt_ids_SP[plan.prompt_of_tree_U]
        prompt_len_U = batch.prompt_len_S[plan.prompt_of_tree_U]
        position_P = torch.arange(prompt_ids_UP.shape[1], device=device)
        u_N, p_N = (position_P < prompt_len_U[:, None]).nonzero(as_tuple=True)
        t_T = torch.arange(batch.completion_ids_BT.shape[1], device=device)
        b_M, t_M = (t_T < (batch.completion_len_B - 1)[:, None]).nonzero(as_tuple=True)
        u_M = plan.tree_of_row_B[b_M]
        tree = torch.cat([u_N, u_M])
        within = torch.cat([p_N, plan.place_B[b_M] + t_M])
        into = plan.sequence_U[tree], plan.start_U[tree] + within

        def laid(values: Tensor, fill: int) -> Tensor:
            empty = torch.full(plan.shape, fill, dtype=torch.long, device=device)
            return empty.index_put(into, values)

        return cls(
            ids_GL=laid(torch.cat([prompt_ids_UP[u_N, p_N], batch.completion_ids_BT[b_M, t_M]]), 0),
            position_GL=laid(torch.cat([p_N, prompt_len_U[u_M] + t_M]), 0),
            tree_GL=laid(tree, -1),
            segment_GL=laid(torch.cat([torch.zeros_like(u_N), b_M + 1]), -1),
        )

    def visible(self) -> Tensor:
        """Whether a token (second axis) sees another (third): the mask."""
        L = self.segment_GL.shape[1]
        same_GLL = self.tree_GL[:, :, None] == self.tree_GL[:, None, :]
        query_GL1, key_G1L = self.segment_GL[:, :, None], self.segment_GL[:, None, :]
        before_LL = torch.ones(L, L, dtype=torch.bool, device=query_GL1.device).tril()
        # every token sees itself: a row of a softmax without any entry would be NaN
        itself_LL = torch.eye(L, dtype=torch.bool, device=query_GL1.device)
        return (((key_G1L == 0) | (key_G1L == query_GL1)) & same_GLL & before_LL) | itself_LL


def tree_rows(module: Any, batch: MicroBatch, plan: Plan, dtype: torch.dtype) -> Tensor:
    """Run the sequences of a plan.

    Args:
        module: A Hugging Face model or its body, one that ``takes_trees``.
        batch: The rows.
        plan: How they are laid out.
        dtype: Of the module's parameters.

    Returns:
        The module's output (hidden states or logits) that predicts each loss token, (N, ...).
    """
    trees = Trees.of(batch, plan)
    mask_G1LL = trees.visible()[:, None]
    if module.config._attn_implementation == "eager":  # it adds its mask to the scores
        lowest = torch.finfo(dtype).min
        mask_G1LL = torch.zeros(mask_G1LL.shape, dtype=dtype, device=mask_G1LL.device).masked_fill(
            ~mask_G1LL, lowest
        )
    output = module(
        input_ids=trees.ids_GL,
        attention_mask=mask_G1LL,
        position_ids=trees.position_GL,
        use_cache=False,
    )
    predicted_GL: Tensor = output[0]
    row_N, t_N = batch.mask_BT.nonzero(as_tuple=True)
    tree_N = plan.tree_of_row_B[row_N]
    trunk_end_N = batch.prompt_len_S[batch.prompt_of_row_B[row_N]] - 1
    within_N = torch.where(t_N == 0, trunk_end_N, plan.place_B[row_N] + t_N - 1)
    return predicted_GL[plan.sequence_U[tree_N], plan.start_U[tree_N] + within_N]


def saving_plan(model: PreTrainedModel, batch: MicroBatch) -> Plan | None:
    """The plan that takes least time, None if that is whole rows; by an estimate.

    A layer's linear maps cost about 24 H^2 operations a position, attention 4 H for each position
    that is looked at; padding and masked positions cost what others do.
    """
    hidden = int(model.config.get_text_config().hidden_size)

    def cost(rows: int, length: int) -> int:
        return rows * length * (6 * hidden + length)

    longest = int((batch.prompt_len_S[batch.prompt_of_row_B] + batch.completion_len_B).max())
    whole = cost(len(batch.completion_len_B), longest)
    best = min(
        (Plan.of(batch, apart=apart) for apart in (False, True)), key=lambda p: cost(*p.shape)
    )
    return best if cost(*best.shape) < _MARGIN * whole else None


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
        trees = tree_rows(model, batch, Plan.of(batch, apart=False), model.dtype)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False  # it has no use for such a mask
    finally:
        for module in training:
            module.training = True
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 5e-2
    scale = whole.abs().max().clamp(min=1.0)
    return bool((whole - trees).abs().max() <= tolerance * scale)
