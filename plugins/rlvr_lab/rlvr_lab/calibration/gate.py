"""The gate of ``rlvr run``: refuses to train on a judge outside its bounds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, DataReport, Json, NeedsCalibration, Problem, RunError
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.reward import RewardPlan
from rlvr_lab.calibration.measure import Bounds, Measure, measure
from rlvr_lab.calibration.rules import Rule

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Found:
    """The measurements of one judge.

    Attributes:
        problems: Number of problems.
        measures: The measured values; empty if its configuration disables measuring.
    """

    problems: int
    measures: Sequence[Measure]

    @property
    def faults(self) -> list[str]:
        """Return the values that are out of their bounds."""
        return [each.text for each in self.measures if not each.ok]

    def data(self) -> dict[str, Json]:
        """Return it as JSON."""
        return {"problems": self.problems, **{each.name: each.data() for each in self.measures}}


def measured(problems: Sequence[Problem], plan: RewardPlan, resolved: Resolved) -> dict[str, Found]:
    """Measure every judge of a run; return the results by the name of its verdicts.

    Args:
        problems: The training problems.
        plan: The run's verifiers.
        resolved: The run's configuration.
    """
    results: dict[str, Found] = {}
    for name, verifier in plan.verifiers.items():
        if not isinstance(verifier, NeedsCalibration):
            continue
        configured = verifier.calibration()
        if configured is None:
            results[name] = Found(0, ())
            continue
        bounds = Bounds.of(name, configured)
        judged_problems = [problem for problem in problems if name in plan.names(problem)]
        draw = random.Random(f"calibration {resolved.config.run.seed}")
        chosen = draw.sample(judged_problems, min(bounds.problems, len(judged_problems)))
        rule, section = Rule(plan, chosen, resolved.host), resolved.config.verify
        with VerifierPool(
            {**rule.specs, name: plan.specs[name]},
            workers=section.workers,
            timeout=section.timeout,
            memory_mb=section.memory_mb,
        ) as pool:
            results[name] = Found(len(chosen), measure(name, bounds, chosen, rule, pool))
    return results


def lines_of(results: Mapping[str, Found]) -> list[str]:
    """Return the measurements as lines for the user."""
    lines = []
    for name, result in results.items():
        if not result.measures:
            lines.append(f"warning: {name} is not calibrated: calibration is off")
        lines += [f"{name}, {result.problems} problems: {each.text}" for each in result.measures]
    return lines


def calibrated(problems: Sequence[Problem], plan: RewardPlan, resolved: Resolved) -> DataReport:
    """Measure a run's judges, refuse those out of bounds.

    Returns:
        The measurements, for ``checks.judges`` of ``run.json``.

    Raises:
        RunError: If a judge is out of its bounds; names the values.
    """
    results = measured(problems, plan, resolved)
    refuse(results)
    return DataReport(
        "judges",
        {name: result.data() for name, result in results.items()},
        tuple(lines_of(results)),
    )


def refuse(results: Mapping[str, Found]) -> None:
    """Refuse judges that are out of their bounds.

    Raises:
        RunError: If there is one; names the values.
    """
    bad = {name: result.faults for name, result in results.items() if result.faults}
    if bad:
        raise RunError.collect(
            [
                Complaint(
                    f"{name} is not fit to be trained on: {len(faults)} of its measured values out "
                    f"of bounds",
                    remedy=(
                        *faults,
                        "take another model or rubric; the bounds are its option calibration, and "
                        "calibration: false trains without them",
                    ),
                )
                for name, faults in bad.items()
            ]
        )
