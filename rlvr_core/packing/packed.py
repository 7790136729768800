"""The forward path ``core/packed``: a micro-batch as one sequence without padding.

Each prompt is there once, then all the completions.

Any model whose attention goes through transformers' ``sdpa`` can be run so; who sees whom is
``attention_mask``'s. Whether a model can is found out by trying, once.

Dimensions: N packed tokens, S prompts, B rows, T completion positions; M loss tokens.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlvr_core.api import MicroBatch
from rlvr_core.api.forward import ModelAdapter
from rlvr_core.packing.attention_mask import (
    AttentionMask,
    GridMask,
    HeadSizes,
    attention,
    attention_mask_of,
)
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import whole_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

_LOCAL = ("sliding_window", "attention_chunk_size", "window_size", "attention_window")
"""Settings of attention that does not reach every position."""

_SIZES: WeakKeyDictionary[Any, frozenset[HeadSizes]] = WeakKeyDictionary()


def find_packed(model: PreTrainedModel, adapter: ModelAdapter) -> PackedPath | None:
    """See ``ForwardPathFactory``."""
    heads = heads_of(model)
    return PackedPath(heads) if heads else None


@dataclass(frozen=True, slots=True)
class PackedPath:
    """See ``ForwardPath``.

    Attributes:
        heads: Sizes of the attention of the model's layers.
    """

    heads: frozenset[HeadSizes]

    def predict(
        self, batch: MicroBatch, module: Any, *, dtype: torch.dtype, compiled: bool
    ) -> Tensor:
        """See ``ForwardPath``."""
        return packed_rows(
            module, batch, attention_mask_of(batch, dtype, self.heads, compiled=compiled)
        )


def packed_tokens(batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """(N,) ids of the packed tokens, and their positions in the text that each row is."""
    host = batch.host  # how many there are is known there, and no device is waited for
    s_N, p_N = host.prompt_places().nonzero(as_tuple=True)
    b_N, t_N = host.fed_places().nonzero(as_tuple=True)
    begins_N = host.prompt_len_S[host.prompt_of_row_B[b_N]]
    ids = host.prompt_ids_SP[s_N, p_N], host.completion_ids_BT[b_N, t_N]
    return batch.send(torch.cat(ids)), batch.send(torch.cat([p_N, begins_N + t_N]))


def predictors(batch: MicroBatch) -> Tensor:
    """(M,) packed place of the token before each loss token."""
    host = batch.host
    row_M, t_M = host.mask_BT.nonzero(as_tuple=True)
    last_S = host.prompt_len_S.cumsum(0) - 1
    fed_len_B = host.fed_lengths()
    first_B = last_S[-1] + 1 + fed_len_B.cumsum(0) - fed_len_B
    of_prompt_M = last_S[host.prompt_of_row_B[row_M]]
    return batch.send(torch.where(t_M == 0, of_prompt_M, first_B[row_M] + t_M - 1))


def packed_rows(module: Any, batch: MicroBatch, packed_mask: AttentionMask) -> Tensor:
    """Run all rows of a micro-batch as one sequence.

    Args:
        module: A Hugging Face model that packs (``heads_of``), or its body.
        batch: The rows.
        packed_mask: Who sees whom in them.

    Returns:
        The module's output (hidden states or logits) that predicts each loss token, (M, ...).
    """
    ids_N, position_N = packed_tokens(batch)
    output = module(
        input_ids=ids_N[None],
        # transformers makes no mask of its own where it is given one of four dimensions
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids_N.device),
        position_ids=position_N[None],
        use_cache=False,
        packed_mask=packed_mask,
    )
    predicted_1N: Tensor = output[0]
    return predicted_1N[0, predictors(batch)]


def heads_of(model: PreTrainedModel) -> frozenset[HeadSizes]:
    """Sizes of the attention of a model whose packed rows give what whole rows give.

    Returns:
        Nothing if rows of the model cannot be packed.
    """
    if model not in _SIZES:
        _SIZES[model] = frozenset() if padded_because(model) else _tried(model)
        if not _SIZES[model]:
            logger.info("%s is trained on padded rows: rlvr docs speed", type(model).__name__)
    return _SIZES[model]


def padded_because(model: PreTrainedModel) -> str:
    """Why a model's configuration rules out packed rows.

    Empty where it does not.
    """
    config = model.config.get_text_config()
    used = model.config._attn_implementation
    if used != "sdpa":
        return f"model.attention is {used}, and only sdpa knows packed rows"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    local = any(getattr(config, name, None) for name in _LOCAL)
    return "" if kinds == {"full_attention"} and not local else "its attention has windows"


@dataclass(slots=True)
class _Noted:
    """A packed_mask that notes who asks."""

    packed_mask: AttentionMask
    heads: set[HeadSizes] = field(default_factory=set)

    def attend(self, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float) -> Tensor:
        self.heads.add(HeadSizes(q_NhD.shape[1], k_NhD.shape[1], q_NhD.shape[2], v_NhD.shape[2]))
        return self.packed_mask.attend(q_NhD, k_NhD, v_NhD, scale)


@torch.no_grad()
def _tried(model: PreTrainedModel) -> frozenset[HeadSizes]:
    _teach_transformers()
    vocabulary = int(model.config.get_text_config().vocab_size)
    texts = [(range(3, 8), 4), (range(3, 8), 6), (range(11, 14), 5)]
    rows = []
    for i, (prompt, n) in enumerate(texts):
        answer = tuple((17 * (i + 1) + 5 * t) % vocabulary for t in range(n))
        prompt_ids = tuple(token % vocabulary for token in prompt)
        rows.append(Row(prompt_ids, answer, (True,) * n, (0.0,) * n, 0.0))
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000, device=model.device)
    noted = _Noted(GridMask.of(batch))
    training = [module for module in model.modules() if module.training]
    model.train(False)
    try:
        # two kernels of half precision differ by more than a mask that is wrong somewhere
        with torch.autocast(model.device.type, enabled=False):
            whole, packed = whole_rows(model, batch), packed_rows(model, batch, noted)
    except Exception:  # a model's own code may fail in any way on what it has no use for
        return frozenset()
    finally:
        for module in training:
            module.training = True
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 5e-2
    agrees = bool((whole - packed).norm() <= tolerance * whole.norm())
    return frozenset(noted.heads) if agrees else frozenset()


def _teach_transformers() -> None:
    """Let ``sdpa`` know packed tokens; without a ``packed_mask`` it is what it was."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if not hasattr(plain, "packed"):
        taught: Any = attention(plain)
        taught.packed = True
        ALL_ATTENTION_FUNCTIONS.register("sdpa", taught)
