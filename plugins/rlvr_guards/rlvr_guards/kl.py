"""Guard ``guards/kl``: the reference is what the run began with.

At version 0 policy and reference are the same weights, so their KL is rounding. The reference
shares no weights with the policy, and its weights stay what they were unless the configuration
moves them. The KL term itself is part of the formula that ``guards/loss`` computes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import BaseGuard, Metric, NoConfig
from rlvr_core.guards.tensors import local, sampled

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group

AT_START = {torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float16: 1e-4}
"""Largest mean k3 at version 0: the reference's weights are rounded to the compute dtype. After
prompts unlike all that a model has learned, .002 was seen in bfloat16."""


class Kl(BaseGuard):
    """Looks at the reference; after a resumption ``core/resume`` has compared it before."""

    name = "guards/kl"
    reports = (Metric("kl/k3", "Mean k3 of policy and reference over fresh loss tokens.", "nats"),)

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._fingerprint: int | None = None

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Check the reference's weights."""
        self.begin(step)
        trainer = self.context.trainer
        if trainer.reference is None or not self.due:
            return
        trained = [tensor for tensor in trainer.model.parameters() if tensor.requires_grad]
        with trainer.reference.active() as model:
            held = dict(model.named_parameters())
            # under LoRA the reference is the same model, and its adapter is switched off in there
            if model is trainer.model:
                adapter = set(map(id, trained))
                held = {name: tensor for name, tensor in held.items() if id(tensor) not in adapter}
            places = _addresses(trained)
            shared = [name for name, tensor in held.items() if places & _addresses([tensor])]
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
        """Measure how far policy and reference are apart.

        Raises:
            RunError: If they differ before the first update.
        """
        view = self.view
        if not self.due:
            return
        shares = self.context.ranks.gather(self._fresh_tokens_and_k3())
        tokens, k3 = (sum(column) for column in zip(*shares, strict=True))
        if not tokens:
            return
        mean = self.numbers["kl/k3"] = k3 / tokens
        # what rounds is the logits, and they are divided by the temperature: k3 is a square of it
        sharp = min(1.0, self.context.trainer.temperature)
        band = AT_START[self.compute_dtype] / sharp**2
        if view.version == 0 and view.update == 0 and not mean <= band:
            raise self.fault(
                view.step,
                f"policy and reference differ before the first update: mean k3 {mean:.3g} nats "
                f"(band {band:g})",
                "the reference has other weights than the policy began with, or its log-probs are "
                "of other rows or another temperature",
            )

    def _fresh_tokens_and_k3(self) -> tuple[float, float]:
        """Return the number of loss tokens of fresh rows, and the sum of k3 over them."""
        view = self.view
        totals: list[Tensor] = []
        for seen in view.seen if view.first_pass else ():
            refs = [batch.ref_logp_BT for _, batch, _ in seen.losses]
            ref_BT = next((ref_BT for ref_BT in refs if ref_BT is not None), None)
            if ref_BT is None:
                continue
            fresh = [view.fresh(place) for place in seen.micro_batch.group_B.tolist()]
            chosen_BT = seen.batch.mask_BT & seen.batch.mask_BT.new_tensor(fresh)[:, None]
            d_N = (ref_BT - seen.batch.logp_BT)[chosen_BT].double()
            totals.append(torch.stack([chosen_BT.sum().double(), (d_N.expm1() - d_N).sum()]))
        tokens, k3 = torch.stack(totals).sum(0).tolist() if totals else (0.0, 0.0)
        return tokens, k3


def _addresses(tensors: Iterable[Tensor]) -> set[int]:
    """Return where the parts of tensors in this process begin."""
    return {part.data_ptr() for part in map(local, tensors) if part.numel()}


def _fingerprint(tensors: Iterable[Tensor]) -> int:
    """Return a checksum over 64 elements of the local part of each tensor."""
    parts = [sampled(tensor, 64).float() for tensor in tensors]
    return zlib.crc32(torch.cat(parts).cpu().numpy().tobytes()) if parts else 0
