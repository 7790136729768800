"""The loss is not the one of the config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from chaos.registry import Patch, fault

POLICY = "rlvr_core.algorithm.policy"


@fault("loss", "sign")
def loss_negated(patch: Patch) -> None:
    """The loss is maximised."""

    def negative(out: Any, *_: Any) -> Any:
        return replace(out, loss=-out.loss)

    patch.after("rlvr_core.step.objective:LossTerm.of", negative)


@fault("loss", "scale")
def loss_thousandfold(patch: Patch) -> None:
    """The loss is a thousand times too large."""
    patch.after("rlvr_core.step.objective:LossTerm.of", lambda o, *_: replace(o, loss=1e3 * o.loss))


@fault("loss", "old", shape="two iterations")
def old_logprobs_are_of_sampling_shifted(patch: Patch) -> None:
    """The old log-probs are those of the row's neighbour."""

    def make(original: Any) -> Any:
        def compute(self: Any, batches: Any) -> None:
            original(self, batches)
            for batch in batches:
                for part in batch.parts:
                    part.old_logprobs = [x.roll(1, 0) for x in part.old_logprobs]

        return compute

    patch.wrap("rlvr_core.step.step:PolicyTrainer._compute_old_logprobs", make)


@fault("loss", "old", shape="two iterations")
def old_logprobs_renewed_every_update(patch: Patch) -> None:
    """The ratio of every update starts anew: the clip never acts."""
    patch.wrap(
        "rlvr_core.step.step:PolicyTrainer._compute_old_logprobs",
        lambda original: lambda self, batches: None,
    )


@fault("loss", "clip", shape="two iterations")
def clip_never(patch: Patch) -> None:
    """The ratio is never clipped."""

    def make(original: Any) -> Any:
        return lambda r, a, **o: original(r, a, **o | {"low": 1.0, "high": 1e9})

    patch.wrap(f"{POLICY}:clipped_surrogate", make)


@fault("loss", "ratio", shape="two iterations")
def ratio_squared(patch: Patch) -> None:
    """The ratio is squared."""
    patch.after(f"{POLICY}:exp_linear", lambda r, *_: r * r)


@fault("loss", "ratio")
def ratio_of_log(patch: Patch) -> None:
    """The log-ratio is taken for the ratio."""
    patch.wrap(f"{POLICY}:exp_linear", lambda original: lambda x: x + 1e-30)


@fault("loss", "entropy")
def entropy_bonus_added(patch: Patch) -> None:
    """A bonus of 0.1 on the entropy that the config does not have."""
    patch.after(f"{POLICY}:PolicyLoss._bonus", lambda *_: 0.1)


@fault("loss", "normali", "denominator", "mean")
def loss_summed_not_averaged(patch: Patch) -> None:
    """Rows are summed, not averaged."""

    def make(original: Any) -> Any:
        def normalizer(self: Any, part: Any) -> Any:
            return replace(original(self, part), rows=1, tokens=1)

        return normalizer

    patch.wrap("rlvr_core.step.step:PolicyTrainer._normalizer", make)


@fault("loss", "normali", "denominator", "micro", shape="micro batches")
def loss_normalised_by_micro_batch(patch: Patch) -> None:
    """The denominators are those of the micro-batch, not of the step."""

    def make(original: Any) -> Any:
        def of(self: Any, batch: Any, normalizer: Any) -> Any:
            own = replace(
                normalizer,
                rows=int(batch.mask_BT.any(1).sum()),
                tokens=int(batch.mask_BT.sum()),
            )
            return original(self, batch, own)

        return of

    patch.wrap("rlvr_core.step.objective:LossTerm.of", make)


@fault("loss", "importance", "weight", shape="truncated importance")
def importance_weights_inverted(patch: Patch) -> None:
    """Importance weights are the inverse of what they should be."""

    def make(original: Any) -> Any:
        return lambda old, behaviour, *more: original(behaviour - 0.3, old, *more)

    patch.wrap(f"{POLICY}:importance_weight", make)


@fault("loss", "dtype", "precision")
def loss_in_half_precision(patch: Patch) -> None:
    """The trainer's log-probs are rounded to bfloat16 after the softmax."""

    def coarse(found: Any, *_: Any) -> Any:
        logp, *rest = found
        return (logp + (logp.bfloat16().float() - logp).detach(), *rest)

    patch.after("rlvr_core.step.step:completion_scores", coarse)


@fault("loss", "gradient", "sign", "advantage")
def gradient_of_negative_rows_lost(patch: Patch) -> None:
    """Rows with a negative advantage have no gradient."""

    def make(original: Any) -> Any:
        def surrogate(self: Any, terms: Any, tally: Any) -> Any:
            loss_BT = original(self, terms, tally)
            return torch.where(terms.advantage_BT < 0, loss_BT.detach(), loss_BT)

        return surrogate

    patch.wrap(f"{POLICY}:ClippedPolicyLoss.surrogate", make)
