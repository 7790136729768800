"""Invariant ``loss``: a built-in loss and its gradient are those of its formula.

From what a loss was given (log-probs, advantages, mask, denominators of the update) its value and
the gradient that must arrive at the log-probs are computed again in float64, in the first updates
of a run for every micro-batch, later for one of each update. So is what must arrive at the
entropies and at the log-probs of a teacher's tokens. Of losses of plugins only what every loss has
promised is held (``loss_contract``), and a gradient that one of these has a part in is not judged.
A loss on given answers is followed into the sum alone
(``weighted_sum``).
Behind the log-probs ``gradient_error`` goes on, for one row of an update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants import split_rows
from rlvr_core.builtin.invariants.backward import gradient_error
from rlvr_core.builtin.invariants.check import Invariant, Seen, StepView
from rlvr_core.builtin.invariants.differences import compare, described, larger
from rlvr_core.builtin.invariants.entropy_choice import Choice, choices, wrong_choice
from rlvr_core.builtin.invariants.entropy_control import EntropyControl, Sums
from rlvr_core.builtin.invariants.loss_contract import broken_contract
from rlvr_core.builtin.invariants.loss_oracles import Expected, expected, known
from rlvr_core.builtin.invariants.old_logprobs import OldLogprobs
from rlvr_core.builtin.invariants.older_weights import OlderWeights
from rlvr_core.builtin.invariants.other_gradients import (
    Distilled,
    distilled,
    distils,
    wrong_entropy_gradient,
    wrong_student_gradient,
)

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Json, LossBatch, LossComputed
    from rlvr_core.api.services import RunConfig
    from rlvr_core.builtin.invariants.check import Trainer
    from rlvr_core.builtin.invariants.teachers import Teachers
    from rlvr_core.builtin.invariants.weighted_sum import WeightedSum

FIRST = 8
"""Updates of a run of which every micro-batch is checked."""

ENDS = 2
"""Updates of which a gradient is followed through all of the model."""

EVERY = 50
"""After ``FIRST``, updates from one to the next of which a gradient is followed into the model."""

ROUNDING = 1e-4
"""Share of the terms of a loss that is rounding in float32."""

ON_ANSWERS = ("sft",)
"""Losses of ours on given answers."""

TINY = 1e-30
"""What float32 may flush to 0."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a process found in an update: the largest error in bands, and what is wrong."""

    worst: float = math.nan
    what: str = ""
    choices: dict[str, Choice] = field(default_factory=dict)
    entropies: Sums = field(default_factory=dict)


class LossValues(Invariant):
    """Losses are what the config says.

    Args:
        config: The run's configuration; without it options are not compared.
    """

    id, phase = "loss", "before each update"
    reports = (
        Metric(
            "loss/error",
            "Largest difference of a loss, or of its gradient with respect to a log-prob, from "
            "its formula, as a share of what it is made of; the band for rounding is 1e-4.",
            "share",
        ),
        Metric(
            "loss/backward",
            "Distance of the gradient behind the log-probs from that of a plain pass of one row.",
            "share",
        ),
    )

    def __init__(self, config: RunConfig | None = None) -> None:
        self._config = config
        lora = None if config is None else config.model.lora
        self._dropout = lora is not None and lora.dropout > 0
        self._updates = 0
        self._error = self._backward = math.nan
        self._behind: tuple[int, str] | None = None
        self._control = EntropyControl()
        self._old, self._older = OldLogprobs(), OlderWeights()
        self._sum: WeightedSum | None = None
        self._teachers: Teachers | None = None
        self._compared = False

    def begin(self, view: StepView) -> None:
        """Forget the step before."""
        self._error = self._backward = math.nan
        self._old.begin()
        self._older.begin()
        if self._config is not None and (what := _other_options(view.trainer, self._config)):
            raise self.fault(
                view.step,
                what,
                "look at what makes the loss of its options, and, after a resumption, at what has "
                "changed since",
            )

        self._split(view)

    def _split(self, view: StepView) -> None:
        """Where processes split rows, compare the gradient of some with that of whole ones."""
        size = view.trainer.train.context_parallel
        if size == 1 or (self._compared and view.step % split_rows.EVERY):
            return
        self._compared = True
        error, what = split_rows.split_fault(view.trainer, view.groups)
        self._backward = larger(self._backward, error)
        if what:
            raise self.fault(
                view.step,
                what,
                "look at what the processes of a group exchange: keys and values and their "
                "gradients, which are sums, and log-probs",
                f"set train.context_parallel: 1 to train without it (it is {size})",
            )

    def computed(self, view: StepView, event: LossComputed) -> None:
        """Follow the gradient of the first micro-batch of an update into the model."""
        due = self._updates < FIRST or self._updates % EVERY == 0
        if not due or (self._behind is not None and self._behind[0] == self._updates):
            return
        micro_batch, batch = event.micro_batch, event.losses[0][1]
        ends = self._updates < ENDS
        bonus = any(map(_rewards_entropy, event.losses))
        error, what = gradient_error(view.trainer, micro_batch, batch, ends=ends, entropy=bonus)
        taught = self._config is not None and any(distils(one) for one, _, _ in event.losses)
        if not what and taught and self._config is not None:
            # most runs have no teacher
            if self._teachers is None:
                from rlvr_core.builtin.invariants.teachers import Teachers

                self._teachers = Teachers(self._config.model)
            what = self._teachers.wrong(view.trainer, event)
        self._behind = self._updates, what
        self._backward = larger(self._backward, error)

    def given(self, view: StepView, event: LossComputed) -> None:
        """Follow a loss on given answers into the sum."""
        if self._sum is None:
            # most runs have no such loss
            from rlvr_core.builtin.invariants.weighted_sum import WeightedSum

            self._sum = WeightedSum()
        self._sum.given(view.trainer, event)

    def share(self, view: StepView) -> Found:
        """Compute the losses of this process's micro-batches again."""
        found = self._recomputed(view)
        scale = float(view.trainer.optimizer.scaler.get_scale())
        if self._sum is not None and (what := self._sum.wrong(scale)):
            found = replace(found, what=found.what or what)
        if what := self._old.wrong(view) or self._older.wrong(view) or self._broken(view):
            found = replace(found, what=found.what or what)
        return replace(found, choices=choices(view.seen), entropies=self._control.sums(view))

    def _broken(self, view: StepView) -> str:
        """Say what a loss without a formula breaks of what every loss has promised."""
        if self._updates >= ENDS or not view.seen:
            return ""
        of_term = {id(term.loss): term for term in view.trainer.objective.terms}
        for place, (loss, _, _) in enumerate(view.seen[0].losses):
            term = of_term.get(id(loss))
            if term is None or known(loss) or distils(loss):
                continue
            if what := broken_contract(term.name, loss, view.seen, place):
                return what
        return ""

    def _recomputed(self, view: StepView) -> Found:
        seen = view.seen
        if self._updates >= FIRST and seen:
            seen = [seen[self._updates % len(seen)]]
        worst = math.nan
        if self._behind is not None and self._behind[1]:
            return Found(worst, self._behind[1])
        for number, one in enumerate(seen):
            found = self._check(view, one)
            worst = larger(worst, found.worst)
            if found.what:
                return Found(worst, f"micro-batch {number + 1} of {len(seen)}: {found.what}")
        return Found(worst)

    def judge(self, view: StepView, shares: Sequence[Found]) -> None:
        """Raise what any process found."""
        self._updates += 1
        for one in shares:
            self._error = larger(self._error, one.worst)
        what = next((one.what for one in shares if one.what), "")
        what = what or wrong_choice((one.choices for one in shares), dropout=self._dropout)
        what = what or self._control.wrong(view, [one.entropies for one in shares])
        if what:
            raise self.fault(
                view.step,
                what,
                "look at what differs from the loss's options in the config: ratio and clip, "
                "importance weights, KL term, entropy bonus, tokens of high entropy, denominators "
                "of the whole update, weights of the losses in their sum, and at whatever "
                "multiplies the loss, the log-probs or their temperature, or stops a gradient",
            )

    def _check(self, view: StepView, seen: Seen) -> Found:
        of_term = {id(term.loss): term for term in view.trainer.objective.terms}
        total_BT, size_BT = torch.zeros_like(seen.batch.logp_BT).double(), None
        sure_BT = torch.ones_like(seen.batch.mask_BT)
        worst, whole, slopes = math.nan, True, list[float]()
        scale = float(view.trainer.optimizer.scaler.get_scale())
        for place, (loss, batch, output) in enumerate(seen.losses):
            term = of_term.get(id(loss))
            if term is not None and distils(loss):
                found = _distillation(seen, place, term, scale)
                if found.what:
                    return found
                worst = larger(worst, found.worst)
                continue
            if term is None or not known(loss):
                whole = False
                continue
            should = expected(loss, batch, seen.normalizer)
            share_B1 = ROUNDING + should.rounding_B1
            if not bool(should.cliff_BT.any()):
                band = float(share_B1.amax() if len(share_B1) else ROUNDING) * should.size + TINY
                apart = abs(float(output.loss.detach()) - should.value) / band
                worst = apart if math.isnan(worst) else max(worst, apart)
                if not apart <= 1.0:
                    return Found(
                        apart, _value(term.name, float(output.loss.detach()), should, band)
                    )
            total_BT += term.weight * should.gradient_BT
            slopes.append(term.weight * should.entropy_slope)
            band_BT = abs(term.weight) * share_B1 * should.size_BT
            size_BT = band_BT if size_BT is None else size_BT + band_BT
            sure_BT &= ~should.edge_BT
        if not whole or size_BT is None or seen.gradient_BT is None:
            return Found(worst)
        rounding = ROUNDING * sum(map(abs, slopes))
        if what := wrong_entropy_gradient(seen, sum(slopes), rounding, scale):
            return Found(worst, what)
        return _gradient(seen.gradient_BT, scale, (total_BT, size_BT, sure_BT), worst)

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """Work out how the update steers a bonus of entropy."""
        self._control.updated(view, applied=applied)

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the largest error of the step's updates; raises ``RunError``."""
        if what := self._control.wrong_weight(view.trainer.entropy):
            raise self.fault(
                view.step, what, "look at what adjusts the bonus after an update (entropy_control)"
            )
        return {"loss/error": ROUNDING * self._error, "loss/backward": self._backward}

    def state_dict(self) -> dict[str, Json]:
        """Return how many updates there were, by which it is chosen what is checked."""
        return {"updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._updates = state["updates"]


def _other_options(trainer: Trainer, config: RunConfig) -> str:
    """Return which weight, or option of a built-in loss, is not the config's; empty if none is."""
    for term, ref in zip(trainer.objective.terms, config.losses.values(), strict=False):
        loss: Any = term.loss
        if ref.use.rpartition("/")[2] != term.name.partition("#")[0]:
            continue
        if term.weight != ref.weight:
            return (
                f"the loss {term.name} has weight {term.weight:g}, and the config makes it "
                f"{ref.weight:g}"
            )
        if term.name.partition("#")[0] in ON_ANSWERS and loss.traits.answers is None:
            return f"the loss {term.name} is one of given answers, and gets completions"
        if not known(loss):
            continue
        wanted = type(loss.options).model_validate(ref.with_)
        if differing := _other_field(loss.options, wanted):
            name, has, should = differing
            return f"the loss {term.name} has {name} {has}, and the config makes it {should}"
        if state := _other_state(loss, type(loss)(wanted)):
            return f"the loss {term.name} does not work with its options: {state}"
    return ""


def _other_field(options: BaseModel, wanted: BaseModel) -> tuple[str, Any, Any] | None:
    """Return the first option that is not as wanted: name, what it is, what it should be."""
    for name in type(wanted).model_fields:
        has, should = getattr(options, name), getattr(wanted, name)
        if has != should:
            return name, has, should
    return None


def _other_state(loss: Any, made: Any) -> str:
    """Return what a loss keeps beside its options and does not keep when it is made of them."""
    for name, should in vars(made).items():
        has = vars(loss).get(name)
        if isinstance(should, BaseModel) and isinstance(has, BaseModel):
            if differing := _other_field(has, should):
                one, its, due = differing
                return f"it computes with {one} {its}, and they say {due}"
        elif isinstance(should, bool | int | float | str) and has != should:
            return f"its {name.strip('_')} is {has}, and they make it {should}"
    return "" if loss.traits == made.traits else "its traits are not those that follow from them"


def _rewards_entropy(given: tuple[Any, LossBatch, Any]) -> bool:
    """Whether a loss of ours has an entropy bonus in this micro-batch."""
    loss, batch, _ = given
    if not known(loss):
        return False
    steered = loss.options.entropy_control is not None
    return bool(batch.entropy_bonus if steered else loss.options.entropy_bonus)


def _distillation(seen: Seen, place: int, term: Any, scale: float) -> Found:
    """Compare value and gradient of a distillation with its formula."""
    loss, batch, output = seen.losses[place]
    should = distilled(loss, batch, seen.normalizer)
    if should is None:
        return Found()
    band = ROUNDING * should.size + TINY
    apart = abs(float(output.loss.detach()) - should.value) / band
    if not apart <= 1.0:
        return Found(apart, _value(term.name, float(output.loss.detach()), should, band))
    if seen.gradient_BT is None and place not in seen.student_gradients:
        return Found(apart)
    arrived = seen.student_gradients.get(place)
    return Found(apart, wrong_student_gradient(arrived, should, term.weight, ROUNDING, scale))


def _value(name: str, found: float, should: Expected | Distilled, band: float) -> str:
    times = f", {found / should.value:.4g} times that" if should.value else ""
    return (
        f"loss {name} is {found:.6g}, and its formula gives {should.value:.6g} for what it was "
        f"given{times} (band: {band:.2g})"
    )


def _gradient(
    found_BT: Tensor, scale: float, should: tuple[Tensor, Tensor, Tensor], worst: float
) -> Found:
    """Compare the gradient that arrived at the log-probs, the loss scale of float16 taken off."""
    total_BT, size_BT, sure_BT = should
    rounding = 4 * torch.finfo(found_BT.dtype).eps if found_BT.dtype != torch.float32 else 0.0
    gradient_BT = found_BT.double() / scale
    if not bool(torch.isfinite(gradient_BT).all()):
        return Found(worst)  # an update that will be skipped
    band_BT = size_BT + rounding * total_BT.abs() + TINY
    parts = [one[sure_BT].cpu() for one in (gradient_BT, total_BT, band_BT)]
    wrong = compare(parts[0], parts[1], parts[2], share=0.0)
    worst = wrong.worst if math.isnan(worst) else max(worst, wrong.worst)
    if not wrong.bad:
        return Found(worst)
    return Found(
        worst,
        "the gradient that arrives at the log-probs is not that of the loss's formula: "
        + described(wrong, "the formula"),
    )
