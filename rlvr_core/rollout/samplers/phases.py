"""Phases of the sampler ``core/difficulty``: weights of tiers as a pure function of the step."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from rlvr_core.api import Complaint, ComponentConfig, ConfigError, DataError, Json, Problem

DATASET = "dataset"
"""Value of ``tier_by`` for tiers by data set rather than by tag."""


def _text_keys(value: Json) -> Json:
    """Convert the keys to text, because tiers such as levels may be written as numbers."""
    return {str(key): weight for key, weight in value.items()} if isinstance(value, dict) else value


class Phase(ComponentConfig):
    """Weights of the tiers for a range of steps."""

    until_step: Annotated[int, Field(gt=0)] | None = None
    """Step at which the phase ends (exclusive); null, in the last phase, for all later steps."""
    tiers: Annotated[
        dict[str, Annotated[float, Field(ge=0)]], Field(min_length=1), BeforeValidator(_text_keys)
    ]
    """Relative share of draws by tier; a tier that is not listed is not drawn."""


def check_phases(phases: Sequence[Phase], tier_by: str | None) -> None:
    """Refuse phases that do not cover every step exactly once.

    Raises:
        ValueError: If they do not; says what is wrong.
    """
    if bool(phases) != (tier_by is not None):
        missing = "tier_by says which tag the tiers are" if phases else "phases says their weights"
        raise ValueError(f"tiers need both tier_by and phases: {missing}")
    if not phases:
        return
    ends = [phase.until_step for phase in phases]
    if ends[-1] is not None or None in ends[:-1]:
        raise ValueError("every phase but the last has until_step, and the last has none")
    steps = [end for end in ends if end is not None]
    if steps != sorted(set(steps)):
        raise ValueError(f"until_step must rise from phase to phase, and goes {steps}")
    for number, phase in enumerate(phases):
        if not any(phase.tiers.values()):
            raise ValueError(f"phase {number} gives every tier weight 0")


def check_tiers(phases: Sequence[Phase], tiers: Sequence[str]) -> None:
    """Refuse unknown tiers, phases without a problem, and problems without a phase.

    Args:
        phases: The phases.
        tiers: The tier of each problem.

    Raises:
        ConfigError: If there are any; reports all of them.
    """
    if not phases:
        return
    sizes = Counter(tiers)
    faults = []
    for number, phase in enumerate(phases):
        where = f"sampler.with.phases[{number}]"
        for tier in phase.tiers:
            if tier not in sizes:
                near = difflib.get_close_matches(tier, sizes, n=1)
                hint = f"did you mean: {near[0]}?" if near else f"there are: {_names(sizes)}"
                faults.append(Complaint(f"no problem is of tier '{tier}'", where, (hint,)))
        if not any(weight > 0 and tier in sizes for tier, weight in phase.tiers.items()):
            faults.append(Complaint("no problem could be drawn in this phase", where))
    forgotten = sorted(set(sizes) - {tier for phase in phases for tier in phase.tiers})
    for tier in forgotten:
        faults.append(
            Complaint(
                f"no phase names tier '{tier}', which has {sizes[tier]} problems",
                "sampler.with.phases",
                (f"give it a weight in one of them; '{tier}: 0' leaves it out knowingly",),
            )
        )
    if faults:
        raise ConfigError.collect(faults)


def tier_of(problem: Problem, tier_by: str | None) -> str:
    """Return a problem's tier; without tiers, all problems are in one.

    Raises:
        DataError: If the problem lacks the tag.
    """
    if tier_by is None:
        return ""
    if tier_by == DATASET:
        return problem.dataset
    if tier_by not in problem.tags:
        raise DataError(
            f"problem {problem.id} has no tag '{tier_by}'",
            where="sampler.with.tier_by",
            remedy=f"its tags are: {', '.join(problem.tags) or 'none'}",
        )
    return str(problem.tags[tier_by])


def phase_at(phases: Sequence[Phase], step: int) -> Mapping[str, float] | None:
    """Return the weights of the tiers at a step; None if there are no phases."""
    for phase in phases:
        if phase.until_step is None or step < phase.until_step:
            return phase.tiers
    return None


def _names(sizes: Counter[str]) -> str:
    return ", ".join(sorted(sizes)[:10])
