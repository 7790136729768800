"""Whether a teacher says what it is said to say, by a plain pass of one row.

A distillation is held to its formula (``other_gradients``) for the log-probs that it is given. Here
these are computed again: the teacher's likeliest tokens at each position of a row, and what the
policy gives them. A teacher that is a model of its own must have the weights of its files.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import is_uri, local_path
from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.invariants.other_gradients import distils
from rlvr_core.builtin.invariants.plain_pass import comparable, plain_distributions

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from rlvr_core.api import LossBatch, LossComputed, MicroBatch
    from rlvr_core.api.services import ModelSection
    from rlvr_core.builtin.invariants.check import Trainer

BANDS = {torch.float32: 2e-3, torch.float16: 4e-2, torch.bfloat16: 2e-1}
"""Nats by which a token's log-probs may differ in the mean, each weighed by the teacher."""


SLOPES = {torch.float32: 1e-2, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""How far from 1 the slope of the teacher's log-probs on those of a plain pass may be."""


TOWARDS, SURE = 0.3, 10.0
"""Share of the way from the teacher's log-probs to the policy's that is no rounding, once they are
apart by so many times the square of what a log-prob may be rounded by."""

NOISE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Rounding of a log-prob."""


class Teachers:
    """Follows the teachers of a run.

    Args:
        section: The config's ``model``.
    """

    def __init__(self, section: ModelSection) -> None:
        self._section = section
        self._along: dict[str, float] = {}
        self._way: dict[str, float] = {}
        self._rounding: dict[str, float] = {}

    @torch.no_grad()
    def wrong(self, trainer: Trainer, event: LossComputed) -> str:
        """Return what is wrong with the teachers of a micro-batch's distillations; or nothing."""
        terms = {id(term.loss): term for term in trainer.objective.terms}
        if not comparable(trainer):
            return ""
        for loss, batch, _ in event.losses:
            term = terms.get(id(loss))
            if term is None or term.teacher is None or not distils(loss):
                continue
            follow = partial(self._follow, term.name, NOISE[compute_dtype(trainer)])
            if what := _compared(trainer, term, event.micro_batch, batch, self._section, follow):
                return f"the loss {term.name}: {what}"
        return ""

    def _follow(
        self, name: str, noise: float, found_MK: Tensor, due_MK: Tensor, policy_MK: Tensor
    ) -> str:
        """Add up how far what is used lies on the way to the policy; say so if it is far."""
        way_MK = (policy_MK - due_MK).clamp(-5, 5)
        along = float((way_MK * (found_MK - due_MK).clamp(-5, 5)).sum())
        for sums, more in (
            (self._along, along),
            (self._way, float(way_MK.square().sum())),
            (self._rounding, way_MK.numel() * noise**2),
        ):
            sums[name] = sums.get(name, 0.0) + more
        share = self._along[name] / self._way[name] if self._way[name] else 0.0
        if self._way[name] <= SURE * self._rounding[name] or share <= TOWARDS:
            return ""
        return (
            f"the log-probs of its teacher are {share:.0%} of the way from those of the teacher's "
            f"weights to those of the policy (band {TOWARDS:.0%})"
        )


def _compared(
    trainer: Trainer,
    term: Any,
    micro: MicroBatch,
    batch: LossBatch,
    section: ModelSection,
    follow: Callable[[Tensor, Tensor, Tensor], str],
) -> str:
    teacher_BTK, student_BTK = batch.teacher_logp_BTK, batch.student_logp_BTK
    if teacher_BTK is None or student_BTK is None or not bool(batch.mask_BT.any()):
        return ""
    row, k = int(batch.mask_BT.sum(1).argmax()), teacher_BTK.shape[-1]
    # of two teachers one may have prompts of its own, and the micro-batch then has these rows too
    own = micro if term.teacher.prompt is None else micro.teacher_batch or micro
    model = term.teacher.model or trainer.model
    inside_M = batch.mask_BT[row, : int(micro.completion_len_B[row])]
    vocabulary = int(trainer.model.config.get_text_config().vocab_size)
    plain_MV = plain_distributions(trainer, model, own, row)[inside_M]
    best = plain_MV[:, :vocabulary].topk(k)
    found_MK = teacher_BTK[row][batch.mask_BT[row]].double()
    weight_MK = best.values.exp() / best.values.exp().sum(-1, keepdim=True)
    apart = float((weight_MK * (found_MK - best.values).abs().clamp(max=50)).sum(-1).mean())
    band = BANDS[compute_dtype(trainer)]
    if not apart <= band:
        return (
            f"the log-probs of its teacher's likeliest tokens are {apart:.3g} nats from those of a "
            f"plain pass of the teacher over one row (band: {band:g}): another temperature, other "
            "prompts, positions or rows"
        )
    slope = _slope(found_MK, best.values)
    if abs(slope - 1) > SLOPES[compute_dtype(trainer)]:
        return (
            f"the log-probs of its teacher's likeliest tokens rise {slope:.4g} times as fast as "
            "those of a plain pass of the teacher over one row (band: "
            f"{SLOPES[compute_dtype(trainer)]:g}): another temperature"
        )
    student_MK = student_BTK[row][batch.mask_BT[row]].detach().double().clamp(min=-50)
    policy_MV = plain_distributions(trainer, trainer.model, micro, row)[inside_M]
    due_MK = policy_MV.gather(-1, best.indices).clamp(min=-50)
    # tokens that are equally likely may have changed places
    apart = float((weight_MK * (student_MK - due_MK)).sum(-1).abs().mean())
    if not apart <= band:
        return (
            f"the policy's log-probs of the teacher's tokens are {apart:.3g} nats from those of a "
            f"plain pass of one row (band: {band:g})"
        )
    if term.teacher.model is not None and (
        what := follow(found_MK, best.values, policy_MV.gather(-1, best.indices))
    ):
        return what
    named = term.traits.teacher
    if term.teacher.model is not None and named is not None and named.model is not None:
        folder = local_path(named.model) if is_uri(named.model) else Path(named.model)
        files = ModelFiles(str(folder), section.model_copy(update={"revision": None}))
        if folder.is_dir() and (wrong := files.other_weights(term.teacher.model)):
            return (
                f"its teacher has not the weights of {named.model}: {len(wrong)} tensors differ, "
                f"such as {wrong[0]}: a teacher is frozen"
            )
    return ""


def _slope(found_MK: Tensor, due_MK: Tensor) -> float:
    """Return the slope of some log-probs on others, each position about its mean."""
    y, x = (one - one.mean(-1, keepdim=True) for one in (found_MK.clamp(min=-50), due_MK))
    spread = float((x * x).sum())
    return float((x * y).sum()) / spread if spread > 1 else 1.0
