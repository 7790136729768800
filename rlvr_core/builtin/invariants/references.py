"""Weights and log-probs of the KL's reference, computed again without the code that moves it.

At version 0 the reference is the policy, rounded to its own precision. From there on it stays, or
is ``(1 - ema) * reference + ema * policy`` after every ``train.reference.sync_every`` updates: both
are followed here on a sample of elements of every tensor. And of a few rows of a step the
reference's log-probs are computed once more, by one plain forward pass a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.builtin.invariants.check import Seen, StepView, Trainer, compute_dtype
from rlvr_core.builtin.invariants.fingerprints import SAMPLE, is_sharded, local
from rlvr_core.builtin.invariants.plain_pass import plain_logprobs

if TYPE_CHECKING:
    from rlvr_core.api import MicroBatch

NOISE = {torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 5e-3}
"""Rounding of a log-prob of two forward passes, in nats."""

MEAN = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}
"""Largest mean difference of the log-probs used from those computed again, in nats."""

TOWARDS = 0.3
"""Share of the way to the policy at which log-probs are no longer the reference's."""

LEAST, ENOUGH, ROWS = 16, 64, 4
"""Tokens that a comparison takes, at least; tokens that are enough; most rows that it takes."""


class ReferenceWeights:
    """Follows a sample of the reference's weights.

    Args:
        trainer: The policy's trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        section = trainer.train.reference
        self._every, self._ema = section.sync_every, section.ema
        self._expected: list[Tensor] | None = None
        self._version = 0

    def check(self, version: int) -> str:
        """Return what is wrong with the weights at a policy version; empty if nothing is."""
        if self._expected is not None and not self._every:
            return ""  # one that stays has a fingerprint
        names, own, policy = self._samples()
        if self._every and not names:
            return "has no matrices of its own beside the adapter's, and is to follow the policy"
        wanted, wrong = self._expected, ""
        if wanted is None and version == 0 and not _under_adapter(names):
            wanted = [new.to(old.dtype) for old, new in zip(own, policy, strict=True)]
            wrong = "differs from the policy before the first update"
        elif wanted is not None and len(wanted) == len(own):
            due = version % self._every == 0
            wrong = "has not followed the policy" if due else "has moved, and no sync was due"
        self._expected, self._version = own, version
        if wanted is None or not wrong:
            return ""
        same = torch.equal if self._ema == 1 else _same
        off = [name for name, a, b in zip(names, own, wanted, strict=True) if not same(a, b)]
        if not off:
            return ""
        return f"{wrong}: {len(off)} of {len(names)} tensors differ, {off[0]} (band: rounding)"

    def updated(self) -> None:
        """An update was applied, and the reference has not followed it yet."""
        self._version += 1
        if not self._every or self._expected is None or self._version % self._every:
            return
        _, _, policy = self._samples()
        self._expected = [
            new.to(old.dtype) if self._ema == 1 else old + self._ema * (new.to(old.dtype) - old)
            for old, new in zip(self._expected, policy, strict=True)
        ]

    @property
    def differ(self) -> bool:
        """Whether most tensors of a separate reference differ from the policy's as it computes."""
        names, own, policy = self._samples()
        dtype = compute_dtype(self._trainer)
        differing = [
            not torch.equal(a.to(dtype), b.to(dtype)) for a, b in zip(own, policy, strict=True)
        ]
        return bool(names) and not _under_adapter(names) and sum(differing) > len(names) / 2

    def _samples(self) -> tuple[list[str], list[Tensor], list[Tensor]]:
        """Return names, and elements of the reference's tensors and of the policy's."""
        trained = dict(self._trainer.model.named_parameters())
        with self._trainer.reference.active() as model:
            held = dict(model.named_parameters())
        if model is self._trainer.model:
            pairs = [
                (name, one, trained.get(name.replace(".reference.", ".default.")))
                for name, one in held.items()
                if ".reference." in name
            ]
        else:
            pairs = [(name, one, trained.get(name)) for name, one in held.items()]
        known = [
            (name, _sample(own), _sample(new))
            for name, own, new in pairs
            if new is not None and local(own).numel() == local(new).numel()
        ]
        return (
            [name for name, _, _ in known],
            [own for _, own, _ in known],
            [new for _, _, new in known],
        )


def _under_adapter(names: Sequence[str]) -> bool:
    return any(".reference." in name for name in names)


def _sample(tensor: Tensor) -> Tensor:
    flat = local(tensor).reshape(-1)
    return flat[:: max(1, len(flat) // SAMPLE)][:SAMPLE].clone()


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two samples are the same up to the rounding of an average."""
    step = 2 * torch.finfo(one.dtype).eps
    a, b = one.double().cpu(), other.double().cpu()
    # a sum may be smaller than its terms
    return bool(((a - b).abs() <= step * (b.abs() + b.abs().mean()) + 1e-12).all())


class ReferenceLogprobs:
    """Compares log-probs of the reference with those of a pass of its own.

    Args:
        trainer: The policy's trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._along = self._way = 0.0
        self._tokens = 0
        self._before: tuple[MicroBatch, Tensor, Tensor] | None = None

    def check(self, view: StepView, seen: Seen, weights: ReferenceWeights) -> str:
        """Return what is wrong with the reference's log-probs of a micro-batch, or nothing."""
        batch = seen.batch
        reference_BT = batch.ref_logp_BT
        if reference_BT is None or any(map(is_sharded, self._trainer.model.parameters())):
            return ""  # other processes would have to compute along
        if moved_by := self._trained_behind(seen):
            return (
                f"the reference's log-probs depend on {len(moved_by)} tensors that are trained, "
                f"such as {moved_by[0]} (band: none)"
            )
        rows, own = list[int](), list[Tensor]()
        last = len(batch.mask_BT) - 1
        for row in sorted({last * part // (ROWS - 1) for part in range(ROWS)}):
            if sum(map(len, own)) < ENOUGH:
                rows.append(row)
                with torch.no_grad():
                    own.append(self._plain(seen, row))
        own_N = torch.cat(own)
        masks = [batch.mask_BT[row] for row in rows]

        def there(table_BT: Any) -> Tensor:
            found = [table_BT[row][mask] for row, mask in zip(rows, masks, strict=True)]
            return torch.cat(found).detach().double()

        used_N, policy_N = there(reference_BT), there(batch.logp_BT)
        if len(own_N) < LEAST or len(own_N) != len(used_N):
            return ""
        cool = 1 / min(1.0, self._trainer.temperature)
        dtype = compute_dtype(self._trainer)
        where = "" if self._trainer.model.device.type == "cpu" else "cuda"
        band = MEAN[dtype] * cool * (5 if where and dtype == torch.float32 else 1)
        off = float((used_N - own_N).abs().mean())
        if not off <= band:
            return (
                f"the reference's log-probs differ from those that its weights give by {off:.3g} "
                f"nats in the mean (band {band:g})"
            )
        if self._left_behind(seen, used_N, own_N):
            return (
                "the reference's log-probs are, to the last bit, those of an earlier update of "
                "the step, and its weights have moved since"
            )
        # before the first update the way is nothing but what one pass rounds otherwise than another
        if view.version > 0 or view.update > 0:
            self._tokens += len(own_N)
            self._along += float(((used_N - own_N) * (policy_N - own_N)).sum())
            self._way += float((policy_N - own_N).square().sum())
        sure = self._way > 10 * self._tokens * (NOISE[dtype] * cool) ** 2
        if sure and self._along > TOWARDS * self._way:
            return (
                f"the reference's log-probs are {self._along / self._way:.0%} of the way from "
                f"those of its weights to those of the policy (band {TOWARDS:.0%})"
            )
        told_N = own_N.abs() > 1e-3
        for name, table_BT in (("policy", batch.logp_BT), ("engine", batch.behaviour_logp_BT)):
            same_N = there(table_BT) == used_N
            if int(told_N.sum()) >= LEAST and bool(same_N[told_N].all()) and weights.differ:
                return (
                    f"the reference's log-probs are, to the last bit, those of the {name}, whose "
                    "weights are others"
                )
        return ""

    def _left_behind(self, seen: Seen, used_N: Tensor, own_N: Tensor) -> bool:
        """Whether the same rows have the same log-probs again from a reference that has moved.

        Rounding hides a small move from a comparison with one other pass, but not from one with
        the pass before: what is computed anew changes nearly everywhere.
        """
        before, self._before = self._before, (seen.micro_batch, used_N, own_N)
        if before is None or before[0] is not seen.micro_batch or len(before[2]) != len(own_N):
            return False
        moved = int((before[2] != own_N).sum())
        return moved >= max(LEAST, len(own_N) / 2) and torch.equal(before[1], used_N)

    def _trained_behind(self, seen: Seen) -> list[str]:
        """Return the trained tensors that a reference within the policy's model depends on."""
        with self._trainer.reference.active() as model:
            if model is not self._trainer.model:
                return []
        trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        with torch.enable_grad():
            total = self._plain(seen, 0).sum()
            if not total.requires_grad:
                return []
            gradients = torch.autograd.grad(total, [*trained.values()], allow_unused=True)
        return [name for name, one in zip(trained, gradients, strict=True) if one is not None]

    def _plain(self, seen: Seen, row: int) -> Tensor:
        """Return the reference's log-probs of a row's loss tokens, in float64."""
        with self._trainer.reference.active() as model:
            return plain_logprobs(self._trainer, model, seen.micro_batch, row, seen.batch.mask_BT)
