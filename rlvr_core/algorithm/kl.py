"""The KL divergence from the policy to the reference, estimated from sampled tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rlvr_core.algorithm.ratio import MAX_EXPONENT

KlKind = Literal["k1", "k2", "k3"]


def kl_policy_ref(logp: Tensor, ref_logp: Tensor, kind: KlKind = "k3") -> Tensor:
    """Estimate KL(policy || reference) at each token, the token having come from the policy.

    With d = ref - policy: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1 (Schulman 2020, "Approximating
    KL divergence"). k1 and k3 have the exact KL as their mean; k3 is never negative and grows
    linearly where the policy is far above the reference. Where the policy is more than 30 nats
    *below* it, k3 goes on along its tangent, so that value and gradient stay finite.

    Args:
        logp: Log-probs under the policy, any shape.
        ref_logp: Under the reference, same shape.
        kind: Which estimator.

    Raises:
        ValueError: If the kind is unknown.
    """
    d = ref_logp - logp
    if kind == "k1":
        return -d
    if kind == "k2":
        return d.square() / 2
    if kind == "k3":
        return k3(d)
    raise ValueError(f"unknown KL estimator {kind!r}: k1, k2 or k3")


def k3(d: Tensor) -> Tensor:
    """exp(d) - d - 1, accurate near 0 and finite for large ``d``."""
    bounded = d.clamp(max=MAX_EXPONENT)
    grown = torch.expm1(bounded)
    return grown - bounded + grown * (d - bounded)
