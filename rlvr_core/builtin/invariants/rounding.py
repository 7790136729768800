"""How far log-probs of trainer and engine may differ by rounding, and whether they do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import RunError

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api.services import ParitySection


@dataclass(frozen=True, slots=True)
class Band:
    """Largest differences attributed to rounding.

    Attributes:
        mean: Mean of |trainer - engine|, in nats.
        max: Largest of them.
        slope: |slope - 1|.
        k3: Mean of k3.
        bias: |mean of trainer - engine|, in nats.
    """

    mean: float
    max: float
    slope: float
    k3: float
    bias: float


# float32: two forward passes differ by about 1e-5. Half precision: bf16 logits alone move a
# log-prob by a few hundredths on average and some tenths at worst (docs/guards.md has the source).
BANDS = {
    torch.float32: Band(mean=1e-3, max=5e-2, slope=2e-3, k3=1e-7, bias=3e-5),
    torch.bfloat16: Band(mean=1e-1, max=2.0, slope=1e-2, k3=1e-4, bias=1.5e-3),
    torch.float16: Band(mean=2e-2, max=5e-1, slope=5e-3, k3=2e-5, bias=5e-4),
}
ON_GPU = {
    torch.float32: Band(mean=1e-3, max=5e-2, slope=5e-3, k3=2e-5, bias=1e-3),
    torch.bfloat16: Band(mean=1e-1, max=2.0, slope=2e-2, k3=5e-3, bias=2e-2),
    torch.float16: Band(mean=2e-2, max=5e-1, slope=1e-2, k3=5e-4, bias=4e-3),
}
"""TF32 and the kernels of two libraries on a GPU differ more."""


def on_gpu(model: Any) -> bool:
    """Whether a model is on a GPU."""
    kind: str = model.device.type
    return kind != "cpu"


def band_of(model: Any, dtype: torch.dtype) -> Band:
    """Return the band of slope, k3 and bias of a model that computes in this precision."""
    return (ON_GPU if on_gpu(model) else BANDS)[dtype]


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean and maximum of |trainer log-prob - engine log-prob|, in nats, over ``tokens`` tokens."""

    mean: float
    max: float
    tokens: int


def measure_parity(trainer_N: Tensor, engine_N: Tensor) -> Difference | None:
    """Compare two log-prob vectors of shape (N,); None if there are no tokens."""
    if trainer_N.numel() == 0:
        return None
    difference_N = (trainer_N.double() - engine_N.double()).abs()
    # a NaN must not pass a comparison: it counts as an infinite difference
    difference_N = torch.nan_to_num(difference_N, nan=math.inf, posinf=math.inf)
    return Difference(float(difference_N.mean()), float(difference_N.max()), difference_N.numel())


def check_parity(
    parity: Difference,
    dtype: torch.dtype,
    section: ParitySection,
    *,
    version: int,
    resumed: bool = False,
) -> None:
    """Stop the run if the differences are larger than rounding explains.

    Args:
        parity: The measured differences.
        dtype: The run's compute precision.
        section: Limits from the config.
        version: Policy version the tokens were sampled under; 0 before any sync.
        resumed: Whether they are the first ones after a resumption.

    Raises:
        RunError: If mean or maximum is above its limit.
    """
    band = BANDS[dtype]
    max_mean = section.mean if section.mean is not None else band.mean
    max_max = section.max if section.max is not None else band.max
    if parity.mean <= max_mean and parity.max <= max_max:
        return
    cause = (
        "the engine does not sample from the trainer's model: temperature, top_p or top_k, dtype "
        "or tokenizer"
        if version == 0
        else "the engine did not take the trainer's new weights, or kept an old cache"
    )
    if resumed:
        cause += "; it is the first step of a resumed run: what is not as it was before it?"
    raise RunError(
        f"guard parity: {'going on from the checkpoint, ' if resumed else ''}trainer and engine "
        f"disagree on sampled tokens at version {version}: mean "
        f"{parity.mean:.3g} nats (band {max_mean:g}), max {parity.max:.3g} (band {max_max:g}), "
        f"over {parity.tokens} tokens",
        remedy=(
            f"likely: {cause}",
            "see rlvr docs guards#parity; guards.parity.mean and max widen the band",
        ),
    )
