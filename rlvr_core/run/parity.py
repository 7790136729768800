"""Guard ``parity``: trainer and engine must agree on the log-prob of every sampled token.

Run on the first step's completions and on those after the first weight sync, before the optimizer
step that would build on them. It catches a wrong temperature (T2), weights that never arrived
(T30), a stale cache (T19) and a rounding plan gone wrong (T16) at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import RunError

if TYPE_CHECKING:
    from rlvr_core.config.model import ParitySection


@dataclass(frozen=True, slots=True)
class Band:
    """Largest differences that are still rounding, in nats."""

    mean: float
    max: float


# float32: two forward passes differ by about 1e-5. Half precision: bf16 logits alone move a
# log-prob by a few hundredths on average and some tenths at worst (docs/guards.md has the source).
BANDS = {
    torch.float32: Band(mean=1e-3, max=5e-2),
    torch.bfloat16: Band(mean=1e-1, max=2.0),
    torch.float16: Band(mean=2e-2, max=5e-1),
}


@dataclass(frozen=True, slots=True)
class Parity:
    """Mean and maximum of |trainer log-prob - engine log-prob|, in nats, over ``tokens`` tokens."""

    mean: float
    max: float
    tokens: int


def measure(trainer_N: torch.Tensor, engine_N: torch.Tensor) -> Parity | None:
    """Compare two log-prob vectors of shape (N,); None if there is nothing to compare."""
    if trainer_N.numel() == 0:
        return None
    difference_N = (trainer_N.double() - engine_N.double()).abs()
    # a NaN must not slip through a comparison: it counts as infinitely far
    difference_N = torch.nan_to_num(difference_N, nan=math.inf, posinf=math.inf)
    return Parity(float(difference_N.mean()), float(difference_N.max()), difference_N.numel())


def check(
    parity: Parity,
    dtype: torch.dtype,
    section: ParitySection,
    *,
    version: int,
    filtered: bool = False,
) -> None:
    """Stop the run when the difference is more than rounding.

    Args:
        parity: What was measured.
        dtype: The run's compute precision.
        section: Bands of the config.
        version: Policy version the tokens were sampled under; 0 before any sync.
        filtered: Whether top-p or top-k was on, which the engine's log-probs are renormalised for.

    Raises:
        RunError: If mean or maximum is above its band.
    """
    band = BANDS[dtype]
    max_mean = section.mean if section.mean is not None else band.mean
    max_max = section.max if section.max is not None else band.max
    if parity.mean <= max_mean and parity.max <= max_max:
        return
    cause = (
        "top_p and top_k: the engine's log-probs are of the filtered distribution, the trainer's "
        "are not"
        if filtered
        else "the engine does not sample from the trainer's model: temperature, dtype or tokenizer"
        if version == 0
        else "the engine did not take the trainer's new weights, or kept an old cache"
    )
    raise RunError(
        f"guard parity: trainer and engine disagree on sampled tokens at version {version}: mean "
        f"{parity.mean:.3g} nats (band {max_mean:g}), max {parity.max:.3g} (band {max_max:g}), "
        f"over {parity.tokens} tokens",
        remedy=(
            f"likely: {cause}",
            "see docs/guards.md#parity; guards.parity.mean and max widen the band",
        ),
    )
