"""The loss is not the one of the config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.together.chaos.changes import POLICY, STEP
from tests.together.chaos.registry import BOTH, Patch, fault

OBJECTIVE = "rlvr_core.step.objective"
LOSSES = "rlvr_core.losses"


@fault("loss", "advantages", backends=BOTH)
def loss_negated(patch: Patch) -> None:
    """The loss is maximised."""
    patch.after(f"{OBJECTIVE}:LossTerm.of", lambda out, *_: replace(out, loss=-out.loss))


@fault("loss", "parity", shape="two iterations")
def old_logprobs_renewed_every_update(patch: Patch) -> None:
    """The ratio of every update starts anew: the clip never acts."""
    patch.wrap(
        f"{STEP}:PolicyTrainer._compute_old_logprobs",
        lambda original: lambda self, batches: None,
    )


@fault("loss", shape="two iterations")
def ratio_never_clipped(patch: Patch) -> None:
    """The ratio is never clipped."""

    def make(original: Any) -> Any:
        wide = {"clip_low": 1.0, "clip_high": 1e9}
        return lambda policy, options: original(policy, options.model_copy(update=wide))

    patch.wrap(f"{LOSSES}:clipped", make)


@fault("loss", "advantages", "updates")
def ratio_without_gradient(patch: Patch) -> None:
    """The ratio has no gradient: of the loss, only the KL term has one."""
    patch.after(f"{POLICY}:exp_linear", lambda ratio, *_: ratio.detach())


@fault("loss")
def entropy_bonus_that_nobody_asked_for(patch: Patch) -> None:
    """A bonus of 0.1 on the entropy that the config does not have."""
    patch.after(f"{POLICY}:PolicyTerms._bonus", lambda *_: 0.1)


@fault("loss")
def gradient_of_negative_rows_lost(patch: Patch) -> None:
    """Rows with a negative advantage have no gradient."""

    def after(loss_BT: Any, policy: Any, options: Any) -> Any:
        return torch.where(policy.advantage_BT < 0, loss_BT.detach(), loss_BT)

    patch.after(f"{LOSSES}:clipped", after)


@fault("loss", "tokens", shape="micro batches")
def loss_normalised_by_micro_batch(patch: Patch) -> None:
    """The denominators are those of the micro-batch, not of the step."""

    def make(original: Any) -> Any:
        def of(self: Any, batch: Any, normalizer: Any) -> Any:
            rows, tokens = int(batch.mask_BT.any(1).sum()), int(batch.mask_BT.sum())
            return original(self, batch, replace(normalizer, rows=rows, tokens=tokens))

        return of

    patch.wrap(f"{OBJECTIVE}:LossTerm.of", make)


@fault("loss")
def rows_divided_by_padded_length(patch: Patch) -> None:
    """The sum over a row is divided by the length it is padded to, not by its own."""

    def make(original: Any) -> Any:
        def row_mean(loss_BT: Any, mask_BT: Any, normalizer: Any) -> Any:
            share_B = mask_BT.sum(1).clamp(min=1) / mask_BT.shape[1]
            return original(loss_BT * share_B[:, None], mask_BT, normalizer)

        return row_mean

    patch.wrap(f"{LOSSES}:row_mean", make)


@fault("loss", shape="truncated importance")
def importance_weights_inverted(patch: Patch) -> None:
    """Importance weights are the inverse of what they should be."""

    def make(original: Any) -> Any:
        return lambda old, behaviour, *more: original(behaviour - 0.3, old, *more)

    patch.wrap(f"{POLICY}:importance_weight", make)
