"""Log-prob, entropy and variance of the surprise at each sampled token, in one forward pass."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import predict

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, GroupsScored, MicroBatch
    from rlvr_core.builtin.invariants.check import Trainer

_BYTES = 64 << 20
"""Memory of the float32 log-probs of one chunk of tokens."""


def token_moments(
    model: Any,
    batch: MicroBatch,
    *,
    temperature: float,
    autocast_dtype: torch.dtype | None = None,
    compiled: Any = None,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-prob, entropy and variance of -log p of the policy at each loss token.

    They are of the distribution that an engine samples from: temperature, then top-k, then top-p.

    Args:
        model: The unwrapped model.
        batch: Rows on its device.
        temperature: Of sampling.
        autocast_dtype: Compute precision; None for that of the parameters.
        compiled: The compiled body, if it is to be used.
        top_k: Likeliest tokens that are kept; 0 keeps all.
        top_p: Least probability of the likeliest tokens that are kept.

    Returns:
        Three (B, T) tensors, 0 outside ``batch.mask_BT``; no graph is needed.
    """
    predicted = predict(model, batch, temperature, autocast_dtype, compiled)
    states, head = predicted.states, predicted.head
    vocabulary = states.shape[-1] if head is None else head.weight.shape[0]
    size = max(1, _BYTES // (4 * vocabulary))
    parts: list[Tensor] = []
    chunks = zip(torch.split(states, size), torch.split(predicted.targets, size), strict=True)
    for states_n, target_n in chunks:
        with predicted.autocast:
            logits_nV = states_n if head is None else head(states_n)
        whole_nV = (logits_nV.float() / temperature).log_softmax(-1)
        logp_nV = _truncated(whole_nV, top_k, top_p)
        p_nV = logp_nV.exp()
        # p log p is 0 where p is, whatever the log
        weighted_nV = p_nV * logp_nV.clamp(min=-1e4)
        entropy_n = -weighted_nV.sum(-1)
        square_n = (weighted_nV * logp_nV.clamp(min=-1e4)).sum(-1)
        variance_n = (square_n - entropy_n.square()).clamp(min=0.0)
        # a token at the edge may be kept by the engine and not here: it has a log-prob all the same
        shift_n = (logp_nV - whole_nV).amax(-1)
        sampled_n = whole_nV.gather(-1, target_n[:, None])[:, 0] + shift_n
        parts.append(torch.stack([sampled_n, entropy_n, variance_n]))
    found_KN = torch.cat(parts, dim=1) if parts else states.new_zeros(3, 0)
    logp_BT, entropy_BT, variance_BT = (predicted.unpack(one_N) for one_N in found_KN)
    return logp_BT, entropy_BT, variance_BT


def _truncated(logp_nV: Tensor, top_k: int, top_p: float) -> Tensor:
    """Return log-probs of the distribution that top-k and then top-p leave, -inf elsewhere."""
    if top_k <= 0 and top_p >= 1:
        return logp_nV
    sorted_nV, order_nV = logp_nV.sort(dim=-1, descending=True, stable=True)
    if 0 < top_k < logp_nV.shape[-1]:
        sorted_nV[:, top_k:] = -torch.inf
    p_nV = sorted_nV.softmax(-1)
    # a token is kept while those before it have less than top_p
    out_nV = p_nV.cumsum(-1) - p_nV >= top_p
    out_nV[:, 0] = False
    kept_nV = sorted_nV.masked_fill(out_nV, -torch.inf).log_softmax(-1)
    return torch.full_like(logp_nV, -torch.inf).scatter(-1, order_nV, kept_nV)


def fresh_groups(event: GroupsScored) -> tuple[Group, ...]:
    """Return the groups of a step whose every token was sampled under the step's version."""
    return tuple(
        group
        for group in event.groups
        if group.version == event.version
        and not any(
            set(member.completion.token_versions) - {event.version} for member in group.members
        )
    )


class TokenScores:
    """Scores of groups under the trainer, computed once for all invariants that want them.

    Args:
        trainer: The policy's trainer.
        top_k: Of sampling.
        top_p: Of sampling.
    """

    def __init__(self, trainer: Trainer, *, top_k: int = 0, top_p: float = 1.0) -> None:
        self._trainer = trainer
        self._compute = partial(token_moments, top_k=top_k, top_p=top_p)
        self._of: tuple[Group, ...] = ()
        self._scores_NK: Tensor | None = None

    def __call__(self, groups: tuple[Group, ...]) -> Tensor:
        """Return log-prob, entropy, variance and the engine's log-prob of each token, (N, 4)."""
        same = len(groups) == len(self._of) and all(
            one is other for one, other in zip(groups, self._of, strict=True)
        )
        if self._scores_NK is None or not same:
            self._scores_NK = self._trainer.token_scores(groups, self._compute)
            self._of = groups
        return self._scores_NK

    def forget(self) -> None:
        """Release what was computed for the last step."""
        self._of, self._scores_NK = (), None
