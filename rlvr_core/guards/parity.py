"""Guard ``core/parity``: trainer and engine give a sampled token the same log-prob (T2, T19, T30).

It compares the numbers that the loss used, in every step: the slope of the trainer's log-probs on
the engine's, the mean of their difference, and the mean of k3. Rounding is independent of the
log-prob and leaves the slope at 1 and the mean at 0. So the slope finds another temperature or a
truncated distribution in bfloat16 as well, the mean another sum of probabilities, and k3 weights or
rows that differ. Steps of few tokens leave the slope uncertain: it is also that of as many steps as
tell the band.

How much rounding there is depends on the model's depth and width. In half precision the trainer
scores some tokens of the first step in float32, too, and the bands are multiples of what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.api import ComponentConfig, Metric
from rlvr_core.api.guards import BaseGuard, is_fresh
from rlvr_core.guards.log_probs import DECIDING, Fit, Sums, fit
from rlvr_core.step.forward import completion_scores

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, GuardContext, Json, RunStarted

LEAST_TOKENS = 64
"""Tokens that are compared, at least; fewer wait for the next step."""

SCORED = 2048
"""Tokens, prompts included, of the rows that are scored beside the loss."""

K3_TIMES, SLOPE_TIMES = 8.0, 4.0
"""Widths of the bands, in differences between float32 and the model's own precision: engine and
trainer both round, in kernels of their own."""


@dataclass(frozen=True, slots=True)
class Band:
    """Largest differences attributed to rounding: |slope - 1|, mean k3, and |bias| in nats."""

    slope: float
    k3: float
    bias: float


ON_CPU = {
    torch.float32: Band(slope=2e-3, k3=1e-7, bias=3e-5),
    torch.bfloat16: Band(slope=1e-2, k3=1e-4, bias=1.5e-3),
    torch.float16: Band(slope=5e-3, k3=2e-5, bias=5e-4),
}
ON_GPU = {
    torch.float32: Band(slope=5e-3, k3=2e-5, bias=1e-3),
    torch.bfloat16: Band(slope=2e-2, k3=5e-3, bias=2e-2),
    torch.float16: Band(slope=1e-2, k3=5e-4, bias=4e-3),
}
"""The least bands; TF32 and the kernels of two libraries on a GPU differ more."""


class Parity(BaseGuard):
    """Trainer and engine agree on sampled tokens."""

    name = "core/parity"
    reports = (
        Metric("parity/slope", "Slope of the trainer's on the engine's log-probs.", ""),
        Metric("parity/bias", "Mean of trainer - engine log-prob, by what the loss used.", "nats"),
        Metric("parity/k3", "Mean k3 of those differences.", "nats"),
    )

    class Config(ComponentConfig):
        """Options of ``core/parity``; null takes what the model's own rounding gives."""

        max_k3: Annotated[float, Field(gt=0)] | None = None
        """Largest mean of ``exp(d) - d - 1``, d being trainer less engine log-prob."""
        max_slope: Annotated[float, Field(gt=0)] | None = None
        """How far the slope of the trainer's on the engine's log-probs may be from 1."""
        max_bias: Annotated[float, Field(gt=0)] | None = None
        """Largest mean of the differences, in nats."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._options = config
        self._band: Band | None = None
        self._recent, self._pooled = Sums(), Sums()
        self._scored: tuple[Tensor, Tensor] | None = None
        self._on_loss = self._looks = True

    def bind(self, context: GuardContext) -> None:
        """Decide which log-probs can be compared."""
        super().bind(context)
        config = context.config
        lora = config.model.lora
        # the training pass with dropout, or of newer weights, is not the policy that samples
        self._on_loss = config.train.max_staleness == 0 and (lora is None or lora.dropout == 0)
        self._looks = config.sampling.top_p >= 1.0 and config.sampling.top_k <= 0

    def run_started(self, event: RunStarted) -> None:
        """Say what is not looked at."""
        computes = str(self.compute_dtype).removeprefix("torch.")
        if computes != self.context.config.model.dtype:
            raise self.fault(
                event.step,
                f"the trainer computes in {computes}, and model.dtype is "
                f"{self.context.config.model.dtype} (band: none)",
                "mixed precision is on where it should not be, or off: look at the launcher's "
                "settings and at what makes the trainer's precision",
            )
        if not self._looks:
            self.say_once(
                "does not look: with top_p or top_k the engine samples from a truncated "
                "distribution, and the trainer does not truncate"
            )

    def on_groups(self, event: GroupsScored) -> None:
        """Measure rounding at first, and score rows where the loss's numbers are others."""
        self.numbers = {}
        groups = [group for group in event.groups if is_fresh(group, event.version)]
        if not self._looks or not groups:
            return
        half = self.compute_dtype != torch.float32
        if half and self._band is None and self.context.trainer.parallel is None:
            self._band = self._measured(_some(groups))
        if not self._on_loss and self.is_due(event.step):
            scores_NK = self.context.trainer.token_scores(_some(groups), completion_scores)
            self._scored = scores_NK[:, 0], scores_NK[:, -1]

    def _measured(self, groups: Sequence[Group]) -> Band:
        """Return the bands that the model's own rounding gives, by scoring tokens twice."""
        trainer, least = self.context.trainer, self._least
        own_N = trainer.token_scores(groups, completion_scores)[:, 0]
        exact_N = trainer.token_scores(groups, _in_float32)[:, 0]
        if len(own_N) < LEAST_TOKENS:
            return least
        rounding = fit(Sums.of(own_N, exact_N))
        return Band(
            slope=max(least.slope, SLOPE_TIMES * abs(rounding.slope - 1)),
            k3=max(least.k3, K3_TIMES * rounding.k3),
            bias=max(least.bias, SLOPE_TIMES * abs(rounding.bias)),
        )

    @property
    def _least(self) -> Band:
        on_cpu = self.context.trainer.model.device.type == "cpu"
        return (ON_CPU if on_cpu else ON_GPU)[self.compute_dtype]

    def bands(self) -> Band:
        """Return the bands in force."""
        band, options = self._band or self._least, self._options
        # what rounds is the logits, which are divided by the temperature, and k3 is a square of it
        sharp = 1.0 if self._band else min(1.0, self.context.trainer.temperature)
        return Band(
            slope=options.max_slope or band.slope,
            k3=options.max_k3 or band.k3 / sharp**2,
            bias=options.max_bias or max(options.max_k3 or 0.0, band.bias / sharp),
        )

    def update_begins(self) -> None:
        """Compare the log-probs of an update before it changes anything."""
        if not self._looks:
            return
        view, pairs = self.view, list[tuple[Tensor, Tensor]]()
        for seen in view.seen if view.first_pass and self._on_loss else ():
            batch = seen.batch
            fresh = [view.fresh(place) for place in seen.micro_batch.group_B.tolist()]
            chosen_BT = batch.mask_BT & batch.mask_BT.new_tensor(fresh)[:, None]
            pairs.append((batch.old_logp_BT[chosen_BT], batch.behaviour_logp_BT[chosen_BT]))
        if self._scored is not None and self.context.ranks.main:  # each process has those of all
            pairs.append(self._scored)
        self._scored = None
        sums = Sums.of(*map(torch.cat, zip(*pairs, strict=True))) if pairs else Sums()
        for share in self.context.ranks.gather(sums):
            self._recent = self._recent.add(share)
        if self._recent.n >= LEAST_TOKENS:
            self._judge()

    def _judge(self) -> None:
        self._pooled = self._pooled.add(self._recent)
        now, pooled, band = fit(self._recent), fit(self._pooled), self.bands()
        self._recent = Sums()
        self.numbers |= {"parity/bias": now.bias, "parity/k3": now.k3}
        if now.deciding >= DECIDING:
            self.numbers["parity/slope"] = now.slope
        tilted = next((line for line in (now, pooled) if _is_tilted(line, band.slope)), None)
        if pooled.deciding >= DECIDING and 8 * pooled.slope_error <= band.slope:
            self._pooled = Sums()  # it is known well enough: begin anew, to see later faults
        if tilted or now.k3 - 4 * now.k3_error > band.k3 or now.k3 > 100 * band.k3:
            self._raise(tilted or now, band, tilted=tilted is not None)
        # a token is likelier to be sampled where rounding has raised its log-prob, by about k3
        if abs(pooled.bias) > band.bias + 2 * pooled.k3 + 6 * pooled.bias_error:
            raise self.fault(
                self.view.step,
                f"the log-probs that the loss used are {'above' if pooled.bias > 0 else 'below'} "
                f"the engine's by {abs(pooled.bias):.3g} nats on average (band {band.bias:.2g}), "
                f"over {pooled.tokens} tokens",
                "likely: the two sides divide by another sum of probabilities: padding of the "
                "vocabulary, suppressed tokens, or a truncation (top_p, top_k, min_p) on one side",
            )

    def _raise(self, line: Fit, band: Band, *, tilted: bool) -> None:
        whose = "the loss used" if self._on_loss else "the trainer gives without dropout"
        raise self.fault(
            self.view.step,
            f"the log-probs that {whose} differ from the engine's at version "
            f"{self.view.version}: slope {line.slope:.4f} (band 1 +- {band.slope:.2g}), mean k3 "
            f"{line.k3:.3g} (band {band.k3:.2g}), bias {line.bias:+.3g} nats, over "
            f"{line.tokens} tokens",
            f"likely: {_cause(line, self.view.version, tilted=tilted)}",
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the sums that wait for more tokens, and the measured bands."""
        return {
            "recent": list(astuple(self._recent)),
            "pooled": list(astuple(self._pooled)),
            "band": None if self._band is None else list(astuple(self._band)),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._recent, self._pooled = Sums(*state["recent"]), Sums(*state["pooled"])
        self._band = None if state["band"] is None else Band(*state["band"])


def _is_tilted(line: Fit, band: float) -> bool:
    # the error keeps a few tokens from being taken for a trend
    far = abs(line.slope - 1) > band + 4 * line.slope_error
    return line.deciding >= DECIDING and far


def _cause(line: Fit, version: int, *, tilted: bool) -> str:
    if tilted and line.k3 < 0.05:
        return (
            f"trainer and engine use different temperatures (a ratio of {line.slope:.3f}), or the "
            "engine truncates its distribution (top_p, top_k, min_p)"
        )
    if version == 0:
        return (
            "the training pass does not compute the tokens that were sampled: rows, positions, the "
            "loss mask or the recorded log-probs are mixed up, or the engine has another model"
        )
    return (
        "the engine did not take the trainer's new weights, or kept an old cache; if it began with "
        "the first step, the training pass reads other rows or positions"
    )


def _some(groups: Sequence[Group]) -> list[Group]:
    """Return a few completions of each of the first groups, of about ``SCORED`` tokens."""
    chosen: list[Group] = []
    tokens = 0
    for group in groups:
        if tokens >= SCORED:
            break
        members = group.members[:4]
        tokens += sum(len(m.completion.prompt_ids) + len(m.completion.token_ids) for m in members)
        chosen.append(replace(group, members=members))
    return chosen


def _in_float32(model: Any, batch: Any, **options: Any) -> tuple[Tensor, ...]:
    """Score with the float32 master weights, in float32."""
    score: Callable[..., tuple[Tensor, ...]] = completion_scores
    return score(model, batch, **{**options, "autocast_dtype": None, "compiled": None})
