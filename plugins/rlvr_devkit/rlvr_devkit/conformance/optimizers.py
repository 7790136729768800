"""Promises of optimizers and learning rate schedules."""

from __future__ import annotations

import copy
import math
from typing import Any

from rlvr_core.api import TrainedParameter
from rlvr_devkit.conformance.subject import Check, Subject, demand


def _optimized(subject: Subject, steps: int, saved: Any = None) -> tuple[Any, Any]:
    """Return weights and state after updates towards 0, starting from ``saved`` ones if given."""
    import torch

    generator = torch.Generator().manual_seed(5)
    tensors = [torch.nn.Parameter(torch.randn(8, 8, generator=generator))]
    tensors.append(torch.nn.Parameter(torch.randn(8, generator=generator)))
    parameters = [TrainedParameter(f"w{t.ndim}", t, hidden_matrix=t.ndim == 2) for t in tensors]
    optimizer = subject.build().build(parameters, 0.01)
    if saved is not None:
        with torch.no_grad():
            for tensor, value in zip(tensors, saved[0], strict=True):
                tensor.copy_(value)
        for tensor, state in zip(tensors, saved[1], strict=True):
            optimizer.state[tensor].update(copy.deepcopy(state))
    for _ in range(steps):
        for tensor in tensors:
            tensor.grad = tensor.detach().clone()
        optimizer.step()
    return [t.detach().clone() for t in tensors], [dict(optimizer.state[t]) for t in tensors]


def optimizer_descends(subject: Subject) -> None:
    """Check that updates go against the gradient, in every parameter."""
    start, end = _optimized(subject, 0)[0], _optimized(subject, 3)[0]
    for before, after in zip(start, end, strict=True):
        demand(bool(after.isfinite().all()), "an update made a weight infinite or NaN")
        went = (before * (after - before)).sum().item()
        demand(went < 0, f"a parameter of shape {tuple(before.shape)} does not follow -gradient")


def optimizer_resumes(subject: Subject) -> None:
    """Check that ``state[parameter]`` is all an optimizer needs to continue exactly."""
    import torch

    whole = _optimized(subject, 4)[0]
    weights, state = _optimized(subject, 2)
    for entries in state:
        for name, value in entries.items():
            storable = isinstance(value, torch.Tensor | int)
            demand(
                storable, f"state '{name}' is a {type(value).__name__}: keep tensors and integers"
            )
    resumed = _optimized(subject, 2, (weights, state))[0]
    for weight, other in zip(whole, resumed, strict=True):
        demand(
            torch.equal(weight, other),
            "4 updates differ from 2, a resume, and 2: keep everything in state[parameter]",
        )


def schedule_is_a_share(subject: Subject) -> None:
    """Check that a schedule begins at 1 and stays finite and within [0, 1]."""
    schedule = subject.build()
    shares = [float(schedule(step / 20)) for step in range(21)]
    demand(math.isclose(shares[0], 1.0), f"at progress 0 the share is {shares[0]}: begin at 1")
    inside = all(0 <= share <= 1 for share in shares)
    demand(inside, f"shares of the peak are outside [0, 1]: {shares}")
    again = [float(schedule(step / 20)) for step in reversed(range(21))]
    demand(again[::-1] == shares, "a second call differs: a schedule is a function of progress")


OPTIMIZER_CHECKS: tuple[Check, ...] = (
    Check("descends", "updates go against the gradient", optimizer_descends),
    Check("resumes", "state[parameter] is all it needs to continue", optimizer_resumes),
)

SCHEDULE_CHECKS: tuple[Check, ...] = (
    Check("share", "a share of the peak from 1 on, a pure function", schedule_is_a_share),
)
