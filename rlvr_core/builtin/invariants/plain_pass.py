"""Log-probs and entropies of a row by a plain forward pass, without packing or chunks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.fingerprints import is_sharded

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import MicroBatch
    from rlvr_core.builtin.invariants.check import Trainer


def drops(model: Any) -> bool:
    """Whether two passes of a model are two functions."""
    return any(
        isinstance(one, torch.nn.Dropout) and one.training and one.p > 0 for one in model.modules()
    )


def comparable(trainer: Trainer) -> bool:
    """Whether a plain pass of the policy computes what its training pass does, in one process."""
    sharded = any(map(is_sharded, trainer.model.parameters()))
    return not (trainer.train.compile or sharded or drops(trainer.model))


def plain_logprobs(
    trainer: Trainer,
    model: Any,
    micro: MicroBatch,
    row: int,
    mask_BT: Tensor,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return the log-probs of a row's loss tokens, in float64; see ``plain_scores``."""
    return plain_scores(trainer, model, micro, row, mask_BT, temperature=temperature)[0]


def plain_scores(
    trainer: Trainer,
    model: Any,
    micro: MicroBatch,
    row: int,
    mask_BT: Tensor,
    *,
    temperature: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the log-probs of a row's loss tokens and the entropies there, in float64.

    Args:
        trainer: Has the precision and the temperature.
        model: The policy or the reference.
        micro: The rows.
        row: Which one.
        mask_BT: Loss tokens of the rows.
        temperature: That of the log-probs; None for the trainer's.
    """
    logp_MV = plain_distributions(trainer, model, micro, row, temperature=temperature)
    m = len(logp_MV)
    ids_M = micro.completion_ids_BT[row, :m]
    logp_M: Tensor = logp_MV.gather(-1, ids_M[:, None])[:, 0]
    entropy_M: Tensor = -(logp_MV.exp() * logp_MV.clamp(min=-1e4)).sum(-1)
    inside_M = mask_BT[row, :m]
    return logp_M[inside_M], entropy_M[inside_M]


def plain_distributions(
    trainer: Trainer,
    model: Any,
    micro: MicroBatch,
    row: int,
    *,
    temperature: float | None = None,
) -> Tensor:
    """Return the log-probs (M, V) at the M tokens of a row's completion, in float64.

    Args:
        trainer: Has the precision and the temperature.
        model: The policy, the reference or a teacher.
        micro: The rows.
        row: Which one.
        temperature: That of the log-probs; None for the trainer's.
    """
    prompt = int(micro.prompt_of_row_B[row])
    n, m = int(micro.prompt_len_S[prompt]), int(micro.completion_len_B[row])
    ids_L = torch.cat([micro.prompt_ids_SP[prompt, :n], micro.completion_ids_BT[row, :m]])
    autocast: Any = contextlib.nullcontext()
    if trainer.precision.autocast not in (None, torch.float32):
        # casts of an enclosing region may be of older weights
        autocast = torch.autocast(
            ids_L.device.type, dtype=trainer.precision.autocast, cache_enabled=False
        )
    with autocast:
        logits_MV = model(input_ids=ids_L[None], use_cache=False).logits[0, n - 1 : n + m - 1]
    found: Tensor = (logits_MV.double() / (temperature or trainer.temperature)).log_softmax(-1)
    return found
