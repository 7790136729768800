"""Whether the gradient behind the log-probs is theirs: head, temperature, model.

The guard ``loss`` knows which gradient has to arrive at the log-probs. What becomes of it from
there on is compared with the gradient of one row in a plain pass of the model: for the last trained
tensors before the head, which costs a backward pass through the head alone, and at first, where
there is memory for it, for the head, the embedding and the first trained tensors as well.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.differences import larger
from rlvr_core.builtin.invariants.fingerprints import is_sharded
from rlvr_core.builtin.invariants.plain_pass import drops, plain_scores

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import LossBatch, MicroBatch
    from rlvr_core.builtin.invariants.check import Trainer

BANDS = {torch.float32: 0.01, torch.float16: 0.05, torch.bfloat16: 0.15}
"""Largest distance of the two gradients, as a share of the plain one."""

UNSURE = 0.5
"""Sum of 1 - p over the tokens of a row from which its gradient is no mere rounding."""

TENSORS = 2
"""Trained tensors at each end of the model that are compared."""

FLAT = 0.1
"""Share of the gradient of the log-probs below which that of the entropies is mostly rounding."""

SMALL = 0.1
"""Nats of entropy that are mostly rounding."""

WIDER = 2.0
"""Band of what lies at the ends of the model, as a multiple: more is rounded on the way there."""


class _Aside:
    """Whether a gradient is computed that is no part of the update; hooks on tensors see it too."""

    active = False


ASIDE = _Aside()


def gradient_error(
    trainer: Trainer, micro: MicroBatch, batch: LossBatch, *, ends: bool, entropy: bool = False
) -> tuple[float, str]:
    """Compare the gradient of a row's log-probs with that of a plain pass.

    Args:
        trainer: The policy's trainer.
        micro: The rows of the forward pass.
        batch: What the loss was given, with the graph.
        ends: Whether head, embedding and first tensors are compared too.
        entropy: Whether the gradient of the row's entropies is compared too.

    Returns:
        The distance as a share of the plain gradient, NaN where nothing can be compared, and what
        is wrong, empty if nothing is.
    """
    model, logp_BT = trainer.model, batch.logp_BT
    parts = _parts(model, ends=ends)
    if trainer.train.context_parallel > 1:  # of split rows each process has a part: ``split_rows``
        return float("nan"), ""
    # a compiled backward pass runs once, and with dropout two passes are two functions
    if not parts or not logp_BT.requires_grad or trainer.train.compile or drops(model):
        return float("nan"), ""
    unsure_B = (-torch.expm1(logp_BT.detach()) * batch.mask_BT).sum(1)
    row = int(unsure_B.argmax())
    if not float(unsure_B[row]) >= UNSURE:
        return float("nan"), ""
    inside_T = batch.mask_BT[row]
    totals = {"log-probs": logp_BT[row][inside_T].sum()}
    if entropy and batch.entropy_BT is not None and batch.entropy_BT.requires_grad:
        totals["entropies"] = batch.entropy_BT[row][inside_T].sum()
    tensors = [one for part in parts.values() for one in part]
    ASIDE.active = True
    try:
        try:
            found = {
                name: _gradient(one, tensors, retain_graph=True) for name, one in totals.items()
            }
        except RuntimeError as freed:
            if "second time" not in str(freed):
                raise
            return float("nan"), ""  # a loss has freed the graph: its backward pass says whose
        with torch.enable_grad():
            scores = plain_scores(trainer, model, micro, row, batch.mask_BT)
        if what := _other_entropies(batch, row, scores[1].detach(), compute_dtype(trainer)):
            return float("nan"), what
        again = dict(zip(("log-probs", "entropies"), scores, strict=True))
        plain = {name: _gradient(again[name].sum(), tensors, retain_graph=True) for name in totals}
    finally:
        ASIDE.active = False
    dtype = compute_dtype(trainer)
    band = BANDS[dtype] * (5 if dtype == torch.float32 and logp_BT.device.type != "cpu" else 1)
    worst = float("nan")
    for of in totals:
        at = 0
        for name, part in parts.items():
            here = slice(at, at := at + len(part))
            if of == "entropies" and _size(plain[of][here]) < FLAT * _size(
                plain["log-probs"][here]
            ):
                continue
            error, slope = _distance(found[of][here], plain[of][here])
            width = band * (WIDER if name else 1.0) * (WIDER if of == "entropies" else 1.0)
            worst = larger(worst, error)
            if error > width and of == "log-probs" and dtype != torch.float32:
                # of a row of which the model is nearly sure, rounding may be most of the gradient
                width += _rounding(trainer, micro, row, batch.mask_BT, part, plain[of][here])
            if error > width:
                return error, (
                    f"the gradient of the {of} behind the loss is not theirs"
                    f"{f', at {name}' if name else ''}: it is {slope:.3g} times that of a plain "
                    f"pass of the same row, and {error:.2g} of it apart (band {width:.3g})"
                )
    return worst, ""


def _rounding(
    trainer: Trainer,
    micro: MicroBatch,
    row: int,
    mask_BT: Tensor,
    part: list[Tensor],
    plain: tuple[Tensor | None, ...],
) -> float:
    """Return how far a plain gradient is from that of a pass in float32, as a share of it.

    0 where there is no memory for the weights in float32, or no pass with them.
    """
    model: Any = trainer.model
    weights = dict(model.named_parameters())
    if not _room_for([*weights.values()]):
        return 0.0
    exact = {
        name: one if one.requires_grad else one.detach().float() for name, one in weights.items()
    }
    prompt = int(micro.prompt_of_row_B[row])
    n, m = int(micro.prompt_len_S[prompt]), int(micro.completion_len_B[row])
    ids_M = micro.completion_ids_BT[row, :m]
    ids_L = torch.cat([micro.prompt_ids_SP[prompt, :n], ids_M])
    given = {"input_ids": ids_L[None], "use_cache": False}
    ASIDE.active = True
    try:
        with torch.enable_grad(), torch.autocast(ids_L.device.type, enabled=False):
            logits_MV = torch.func.functional_call(model, exact, kwargs=given).logits[0, n - 1 : -1]
            logp_MV = (logits_MV.double() / trainer.temperature).log_softmax(-1)
            logp_M = logp_MV.gather(-1, ids_M[:, None])[:, 0]
            found = _gradient(logp_M[mask_BT[row, :m]].sum(), part)
    except RuntimeError:  # a model that computes in one precision only
        return 0.0
    finally:
        ASIDE.active = False
    error, _ = _distance(found, plain)
    return 0.0 if math.isnan(error) else error


def _other_entropies(batch: LossBatch, row: int, plain_M: Tensor, dtype: torch.dtype) -> str:
    """Say whether a row's entropies are others than those of its distributions."""
    if batch.entropy_BT is None:
        return ""
    found_M = batch.entropy_BT[row][batch.mask_BT[row]].detach().double()
    apart, size = float((found_M - plain_M).abs().mean()), float(plain_M.mean())
    band = BANDS[dtype] * (size + SMALL)
    if apart <= band:
        return ""
    return (
        f"the entropies of the policy, of which entropy/mean is reported, differ by {apart:.3g} "
        f"nats in the mean from those of a plain pass of one row, whose mean is {size:.3g} (band "
        f"{band:.2g}): they are another figure, such as the surprise of the sampled token, or in "
        "another unit, or at another temperature"
    )


def _size(gradient: tuple[Tensor | None, ...]) -> float:
    squares = [float(one.double().square().sum()) for one in gradient if one is not None]
    return math.sqrt(sum(squares))


def _distance(
    found: tuple[Tensor | None, ...], plain: tuple[Tensor | None, ...]
) -> tuple[float, float]:
    """Return how far a gradient is from the plain one, as a share of it, and how long along it.

    A tensor that has none counts as 0, and NaN comes back where the plain pass has none.
    """
    pairs = [
        (torch.zeros_like(due) if one is None else one, due)
        for one, due in zip(found, plain, strict=True)
        if due is not None
    ]
    squares = sum(float(due.double().square().sum()) for _, due in pairs)
    if not squares > 0:
        return float("nan"), float("nan")
    apart = sum(float((one - due).double().square().sum()) for one, due in pairs)
    along = sum(float((one.double() * due.double()).sum()) for one, due in pairs)
    return (apart / squares) ** 0.5, along / squares


def _parts(model: Any, *, ends: bool) -> dict[str, list[Tensor]]:
    """Return what is compared, by where it lies: "" for the last trained tensors of the layers."""
    trained = {id(one): one for one in model.parameters() if one.requires_grad}
    if any(map(is_sharded, trained.values())):
        return {}  # other processes would have to compute along
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    of_ends = {
        id(one): one
        for end in (embedding, head)
        if end is not None
        for one in end.parameters()
        if id(one) in trained
    }
    layers = [one for key, one in trained.items() if key not in of_ends]
    parts = {"": layers[-TENSORS:]}
    if ends and _room_for([*of_ends.values(), *layers[:TENSORS]]):
        parts |= {
            "the embedding and the head": list(of_ends.values()),
            "the first trained tensors": layers[:TENSORS],
        }
    return {name: part for name, part in parts.items() if part}


def _room_for(tensors: list[Tensor]) -> bool:
    """Whether two gradients of these, and their products, surely fit into the device's memory."""
    if not tensors or tensors[0].device.type != "cuda":
        return bool(tensors)
    free, _ = torch.cuda.mem_get_info(tensors[0].device)
    return free > 8 * 4 * sum(one.numel() for one in tensors)


def _gradient(
    total: Tensor, tensors: list[Tensor], *, retain_graph: bool = False
) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(total, tensors, retain_graph=retain_graph, allow_unused=True)
