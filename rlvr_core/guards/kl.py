"""Guard ``core/kl``: the KL term is one, and the reference is what the run began with.

At version 0 policy and reference are the same weights, so their KL is rounding. The recorded KL
equals the estimator computed here from the same log-probs. On two rows with made-up reference
log-probs and no advantage, the gradient of the loss is that of the KL alone, and has to pull the
policy towards the reference as far as the estimator says. And the reference's weights stay what
they were, unless the configuration moves them.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric, NoConfig
from rlvr_core.guards.base import BaseGuard, compute_dtype
from rlvr_core.guards.tensors import local, sampled

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, Json, Loss, LossBatch, Normalizer

AT_START = {torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float16: 1e-4}
"""Largest mean k3 at version 0: the reference's weights are rounded to the compute dtype. After
prompts unlike all that a model has learned, .002 was seen in bfloat16."""

UP, DOWN = 0.5, -0.25
"""Reference less policy log-prob at every other token of the made-up rows."""


class Kl(BaseGuard):
    """KL term and reference. Remembers the fingerprint of a reference that never moves."""

    name = "kl"
    reports = (
        Metric("kl/k3", "Mean k3 of policy and reference over fresh loss tokens.", "nats"),
        Metric("kl/error", "Difference of the recorded KL from the one computed again.", "nats"),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._due = True
        self._fingerprint: int | None = None

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Check the reference's weights."""
        self.numbers, self._due = {}, self.is_due(step)
        trainer = self.context.trainer
        if trainer.reference is None or not self._due:
            return
        trained = {id(one): one for one in trainer.model.parameters() if one.requires_grad}
        with trainer.reference.active() as model:
            held = dict(model.named_parameters())
            # under LoRA the reference is the same model, and its adapter is switched off in there
            if model is trainer.model:
                held = {name: one for name, one in held.items() if id(one) not in trained}
            places = _addresses(trained.values())
            shared = [name for name, one in held.items() if places & _addresses([one])]
            fingerprint = _fingerprint(held.values())
        if shared or not held:
            which = f"{len(shared)} of its {len(held)} tensors" if held else "all of its tensors"
            raise self.fault(
                step,
                f"the reference shares {which} with the policy, and is trained along (band: none)",
                "load the reference from model.path, as a model of its own: a shallow copy moves "
                "with the policy, and their KL is 0",
            )
        if trainer.train.reference.sync_every:
            return
        self._fingerprint = fingerprint if self._fingerprint is None else self._fingerprint
        if fingerprint != self._fingerprint:
            raise self.fault(
                step,
                "the reference has other weights than at the start of the run, and "
                "train.reference.sync_every does not move it",
                "something writes into the reference, or a resumed run loaded another: it must be "
                "loaded from the run's model.path",
            )

    def update_begins(self) -> None:
        """Check the KL of an update."""
        view = self.view
        if not self._due:
            return
        shares = self.context.ranks.gather(self._totals())
        tokens, ours, recorded, fresh, k3 = (sum(column) for column in zip(*shares, strict=True))
        if not tokens:
            return
        error = abs(recorded - ours) / tokens
        self.numbers["kl/error"] = error
        if fresh:
            self.numbers["kl/k3"] = k3 / fresh
        if view.update == 0:
            self._probe()
        if not error <= 1e-3 * abs(ours) / tokens + 1e-6:
            raise self.fault(
                view.step,
                f"the loss records a KL of {recorded / tokens:.4g} nats a token, and the same "
                f"log-probs give {ours / tokens:.4g}",
                "look at the estimator: sign, direction (policy less reference) and mask",
            )
        # what rounds is the logits, and they are divided by the temperature: k3 is a square of it
        sharp = min(1.0, self.context.trainer.temperature)
        band = AT_START[compute_dtype(self.context)] / sharp**2
        first = view.version == 0 and view.update == 0
        if first and fresh and not k3 / fresh <= band:
            raise self.fault(
                view.step,
                f"policy and reference differ before the first update: mean k3 {k3 / fresh:.3g} "
                f"nats (band {band:g})",
                "the reference has other weights than the policy began with, or its log-probs are "
                "of other rows or another temperature",
            )

    def _totals(self) -> tuple[float, float, float, float, float]:
        """Over tokens: their number, own and recorded KL; over fresh ones: number and k3."""
        view = self.view
        totals: list[Tensor] = []
        for seen in view.seen:
            for loss, batch, output in seen.losses:
                kind = loss.traits.kl_estimator
                pair = output.sums.get("kl/mean")
                if kind is None or batch.ref_logp_BT is None or pair is None:
                    continue
                d_BT = torch.where(batch.mask_BT, batch.ref_logp_BT - batch.logp_BT, 0.0).double()
                places = seen.micro_batch.group_B.tolist()
                fresh_B = batch.mask_BT.new_tensor(
                    [view.first_pass and view.fresh(place) for place in places]
                )
                sums = (
                    *(pair[1], _estimate(d_BT, kind).sum(), pair[0]),
                    (batch.mask_BT & fresh_B[:, None]).sum(),
                    _estimate(d_BT[fresh_B], "k3").sum(),
                )
                totals.append(torch.stack([torch.as_tensor(one).to(d_BT) for one in sums]))
        if not totals:
            return 0.0, 0.0, 0.0, 0.0, 0.0
        tokens, ours, recorded, fresh, k3 = torch.stack(totals).sum(0).tolist()
        return tokens, ours, recorded, fresh, k3

    def _probe(self) -> None:
        for seen in self.view.seen[:1]:
            for loss, batch, _ in seen.losses:
                if loss.traits.kl_estimator is None or batch.ref_logp_BT is None:
                    continue
                fault = probe(loss, batch, seen.normalizer)
                if fault:
                    raise self.fault(
                        self.view.step,
                        f"the gradient of the KL term is wrong: {fault}",
                        "look at the KL in the loss: sign, direction (policy less reference), "
                        "estimator, and whether the policy's log-probs carry its gradient",
                    )

    def state_dict(self) -> dict[str, Json]:
        """Return the fingerprint of the reference."""
        return {"fingerprint": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it: the reference of a resumed run has to be the same."""
        self._fingerprint = state["fingerprint"]


def _addresses(tensors: Iterable[Tensor]) -> set[int]:
    """Return where the parts of tensors in this process begin."""
    return {part.data_ptr() for part in map(local, tensors) if part.numel()}


def _fingerprint(tensors: Iterable[Tensor]) -> int:
    """Return a checksum over 64 elements of the local part of each tensor."""
    parts = [sampled(tensor, 64).float() for tensor in tensors]
    return zlib.crc32(torch.cat(parts).cpu().numpy().tobytes()) if parts else 0


def _estimate(d: Tensor, kind: str) -> Tensor:
    """Estimate KL(policy || reference) from d = reference - policy log-prob (Schulman 2020)."""
    if kind == "k1":
        return -d
    if kind == "k2":
        return d * d / 2
    bounded = d.clamp(max=30.0)
    return torch.expm1(bounded) - bounded + torch.expm1(bounded) * (d - bounded)


def probe(loss: Loss, batch: LossBatch, normalizer: Normalizer) -> str:
    """Return what is wrong with the gradient of a loss's KL term; empty if nothing is.

    Args:
        loss: A loss whose traits name a KL estimator.
        batch: A micro-batch; two rows of it are used.
        normalizer: Denominators.
    """
    mask_BT = batch.mask_BT[:2]
    logp_BT = batch.logp_BT[:2].detach().clone().requires_grad_()
    even_T = torch.arange(mask_BT.shape[1], device=mask_BT.device) % 2 == 0
    d_BT = torch.where(even_T, UP, DOWN).to(logp_BT).expand_as(logp_BT)
    still_BT = logp_BT.detach()
    made_up = replace(
        _rows(batch, 2),
        logp_BT=logp_BT,
        old_logp_BT=still_BT,
        behaviour_logp_BT=still_BT,
        ref_logp_BT=still_BT + d_BT,
        advantage_B=torch.zeros_like(batch.advantage_B[:2]),
        advantage_BT=None if batch.advantage_BT is None else torch.zeros_like(still_BT),
    )

    def gradient(batch: LossBatch) -> Tensor:
        with torch.enable_grad():
            value = loss(batch, replace(normalizer, share_B=None)).loss
            if not value.requires_grad:
                return torch.zeros_like(logp_BT)
            (found,) = torch.autograd.grad(value, logp_BT, allow_unused=True)
        return torch.zeros_like(logp_BT) if found is None else found

    kind = loss.traits.kl_estimator
    gradient_BT = gradient(made_up)
    if kind != "k1":  # whose gradient is the same wherever the reference is
        # what another term adds, and should not, is not the KL's
        gradient_BT = gradient_BT - gradient(replace(made_up, ref_logp_BT=still_BT))
    if not gradient_BT[mask_BT].any():
        return "it is 0 where policy and reference differ"
    up_N, down_N = (gradient_BT[mask_BT & chosen_T] for chosen_T in (even_T, ~even_T))
    if kind == "k1":
        return "" if bool((torch.cat([up_N, down_N]) > 0).all()) else "it has the wrong sign"
    # a token that the reference finds likelier is to be raised
    if bool((up_N > 0).any()) or bool((down_N < 0).any()):
        return "it pushes the policy away from the reference"
    if not (len(up_N) and len(down_N)):
        return ""
    ratio = float(up_N.mean() / down_N.mean().abs().clamp(min=1e-30)) * -1
    plain, corrected = _RATIOS[str(kind)]
    if all(abs(ratio / one - 1) > 0.05 for one in (plain, corrected)) and _alike(mask_BT):
        return (
            f"at a token that the reference finds e^{UP} times likelier it is {ratio:.3g} times "
            f"that at one it finds e^{-DOWN} times less likely, and {kind} gives {plain:.3g}"
        )
    return ""


_RATIOS = {
    "k2": (UP / -DOWN, (UP - UP**2 / 2) / (DOWN**2 / 2 - DOWN)),
    "k3": ((math.exp(UP) - 1) / (1 - math.exp(DOWN)), UP / -DOWN),
}
"""Ratio of the gradients' sizes at tokens of the two kinds, by estimator; the second is that of a
KL that is multiplied by the probability ratio."""


def _alike(mask_BT: Tensor) -> bool:
    """Whether all rows have tokens of both kinds in the same numbers, so that means compare."""
    counts_B = mask_BT.sum(1)
    return len(mask_BT) == 1 or bool((counts_B == counts_B[0]).all())


def _rows(batch: LossBatch, n: int) -> LossBatch:
    """Return the first rows of a batch; tokens of a teacher are left out."""

    def cut(tensor: Any) -> Any:
        return None if tensor is None else tensor[:n].detach()

    return replace(
        batch,
        mask_BT=batch.mask_BT[:n],
        entropy_BT=cut(batch.entropy_BT),
        entropy_mask_BT=cut(batch.entropy_mask_BT),
        teacher_logp_BTK=cut(batch.teacher_logp_BTK),
        student_logp_BTK=cut(batch.student_logp_BTK),
        group_B=cut(batch.group_B),
    )
