"""Whether tokens are those that the random numbers of their seeds draw: what rounding may do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from rlvr_core.builtin.invariants.bets import Bets, Token, farther, of_part
from rlvr_core.builtin.invariants.drawn_tokens import Slack
from rlvr_core.builtin.invariants.incoherent import diagnosis, outside

FAR = 0.08
"""By how much more than ``Slack.edge`` half precision hardly ever moves an edge: a log-prob would
have to be off by more than .4 nats. In 53,736 tokens of bfloat16 on a CPU none was, nor by .02."""
FEW = 0.1
"""Share of ``Slack.astray`` that may be as far off as that."""
EDGE = 0.9
"""Largest width of a token's interval that counts where half precision truncates: at the edge of
top-p rounding may keep another token, of any probability, beside one that is sure without it."""


def slack_of(dtype: torch.dtype, *, on_gpu: bool, temperature: float, truncated: bool) -> Slack:
    """Return what rounding may do.

    Args:
        dtype: Compute precision.
        on_gpu: Whether the policy is on a GPU.
        temperature: Of sampling.
        truncated: Whether sampling has top-k or top-p.
    """
    cool = 1 / min(1.0, temperature)
    edge, astray = {
        torch.bfloat16: (0.02, 0.05),
        torch.float16: (0.005, 0.02),
    }.get(dtype, (5e-3, 1e-2) if on_gpu else (1e-4, 1e-4))
    most = 1.0
    if truncated:
        most = 1.0 if dtype == torch.float32 else EDGE
        # a token at the edge, kept or not: hardly one in float32 on a CPU
        exact = dtype == torch.float32 and not on_gpu
        edge, astray = (1e-3, 0.01) if exact else (max(edge, 0.02), max(astray, 0.1))
    half = dtype != torch.float32
    return Slack(min(0.45, edge * cool), min(0.9, astray * math.sqrt(cool)), half, most)


def judged(
    tokens: Sequence[Token], slack: Slack, bets: Bets
) -> tuple[dict[str, float], tuple[str, str] | None]:
    """Settle bets on tokens; return measurements, and what is wrong, with a remedy."""
    evidence, part = bets.add(tokens, slack.astray)
    if slack.half:
        far = [farther(token, FAR, slack.most) for token in tokens]
        found = bets.add(far, FEW * slack.astray, "far ")
        if evidence < 1 <= found[0]:
            (evidence, part), tokens = found, far
            slack = replace(slack, astray=FEW * slack.astray)
    measured = {"seeds/astray": outside(tokens) / len(tokens), "seeds/against": evidence}
    if evidence < 1:
        return measured, None
    those = of_part(tokens, part)
    chance = math.fsum(1 - token.width for token in those)
    what, remedy = diagnosis(those, part)
    named = f" ({part})" if part else ""
    return measured, (
        f"{outside(those)} of {len(those)} tokens{named} are not those that the "
        f"random numbers of their seeds draw, and {chance:.0f} would not be if seeds and "
        f"tokens had nothing to do with one another (band: a share of {slack.astray:g}): "
        f"{what}",
        remedy,
    )
