"""Guard ``core/updates``: every trained tensor gets a gradient and moves, at the right rate.

The element with the largest gradient of each tensor is watched: it has to move. Tensors are watched
in the first updates of a process, and again in a few of every ``AGAIN``. Under LoRA a matrix may
wait for the other one: at first one of the two has no gradient.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import Metric, NoConfig
from rlvr_core.api.guards import BaseGuard
from rlvr_core.guards.tensors import local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rlvr_core.api import RunStarted


PATIENCE = 3
"""Applied updates that a tensor may miss."""

AGAIN = 100
"""Updates after which every tensor is watched anew, for ``2 * PATIENCE`` updates."""

TOLERANCE = 1e-5
"""Difference of a learning rate from the schedule's that is rounding, as a share of it."""


class Updates(BaseGuard):
    """Trained tensors move."""

    name = "core/updates"
    reports = (
        Metric(
            "updates/at_rest",
            "Applied updates in a row in which no watched element of the weights moved.",
            "updates",
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._updates = self._at_rest = 0
        self._without: dict[str, int] = defaultdict(int)
        self._still: dict[str, int] = defaultdict(int)
        self._before: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self._alive: set[str] = set()

    @property
    def _due(self) -> bool:
        return self._updates % AGAIN < 2 * PATIENCE or self._at_rest > 0

    def run_started(self, event: RunStarted) -> None:
        """Check that the optimizer has all that is to be trained."""
        trainer = self.context.trainer
        whole = self.context.config.model.lora is None
        known = {id(tensor) for tensor in trainer.optimizer.parameters}
        named = dict(trainer.model.named_parameters())
        lost = [n for n, t in named.items() if t.requires_grad and id(t) not in known]
        frozen = [n for n, t in named.items() if not t.requires_grad and t.is_floating_point()]
        for names, what in (
            (lost, "is not the optimizer's"),
            (frozen if whole else [], "takes no gradient"),
        ):
            if names:
                raise self.fault(
                    event.step,
                    f"{len(names)} of {len(named)} tensors will not be trained: {names[0]} {what}",
                    "the optimizer must be made of the model's own parameters, all of which "
                    "require a gradient unless LoRA is on",
                )

    def update_begins(self) -> None:
        """Note the largest gradient of each tensor, and the weight there."""
        self._before = {}
        if not self._due:
            return
        optimizer = self.context.trainer.optimizer
        for name, parameter in zip(optimizer.names, optimizer.parameters, strict=True):
            if parameter.grad is None or not local(parameter).numel():
                continue
            gradient = local(parameter.grad).reshape(-1)
            place = gradient.abs().argmax()
            weight = local(parameter).reshape(-1)[place].clone()
            self._before[name] = place, gradient[place].abs(), weight

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """Compare the weights with those before."""
        if not applied or not math.isfinite(grad_norm) or grad_norm == 0:
            return
        rate = self._rate()
        due, self._updates = self._due, self._updates + 1
        if not due:
            return
        shares = self.context.ranks.gather(self._moves())
        moves: dict[str, tuple[float, float, bool]] = {}
        for share in shares:
            for name, (gradient, weight, moved) in share.items():
                known = moves.get(name, (0.0, 0.0, False))
                moves[name] = (max(known[0], gradient), max(known[1], weight), known[2] or moved)
        self._judge_gradients(moves)
        self._judge_moves(moves, rate, grad_norm)

    def _moves(self) -> dict[str, tuple[float, float, bool]]:
        """Return gradient, size and whether it has moved, of the watched element of each tensor."""
        if not self._before:
            return {}
        optimizer = self.context.trainer.optimizer
        parameters = dict(zip(optimizer.names, optimizer.parameters, strict=True))
        rows = [
            torch.stack([g.double(), w.double(), local(parameters[name]).reshape(-1)[p].double()])
            for name, (p, g, w) in self._before.items()
        ]
        numbers = torch.stack(rows).tolist()  # one transfer from the device
        return {
            name: (gradient, abs(weight), after != weight)
            for name, (gradient, weight, after) in zip(self._before, numbers, strict=True)
        }

    def _judge_gradients(self, moves: Mapping[str, tuple[float, float, bool]]) -> None:
        """Raise for a tensor that never gets a gradient where its like in other layers do."""
        for name in self.context.trainer.optimizer.names:
            reached = moves.get(name, (0.0, 0.0, False))[0] > 0
            self._without[name] = 0 if reached else self._without[name] + 1
            if reached:
                self._alive.add(_kind(name))
        cut_off = [name for name, n in self._without.items() if n >= PATIENCE]
        # an expert that no token was sent to has none, nor has what the model does not use for text
        wrong = [n for n in cut_off if _kind(n) in self._alive or "embed_tokens" in n]
        wrong = [name for name in wrong if "expert" not in name]
        if wrong:
            raise self.fault(
                self.view.step,
                f"{len(wrong)} of {len(self._without)} trained tensors got no gradient in "
                f"{PATIENCE} updates: {wrong[0]}",
                "the forward pass cuts the graph at it (detach, no_grad, a cache), or does not use "
                "it",
            )
        if cut_off:
            self.say_once(
                f"{len(cut_off)} of {len(self._without)} trained tensors get no gradient, such as "
                f"{cut_off[0]}: the model does not use them for these problems"
            )

    def _judge_moves(
        self, moves: Mapping[str, tuple[float, float, bool]], rate: float, grad_norm: float
    ) -> None:
        view, config = self.view, self.context.config
        moved = any(did for _, _, did in moves.values())
        ending = rate == 0 and view.step >= config.train.steps // 2  # a schedule that ends at 0
        self._at_rest = 0 if moved or ending else self._at_rest + 1
        self.numbers = {"updates/at_rest": float(self._at_rest)}
        if self._at_rest >= PATIENCE:
            raise self.fault(
                view.step,
                f"no weight has moved in {PATIENCE} applied updates, with a gradient of norm "
                f"{grad_norm:.3g} and a learning rate of {rate:.3g}",
                "the learning rate is 0: look at the schedule and the optimizer's groups"
                if rate == 0
                else "the optimizer works on a copy of the weights, or train.lr is too small for "
                "float32: an update below a ten-millionth of a weight is lost",
            )
        for name, (gradient, weight, did) in moves.items():
            step = rate * gradient / (gradient + 1e-3)
            expected = moved and step > 1e-6 * max(weight, 1e-3)
            self._still[name] = self._still[name] + 1 if expected and not did else 0
            if self._still[name] >= PATIENCE:
                raise self.fault(
                    view.step,
                    f"{name} has not moved in {PATIENCE} updates, with gradients up to "
                    f"{gradient:.3g} and a learning rate of {rate:.3g}",
                    "the optimizer leaves it out or works on a copy: look at its parameter groups",
                )

    def _rate(self) -> float:
        """Return the learning rate of the step; raises if the optimizer has another."""
        optimizer, train = self.context.trainer.optimizer, self.context.config.train
        step, warmup = self.view.step, train.warmup_steps
        rate: float
        if step < warmup:
            rate = train.lr * (step + 1) / warmup
        else:
            span = train.steps - 1 - warmup
            progress = min(1.0, (step - warmup) / span) if span > 0 else float(step > warmup)
            rate = train.lr * float(optimizer.schedule(progress))
        for group in optimizer.inner.param_groups:
            right = rate * float(group.get("lr_scale", 1.0))
            if abs(float(group["lr"]) - right) > TOLERANCE * max(abs(right), TOLERANCE * train.lr):
                raise self.fault(
                    step,
                    f"the optimizer's learning rate is {group['lr']:.4g}, and train.lr, "
                    f"warmup_steps and lr_schedule give {right:.4g} at this step",
                    "look at what sets the learning rate of the optimizer's groups, and at the "
                    "step that the schedule counts from after a resumption",
                )
        return rate


def _kind(name: str) -> str:
    """Return a tensor's name without the number of its layer."""
    return re.sub(r"\.(layers|h|blocks)\.\d+\.", r".\1.#.", name)
