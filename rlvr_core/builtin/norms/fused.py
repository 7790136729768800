"""RMS norms of a model by torch's one kernel, where that gives what the model's own code gives.

transformers' own takes eight kernels forward and more backward, four times a layer of Qwen3. The
fused one rounds once where the model's own rounds twice. Which modules are such norms is not known
by their names: each kind is tried, output and both gradients, with random numbers. Dimensions: R
rows, N the size that is normalised.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlvr_core.api import DataReport

_ROWS = 24
_SCALES = (0.03, 1.0, 30.0)
"""Of the rows that a norm is tried with: the smallest show which epsilon it adds."""
_SUMS = 64
"""Roundings of float32 that a row's mean of squares and its root may be off, generously."""


@dataclass(frozen=True, slots=True)
class Form:
    """What distinguishes one RMS norm from another.

    Attributes:
        eps: What is added to the mean of squares.
        offset: What is added to the weight: 1 in Gemma's.
        narrow: Whether the output has the dtype of the input, not the wider of input and weight.
    """

    eps: float
    offset: float
    narrow: bool

    def __call__(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """The norm by torch's kernel, which wants input and weight in one dtype."""
        dtype = torch.promote_types(hidden.dtype, weight.dtype)
        if self.offset:  # 1 and a small weight are not to be rounded together
            dtype = torch.promote_types(dtype, torch.float32)
        weight = weight.to(dtype)
        if self.offset:
            weight = weight + self.offset
        # autocast would widen what a frozen model keeps in half precision
        with torch.autocast(hidden.device.type, enabled=False):
            out = F.rms_norm(hidden.to(dtype), weight.shape, weight, self.eps)
        return out.to(hidden.dtype) if self.narrow else out


def fuse_norms(model: nn.Module, dtype: torch.dtype, device: torch.device) -> Counter[str]:
    """Let the RMS norms of a model be computed by the fused kernel.

    Args:
        model: It; where its weights lie, and whether whole, does not matter.
        dtype: What is computed in.
        device: Where it is computed.

    Returns:
        How many modules of each class are fused.
    """
    known: dict[Any, Form | None] = {}
    fused: Counter[str] = Counter()
    for module in model.modules():
        size = _normalised(module)
        if size is None:
            continue
        if isinstance(module.forward, _Fused):  # of a model that has two parts in the run
            fused[type(module).__name__] += 1
            continue
        kind = (type(module), size, *sorted(_numbers(module).items()))
        if kind not in known:
            known[kind] = form_of(module, size, dtype, device)
        if (form := known[kind]) is not None:
            module.forward = _Fused(module, form)
            fused[type(module).__name__] += 1
    return fused


class _Fused:
    """Takes the place of a norm's ``forward``; a copy of the norm has one of its own."""

    def __init__(self, module: nn.Module, form: Form) -> None:
        self.module, self.form = module, form

    def __call__(self, hidden: Tensor) -> Tensor:
        (name,) = self.module._parameters
        return self.form(hidden, getattr(self.module, name))


def _normalised(module: nn.Module) -> int | None:
    """Size of the one weight of a module that has nothing else; None of any other."""
    own = list(module._parameters.values())
    if len(own) != 1 or own[0] is None or module._buffers or module._modules:
        return None
    return len(own[0]) if own[0].ndim == 1 and own[0].is_floating_point() else None


def _numbers(module: nn.Module) -> dict[str, float]:
    return {name: value for name, value in vars(module).items() if isinstance(value, float)}


def form_of(module: nn.Module, size: int, dtype: torch.dtype, device: torch.device) -> Form | None:
    """The fused norm that gives a module's output and gradients in every mix of dtypes; or None."""
    own, (name,) = copy.copy(module), module._parameters

    def plain(hidden_RN: Tensor, weight_N: Tensor) -> Any:
        vars(own)["_parameters"] = {name: weight_N}
        return own(hidden_RN)

    dtypes = dict.fromkeys((torch.float32, dtype))
    cases = [_Case.of(size, device, *pair) for pair in itertools.product(dtypes, repeat=2)]
    try:
        expected = [case.run(plain) for case in cases]
    except Exception:  # a module's own code may fail in any way on what it is not made for
        return None
    for eps in dict.fromkeys(_numbers(module).values()):
        for offset, narrow in itertools.product((0.0, 1.0), (False, True)):
            form = Form(eps, offset, narrow)
            pairs = zip(cases, expected, strict=True)
            try:
                same = all(case.agrees(case.run(form), theirs, form) for case, theirs in pairs)
            except RuntimeError:  # this torch has no such kernel for this card
                return None
            if same:
                return form
    return None


@dataclass(frozen=True, slots=True)
class _Case:
    """What a norm is tried with: input, weight, and the gradient of the output."""

    hidden_RN: Tensor
    weight_N: Tensor
    grad_RN: Tensor

    @classmethod
    def of(
        cls, size: int, device: torch.device, dtype: torch.dtype, weight_dtype: torch.dtype
    ) -> _Case:
        """Random numbers, the same each time; no mean is 0, and rows are of three scales."""
        draw = torch.Generator().manual_seed(0)
        scale_R = torch.tensor(_SCALES).repeat(_ROWS // len(_SCALES))
        hidden_RN = scale_R[:, None] * (0.3 + torch.randn(_ROWS, size, generator=draw))
        weight_N = 0.5 + torch.rand(size, generator=draw)
        grad_RN = torch.randn(_ROWS, size, generator=draw)
        return cls(
            hidden_RN.to(device, dtype), weight_N.to(device, weight_dtype), grad_RN.to(device)
        )

    def run(self, norm: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Output and gradients of input and weight."""
        given = [one.clone().requires_grad_() for one in (self.hidden_RN, self.weight_N)]
        with torch.enable_grad():
            out_RN = norm(*given)
            by_x_RN, by_w_N = torch.autograd.grad(out_RN, given, self.grad_RN.to(out_RN.dtype))
        return out_RN.detach(), by_x_RN, by_w_N

    def agrees(self, ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], form: Form) -> bool:
        """Whether two norms differ by no more than roundings.

        Each of the two may round what it normalised to the input's dtype and its output, or the
        gradient there, to the output's; all else is float32. An error of the gradient before the
        projection that a norm's derivative is does not grow in it.
        """
        if any(a.dtype != b.dtype or a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
            return False
        x_RN, w_N, grad_RN = (
            one.float() for one in (self.hidden_RN, self.weight_N + form.offset, self.grad_RN)
        )
        rstd_R1 = (x_RN.square().mean(-1, keepdim=True) + form.eps).rsqrt()
        dtypes = (self.hidden_RN.dtype, self.weight_N.dtype, ours[0].dtype)
        bound = 2 * (sum(map(_unit, dtypes)) + _SUMS * _unit(torch.float32))
        least = sum(map(_least, dtypes))
        out_RN, by_x_RN, by_w_N = (
            (a.float() - b.float()).abs() for a, b in zip(ours, theirs, strict=True)
        )
        normed_RN = (x_RN * rstd_R1).abs()
        good = (
            (out_RN <= bound * normed_RN * w_N.abs() + least * (1 + w_N.abs())).all(),
            (by_x_RN.norm(dim=-1) <= bound * (rstd_R1 * grad_RN * w_N).norm(dim=-1)).all(),
            (by_w_N <= bound * (normed_RN * grad_RN.abs()).sum(0)).all(),
        )
        return all(map(bool, good))


def _unit(dtype: torch.dtype) -> float:
    """The most that a rounding changes a number, as a share of it."""
    return torch.finfo(dtype).eps / 2


def _least(dtype: torch.dtype) -> float:
    """The most that it changes one that is too small for that."""
    return torch.finfo(dtype).tiny * _unit(dtype)


def fused_norms(trainer: Any) -> DataReport:
    """The service ``core/fused-norms``: fuse the norms of all models of a trainer.

    Layers that are compiled are left alone: their norms are fused with what stands around them.

    Args:
        trainer: The policy's trainer; its models lie where they are computed.

    Returns:
        What to say, and what ``run.json`` keeps under ``norms``: by model and class, how many.
    """
    dtype, device = trainer.precision.compute, trainer.model.device
    models = {} if trainer.compiled else {"policy": trainer.model}
    reference = trainer.reference and trainer.reference.own_model
    if reference is not None:
        models["reference"] = reference
    for number, teacher in enumerate(trainer.objective.teachers):
        models[f"teacher {number + 1}"] = teacher
    fused = {name: fuse_norms(model, dtype, device) for name, model in models.items()}
    said = ", ".join(f"{counts.total() or 'none'} of the {name}" for name, counts in fused.items())
    lines = (f"RMS norms by torch's fused kernel: {said}",) if fused else ()
    return DataReport("norms", {name: dict(counts) for name, counts in fused.items()}, lines)
