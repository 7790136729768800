"""Invariant ``optimizer``: an update does to the weights what its formula says.

Of a sample of elements of every tensor, in the first updates of a run and then in every
``AGAIN``-th: the gradient is the sum of what the micro-batches' backward passes brought, one update
is made of it, the moments follow from it and from those before, and the weights from the moments,
the learning rate and the decay of the config. Between two updates nothing changes.

Under FSDP gradients arrive in parts of other shapes: there the sum over micro-batches is not
checked. Under Muon three whole matrices are computed again, and the momentum of all. Of optimizers
without a formula here, ``core/adamw-8bit`` and those of plugins, the gradient alone is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.differences import compare, described, larger
from rlvr_core.builtin.invariants.fingerprints import local
from rlvr_core.builtin.invariants.formulas import ADAMW, MUON, kind_of
from rlvr_core.builtin.invariants.matrices import Matrices, wrong_kind
from rlvr_core.builtin.invariants.rates import rate_of
from rlvr_core.builtin.invariants.row_sums import RowSums, wrong_rows
from rlvr_core.builtin.invariants.samples import Arriving, Sample
from rlvr_core.builtin.invariants.update_check import (
    ROUNDING,
    TINY,
    Snapshot,
    Tensors,
    UpdateCheck,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rlvr_core.api import Json
    from rlvr_core.api.services import RunConfig

FIRST = 8
"""Updates of a run that are checked one after the other."""

NORM = 1e-3
"""Share of the gradient's norm that is rounding."""

AGAIN = 16
"""Later, one of so many is checked."""


class OptimizerUpdates(Invariant):
    """Updates are those of the optimizer's formula.

    Args:
        config: The run's configuration.
    """

    id, phase = "optimizer", "after each update"
    reports = (
        Metric(
            "optimizer/error",
            "Largest difference of a sampled weight, moment or gradient from its formula, as a "
            "share of what it is made of; the band for rounding is 1e-4.",
            "share",
        ),
    )

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._updates = 0
        self._sample: Sample | None = None
        self._arriving: Arriving | None = None
        self._rows: RowSums | None = None
        self._gradients: list[Tensor] = []
        self._absent: list[bool] = []
        self._norm = 0.0
        self._before: Snapshot | None = None
        self._after: Snapshot | None = None
        self._matrices: Matrices | None = None
        self._error = math.nan
        self._begun: dict[int, int] = {}
        """The first step, from 1, that began with sampled weights, by their digest."""

    def begin(self, view: StepView) -> None:
        """Listen to the gradients if the step's first update is one to check."""
        self._error = math.nan
        self._listen(view)

    def _listen(self, view: StepView) -> None:
        optimizer, parallel = view.trainer.optimizer, view.trainer.parallel
        due = self._updates < FIRST or self._updates % AGAIN == 0
        if self._arriving is not None:
            self._arriving.end()
        if self._rows is not None:
            self._rows.close()
        self._arriving, self._rows, self._before, self._matrices = None, None, None, None
        if not due:
            self._after = None
            return
        if self._sample is None:
            self._sample = Sample(optimizer.parameters)
        if parallel is None or not parallel.sharded:
            self._arriving = Arriving(self._sample, optimizer.parameters)
            self._rows = RowSums(view.trainer)
        self._before = self._snapshot(view)
        self._begun.setdefault(_digest(self._before), view.step + 1)
        if kind_of(optimizer.builder) == MUON:
            self._matrices = Matrices(optimizer, self._updates)

    def _snapshot(self, view: StepView) -> Snapshot:
        optimizer, sample = view.trainer.optimizer, self._sample
        assert sample is not None, "made before"
        states = [optimizer.inner.state.get(one, {}) for one in optimizer.parameters]
        if not kind_of(optimizer.builder):
            states = [{} for _ in states]
        steps = [float(one["step"]) if "step" in one else 0.0 for one in states]
        momentum = ["momentum" in one for one in states]
        return Snapshot(
            sample.take(optimizer.parameters),
            sample.take([one.get("exp_avg", one.get("momentum")) for one in states]),
            sample.take([one.get("exp_avg_sq") for one in states]),
            [math.nan if m else n for m, n in zip(momentum, steps, strict=True)],
        )

    # -- before the update -----------------------------------------------------------------------

    def share(self, view: StepView) -> tuple[Any, ...]:
        """Squares of the whole gradient, sampled sums of those that arrived, what has changed."""
        if self._before is None or self._sample is None:
            return 0.0, [], [], [], "", ({}, {})
        optimizer = view.trainer.optimizer
        gradients = [one.grad for one in optimizer.parameters]
        here = [local(one) for one in gradients if one is not None]
        norms = torch._foreach_norm([one for one in here if one.numel()]) if here else []
        squares = sum((float(one) ** 2 for one in norms), 0.0)
        self._gradients = self._sample.take(gradients)
        self._absent = [one is None for one in gradients]
        moved = self._untouched(view, self._after, self._before)
        moved = moved or self._untouched(view, self._before, self._snapshot(view))
        if self._arriving is None or self._rows is None:
            return squares, [], [], [], moved, ({}, {})
        arrived, self._arriving = self._arriving.end(), None
        return squares, *arrived, moved, self._rows.end()

    def _untouched(self, view: StepView, old: Snapshot | None, new: Snapshot | None) -> str:
        """Say what has changed although no update was made."""
        if old is None or new is None:
            return ""
        pairs = (
            ("the weights of", old.weights, new.weights),
            ("the optimizer's moments of", old.means, new.means),
            ("the optimizer's moments of", old.squares, new.squares),
        )
        for what, ours, theirs in pairs:
            for name, one, other in zip(view.trainer.optimizer.names, ours, theirs, strict=True):
                if not torch.equal(one, other):
                    began = self._begun.get(_digest(new)) if new.weights is theirs else None
                    again = f": they are again those that step {began} began with" if began else ""
                    return f"{what} {name} have changed between two updates{again}"
        return ""

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """Compare the gradient with the sum of what the backward passes brought."""
        if self._before is None:
            return
        moved = next((share[4] for share in shares if share[4]), "")
        if moved:
            raise self.fault(
                view.step,
                moved,
                "something writes into the trained tensors or the optimizer's state: an engine or "
                "a callback that shares their memory, an evaluation or a callback that puts a copy "
                "of older weights back, or a state that is made anew each step",
            )
        sharded = view.trainer.parallel is not None and view.trainer.parallel.sharded
        whole = (
            sum(share[0] for share in shares) if sharded else shares[view.trainer.ranks.index][0]
        )
        scale = float(view.trainer.optimizer.scaler.get_scale())
        self._norm = math.sqrt(whole) / scale
        if not sharded and math.isfinite(self._norm):
            self._check_sum(view, shares)
        self._gradients = [one / scale for one in self._gradients]

    def _check_sum(self, view: StepView, shares: Sequence[Any]) -> None:
        world = len(shares)
        names = view.trainer.optimizer.names
        for number, (name, found) in enumerate(zip(names, self._gradients, strict=True)):
            arrived = sum(share[1][number] for share in shares) / world
            band = ROUNDING * sum(share[2][number] for share in shares) / world + TINY
            wrong = compare(found, arrived, band)
            self._error = larger(self._error, wrong.worst)
            if not wrong.bad:
                continue
            last = sum(share[3][number] for share in shares) / world
            alone = not compare(found, last, band).bad
            raise self.fault(
                view.step,
                f"the gradient of {name} is not the sum of what the backward passes of this "
                f"update's {len(view.seen)} micro-batches brought: "
                + ("it is that of the last one alone" if alone else described(wrong, "the sum")),
                "gradients are overwritten between micro-batches: clear them once an update"
                if alone
                else "gradients of earlier updates were not cleared, or somebody writes into them",
            )

        own = view.trainer.ranks.index
        if what := wrong_rows([share[5] for share in shares], own, ROUNDING):
            raise self.fault(
                view.step,
                what,
                "somebody writes into gradients: an embedding that was told of its padding "
                "(padding_idx) keeps the row of that token, often the end of sequence, as it is",
            )

    # -- after the update ------------------------------------------------------------------------

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """Compare moments and weights with their formulas."""
        if self._before is not None:
            after = self._snapshot(view)
            if not applied:
                found = self._untouched(view, self._before, after)
                found = found and f"{found}, though this one was skipped"
            else:
                found = self._check(view, self._before, after)
            self._after = after
            found = found or self._other_norm(grad_norm)
            if not found and applied and self._rows is not None:
                found = self._stayed(view)
            everywhere = [one for one in view.trainer.ranks.gather(found) if one]
            if everywhere:
                what, _, remedy = everywhere[0].partition("\n")
                raise self.fault(view.step, what, remedy or "a skipped update changes nothing")
        self._updates += applied
        self._listen(view)

    def _check(self, view: StepView, before: Snapshot, after: Snapshot) -> str:
        """Say what is wrong with an applied update, and the remedy behind a line break."""
        optimizer = view.trainer.optimizer
        if not kind_of(optimizer.builder):
            return ""
        clip = view.trainer.train.max_grad_norm
        factor = 1.0 if clip is None else min(1.0, clip / (self._norm + 1e-6))
        rate = rate_of(self._config, optimizer.schedule, view.step)
        check = UpdateCheck(optimizer.builder.config, rate)
        found = ""
        for number, name in enumerate(optimizer.names):
            one = Tensors.of(number, name, before, after, factor * self._gradients[number])
            if not self._absent[number]:
                found = check.of(one)
            elif not torch.equal(one.weight, one.new_weight):
                found = f"{name} has moved without a gradient\nlook at what moves it"
            if found:
                break
        if not found and self._matrices is not None:
            found = wrong_kind(view.trainer.model, optimizer) or self._matrices.wrong(
                optimizer, rate
            )
        self._error = larger(self._error, check.worst)
        return found

    def _stayed(self, view: StepView) -> str:
        """Say which rows of tokens AdamW has left as they were."""
        optimizer = view.trainer.optimizer
        if self._rows is None or kind_of(optimizer.builder) != ADAMW:
            return ""
        return self._rows.still(rate_of(self._config, optimizer.schedule, view.step))

    def _other_norm(self, told: float) -> str:
        if not math.isfinite(self._norm) or not math.isfinite(told):
            return ""
        if abs(told - self._norm) <= NORM * self._norm + TINY:
            return ""
        return (
            f"the norm of the gradient is reported as {told:.6g}, and the gradients have "
            f"{self._norm:.6g} before clipping\nlook at which tensors the norm is of, and whether "
            "it is taken before clipping"
        )

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the largest error of the step's updates."""
        return {"optimizer/error": ROUNDING * self._error}

    def state_dict(self) -> dict[str, Json]:
        """Return how many updates there were, by which it is chosen what is checked."""
        return {"updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._updates = state["updates"]


def _digest(snapshot: Snapshot) -> int:
    return hash(tuple(value for one in snapshot.weights for value in one.flatten().tolist()))
