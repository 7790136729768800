"""Checks that may stop a run: those of every run's samples, and the configured guards.

``parity``: trainer and engine must agree on the log-prob of every sampled token. It is checked on
the first step's completions and on those after the first weight sync, before the optimizer step
that would build on them. It catches a wrong temperature (T2), weights that never arrived (T30), a
stale cache (T19) and a rounding plan gone wrong (T16) at once.

``seeds``: completions of one problem must differ unless they are likely to be equal (T18).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import Json, RunError
from rlvr_core.api.components import RunObserver, Stateful

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, Guard, StepFinished
    from rlvr_core.config.model import ParitySection, RunConfig
    from rlvr_core.step.step import PolicyTrainer

SURPRISE_LIMIT = 60.0
"""Surprise in nats above which identical completions are no coincidence: odds of e^60 to one."""


class SampleChecks:
    """Checks a step's groups before its optimizer step.

    Args:
        config: The run's configuration.
        trainer: Computes the trainer's log-probs.

    Attributes:
        parity_due: Whether to check parity at the next step regardless of the version, as after a
            resumption.
    """

    def __init__(self, config: RunConfig, trainer: PolicyTrainer) -> None:
        self._config, self._trainer = config, trainer
        self.parity_due = False

    def check(self, step: int, version: int, groups: Sequence[Group]) -> dict[str, float]:
        """Check the samples of a step; return the measurements, empty if nothing was measured.

        Raises:
            RunError: If engine and trainer disagree, or completions repeat implausibly.
        """
        if step == 0:
            check_seeds(groups)
        # samples of older weights say nothing about the current ones
        groups = tuple(group for group in groups if group.version == version)
        section, sampling = self._config.guards.parity, self._config.sampling
        # before and after the first weight sync
        due = version <= self._config.train.updates_per_step
        if section is False or not groups or not (due or self.parity_due):
            return {}
        found = measure_parity(*self._trainer.logprobs(groups))
        if found is None:
            return {}
        self.parity_due = False
        check_parity(
            found,
            self._trainer.precision.compute,
            section,
            version=version,
            filtered=sampling.top_p < 1.0 or sampling.top_k > 0,
        )
        # a check made only because of a resumption is not recorded: the records stay the same as
        # those of an uninterrupted run
        return {"parity/mean": found.mean, "parity/max": found.max} if due else {}


@dataclass(frozen=True, slots=True)
class Band:
    """Largest log-prob differences attributed to rounding, in nats."""

    mean: float
    max: float


# float32: two forward passes differ by about 1e-5. Half precision: bf16 logits alone move a
# log-prob by a few hundredths on average and some tenths at worst (docs/guards.md has the source).
BANDS = {
    torch.float32: Band(mean=1e-3, max=5e-2),
    torch.bfloat16: Band(mean=1e-1, max=2.0),
    torch.float16: Band(mean=2e-2, max=5e-1),
}


@dataclass(frozen=True, slots=True)
class Parity:
    """Mean and maximum of |trainer log-prob - engine log-prob|, in nats, over ``tokens`` tokens."""

    mean: float
    max: float
    tokens: int


def measure_parity(trainer_N: torch.Tensor, engine_N: torch.Tensor) -> Parity | None:
    """Compare two log-prob vectors of shape (N,); None if there are no tokens."""
    if trainer_N.numel() == 0:
        return None
    difference_N = (trainer_N.double() - engine_N.double()).abs()
    # a NaN must not pass a comparison: it counts as an infinite difference
    difference_N = torch.nan_to_num(difference_N, nan=math.inf, posinf=math.inf)
    return Parity(float(difference_N.mean()), float(difference_N.max()), difference_N.numel())


def check_parity(
    parity: Parity,
    dtype: torch.dtype,
    section: ParitySection,
    *,
    version: int,
    filtered: bool = False,
) -> None:
    """Stop the run if the differences are larger than rounding explains.

    Args:
        parity: The measured differences.
        dtype: The run's compute precision.
        section: Limits from the config.
        version: Policy version the tokens were sampled under; 0 before any sync.
        filtered: Whether top-p or top-k was on; the engine's log-probs are then renormalised.

    Raises:
        RunError: If mean or maximum is above its limit.
    """
    band = BANDS[dtype]
    max_mean = section.mean if section.mean is not None else band.mean
    max_max = section.max if section.max is not None else band.max
    if parity.mean <= max_mean and parity.max <= max_max:
        return
    cause = (
        "top_p and top_k: the engine's log-probs are of the filtered distribution, the trainer's "
        "are not"
        if filtered
        else "the engine does not sample from the trainer's model: temperature, dtype or tokenizer"
        if version == 0
        else "the engine did not take the trainer's new weights, or kept an old cache"
    )
    raise RunError(
        f"guard parity: trainer and engine disagree on sampled tokens at version {version}: mean "
        f"{parity.mean:.3g} nats (band {max_mean:g}), max {parity.max:.3g} (band {max_max:g}), "
        f"over {parity.tokens} tokens",
        remedy=(
            f"likely: {cause}",
            "see docs/guards.md#parity; guards.parity.mean and max widen the band",
        ),
    )


def check_seeds(groups: Sequence[Group]) -> None:
    """Stop if the completions within groups are identical although that is very unlikely.

    The chance that the other members of a group sample the first one's tokens again is the product
    of those tokens' probabilities, once per member; its negative log, the surprise, is summed over
    all groups with identical members.

    Raises:
        RunError: If the surprise is above ``SURPRISE_LIMIT``.
    """
    surprise = 0.0
    repeats = 0
    for group in groups:
        completions = [member.completion for member in group.members]
        if len(completions) < 2 or len({c.token_ids for c in completions}) > 1:
            continue
        repeats += 1
        surprise -= sum(completions[0].logprobs) * (len(completions) - 1)
    if surprise > SURPRISE_LIMIT:
        raise RunError(
            f"guard seeds: {repeats} of {len(groups)} groups hold one completion repeated, which "
            f"independent sampling would do with odds of 1 in e^{surprise:.0f}",
            remedy="the engine ignores the seed of each completion; see docs/guards.md#seeds",
        )


class Guards(RunObserver):
    """Passes each step to the configured guards; a guard stops the run by raising ``RunError``.

    Args:
        guards: Guards by position and name; a checkpoint holds the state of those that are
            ``Stateful``.
    """

    def __init__(self, guards: Mapping[str, Guard]) -> None:
        self.guards = guards

    def groups_scored(self, event: GroupsScored) -> None:
        """Pass the step's groups to each guard."""
        for guard in self.guards.values():
            guard.on_groups(event)

    def step_finished(self, event: StepFinished) -> None:
        """Pass the step's metrics to each guard."""
        for guard in self.guards.values():
            guard.on_step(event)

    def state_dict(self) -> dict[str, Json]:
        """Return the state of each stateful guard."""
        return {n: one.state_dict() for n, one in self.guards.items() if isinstance(one, Stateful)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the state that ``state_dict`` returned."""
        for name, guard in self.guards.items():
            if isinstance(guard, Stateful):
                guard.load_state_dict(state[name])
