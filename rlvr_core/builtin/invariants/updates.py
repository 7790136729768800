"""Invariant ``updates``: every trained tensor gets a gradient and moves, by the config's settings.

A tensor is watched from the first update of a process until it has moved, and again every
``AGAIN`` updates; a few elements are compared at every update. Under LoRA a matrix may wait for the
others: at first one of the two has no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.fingerprints import checksums, local, sampled
from rlvr_core.builtin.invariants.rates import rate_of, wrong_option, wrong_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rlvr_core.api import Json
    from rlvr_core.api.services import RunConfig

PATIENCE = 3
"""Applied updates that a tensor may miss."""

AGAIN = 100
"""Updates after which every tensor is watched anew."""

WATCHED = 8
"""Matrices of which a sample is compared at every update."""


class Updates(Invariant):
    """Trained tensors move.

    Args:
        config: The run's configuration.
    """

    id, phase = "updates", "after each update"
    reports = (
        Metric(
            "updates/at_rest",
            "Applied updates in a row that moved no element of a sample of the weights.",
            "updates",
        ),
    )

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._whole = config.model.lora is None
        self._steps = config.train.steps
        self._updates = 0
        self._pending: dict[str, Tensor] = {}
        self._before: list[int] = []
        self._without: dict[str, int] = {}
        self._largest: dict[str, float] = {}
        self._sample: tuple[list[Tensor], int] = ([], 0)
        self._at_rest = 0
        self._watching = False

    def begin(self, view: StepView) -> None:
        """Compare the trainer's settings, and start to watch all tensors when it is time."""
        self._check_settings(view)
        if self._updates % AGAIN == 0 and not self._watching:
            self._watch(view)

    def _check_settings(self, view: StepView) -> None:
        """Raise if the trainer goes by other settings than the config's."""
        trainer, due = view.trainer, {"sampling.temperature": self._config.sampling.temperature}
        found = {"sampling.temperature": trainer.temperature}
        if trainer.train != self._config.train:
            for name, value in self._config.train:
                due[f"train.{name}"] = value
                found[f"train.{name}"] = getattr(trainer.train, name)
        for name, value in due.items():
            if found[name] != value:
                raise self.fault(
                    view.step,
                    f"the trainer goes by {name} {found[name]}, and the config has {value}",
                    "look at what changes settings while a run is set up or resumed",
                )

        if what := wrong_option(trainer.optimizer):
            raise self.fault(
                view.step,
                f"of the optimizer {type(trainer.optimizer.inner).__name__} {what}",
                "look at what builds the optimizer, and at the defaults of its library",
            )

    def _watch(self, view: StepView) -> None:
        named = dict(view.trainer.model.named_parameters())
        trained = {name: one for name, one in named.items() if one.requires_grad}
        known = {id(one) for one in view.trainer.optimizer.parameters}
        lost = [name for name, one in trained.items() if id(one) not in known]
        frozen = [
            name
            for name, one in named.items()
            if self._whole and not one.requires_grad and one.is_floating_point()
        ]
        for names, what in ((lost, "is not the optimizer's"), (frozen, "takes no gradient")):
            if names:
                raise self.fault(
                    view.step,
                    f"{len(names)} of {len(named)} tensors will not be trained: {names[0]} {what}",
                    "the optimizer must be made of the model's own parameters, all of which "
                    "require a gradient unless LoRA is on",
                )
        self._pending, self._watching = trained, True
        self._without = dict.fromkeys(trained, 0)
        self._before = checksums(trained.values())
        matrices = [one for one in trained.values() if one.ndim >= 2] or list(trained.values())
        self._sample = (matrices[:: max(1, len(matrices) // WATCHED)][:WATCHED], 0)

    def share(self, view: StepView) -> dict[str, float]:
        """Largest gradient of each tensor that has not moved yet."""
        self._sample = (self._sample[0], sampled(self._sample[0]))
        names = list(self._pending)
        largest = [
            0.0 if one.grad is None or not one.numel() else local(one.grad).abs().amax()
            for one in self._pending.values()
        ]
        return {name: float(value) for name, value in zip(names, largest, strict=True)}

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """Take the largest gradient over all processes."""
        self._largest = {
            name: max(share.get(name, 0.0) for share in shares) for name in self._pending
        }

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """See ``Invariant.updated``."""
        self._check_rate(view)
        if not applied or not grad_norm > 0 or not math.isfinite(grad_norm):
            return
        self._updates += 1
        rate = view.trainer.optimizer.learning_rate(view.step)
        self._check_rest(view, rate, grad_norm)
        if not self._pending:
            return
        after = checksums(self._pending.values())
        mine = [old != new for old, new in zip(self._before, after, strict=True)]
        moved = [any(flags) for flags in zip(*view.trainer.ranks.gather(mine), strict=True)]
        self._check_gradients(view)
        names = list(self._pending)
        still = [name for name, did in zip(names, moved, strict=True) if not did]
        self._check_moved(view, still, rate)
        self._before = [new for new, did in zip(after, moved, strict=True) if not did]
        self._pending = {name: self._pending[name] for name in still}
        if not self._pending or self._updates % AGAIN > AGAIN // 2:
            self._pending, self._before, self._watching = {}, [], False

    def _check_rate(self, view: StepView) -> None:
        """Raise if the optimizer's learning rate is not the one that the config gives the step."""
        optimizer, train = view.trainer.optimizer, self._config.train
        wanted = rate_of(self._config, optimizer.schedule, view.step)
        found = wrong_rate(optimizer, wanted, train.lr)
        if found is not None:
            raise self.fault(
                view.step,
                f"the optimizer's learning rate is {found:.4g}, and train.lr, warmup_steps and "
                f"lr_schedule {train.lr_schedule.use} give {wanted:.4g} at this step",
                "look at what sets the learning rate of the optimizer's groups, at the step that "
                "the schedule counts from after a resumption, and at a schedule that is no pure "
                "function of progress",
            )

    def _check_rest(self, view: StepView, rate: float, grad_norm: float) -> None:
        """Raise if the sample has been at rest for ``PATIENCE`` updates."""
        tensors, before = self._sample
        at_rest = sampled(tensors) == before and not any(
            view.trainer.ranks.gather(sampled(tensors) != before)
        )
        ending = rate == 0 and view.step >= self._steps // 2  # a schedule that ends at 0
        self._at_rest = self._at_rest + 1 if at_rest and not ending else 0
        if self._at_rest < PATIENCE:
            return
        raise self.fault(
            view.step,
            f"no weight has moved in {PATIENCE} applied updates, with a gradient of norm "
            f"{grad_norm:.3g} and a learning rate of {rate:.3g}",
            "the learning rate is 0: look at the schedule and the optimizer's groups"
            if rate == 0
            else "the optimizer works on a copy of the weights, or train.lr is too small for "
            "float32: an update below a ten-millionth of a weight is lost",
        )

    def _check_gradients(self, view: StepView) -> None:
        for name, largest in self._largest.items():
            if name in self._without:
                self._without[name] = self._without[name] + 1 if largest == 0 else 0
        cut_off = [name for name, n in self._without.items() if n >= PATIENCE]
        if cut_off:
            raise self.fault(
                view.step,
                f"{len(cut_off)} of {len(self._without)} trained tensors got no gradient in "
                f"{PATIENCE} updates: {cut_off[0]}",
                "the forward pass cuts the graph at it (detach, no_grad, a cache), or does not "
                "use it; if the model never uses it, train it with guards.updates: false",
            )

    def _check_moved(self, view: StepView, still: Sequence[str], rate: float) -> None:
        """Raise for a tensor whose gradient should have moved it by now."""
        if self._updates % AGAIN < PATIENCE:
            return
        for name in still:
            gradient = self._largest.get(name, 0.0)
            weight = float(local(self._pending[name]).abs().amax())
            step = rate * gradient / (gradient + 1e-3)
            if step > 1e-6 * max(weight, 1e-3) and len(still) < len(self._without):
                raise self.fault(
                    view.step,
                    f"{name} has not moved in {PATIENCE} updates, with gradients up to "
                    f"{gradient:.3g} and a learning rate of {rate:.3g}",
                    "the optimizer leaves it out or works on a copy: look at its parameter groups",
                )

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return for how long the sample has been at rest."""
        return {"updates/at_rest": float(self._at_rest)}

    def state_dict(self) -> dict[str, Json]:
        """Return what the metric continues from; a new process watches every tensor anew."""
        return {"at_rest": self._at_rest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._at_rest = state["at_rest"]
