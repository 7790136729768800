"""The metric that trials are compared by: checks it, and reads its value in a run."""

from __future__ import annotations

import difflib
from statistics import fmean
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError, Metric
from rlvr_core.toolkit import Host, Resolved, RunView, finite

if TYPE_CHECKING:
    from rlvr_cluster.sweeps.spec import Sweep

LAST_STEPS = 10
"""Number of last steps over which a training metric is averaged, because one is noisy."""
RISING = ("reward/", "pass_rate")
"""Prefixes of training metrics that improve by rising, without a declaration."""


def check_metric(sweep: Sweep, resolved: Resolved, host: Host) -> str:
    """Check that a run of this config has the sweep's metric.

    Returns:
        Whether it should ``maximize`` or ``minimize``.

    Raises:
        ConfigError: If it does not, or ``direction`` contradicts the metric's declaration.
    """
    metric, where = sweep.spec.metric, sweep.where("metric")
    stated = sweep.spec.direction
    from rlvr_core.eval.direction import direction_of

    if ":" in metric:
        task, _, name = metric.rpartition(":")
        tasks = [ref.use for ref in resolved.config.eval.tasks]
        place = next((i for i, use in enumerate(tasks) if _same(task, use)), None)
        if place is None:
            have = ", ".join(tasks) or "none"
            raise ConfigError(
                f"the config evaluates no task '{task}'",
                where=where,
                remedy=(f"it has: {have}", "add it to eval.tasks of the config"),
            )
        component = resolved.make(("eval", "tasks", place))
        return str(direction_of(name, component, stated, sweep.where("direction")))
    declared = _declared(metric, resolved, host, where)
    falls = declared.better == "down"
    declared_direction = None if declared.better is None else "minimize" if falls else "maximize"
    if declared_direction and stated and declared_direction != stated:
        raise ConfigError(
            f"direction: {stated} contradicts the metric '{metric}', which is declared to improve "
            f"by {'falling' if falls else 'rising'}",
            where=sweep.where("direction"),
            remedy="remove the direction: the declared one is used",
        )
    if declared_direction is None and stated is None and not metric.startswith(RISING):
        raise ConfigError(
            f"whether '{metric}' should rise or fall is declared nowhere",
            where=where,
            remedy="add direction: maximize, or direction: minimize",
        )
    return declared_direction or stated or "maximize"


def check_reported(sweep: Sweep, resolved: Resolved, host: Host) -> None:
    """Check that a run's evaluations report the sweep's metric, if it is one of theirs.

    Raises:
        RlvrError: If they do not, or cannot be loaded.
    """
    from rlvr_core.eval.in_run import named_tasks
    from rlvr_core.eval.metric_check import check_metric as check_reported_by
    from rlvr_core.verify.judge import ErrorRate, Judge
    from rlvr_core.verify.reward import RewardPlan

    task, colon, name = sweep.spec.metric.rpartition(":")
    if not colon:
        return
    full = next(ref.use for ref in resolved.config.eval.tasks if _same(task, ref.use))
    tasks, config = named_tasks(resolved), resolved.config
    verifiers = {problem.verifier for each in tasks.values() for problem in each.problems()}
    plan = RewardPlan.build(config.rewards, verifiers, resolved.host)
    with plan.pool(config.verify.model_copy(update={"pool": None})) as pool:
        judge = Judge(pool, plan, ErrorRate(config.verify.max_error_rate))
        check_reported_by(f"{full}:{name}", tasks, judge, sweep.where("metric"))


def value_in(view: RunView, metric: str) -> float | None:
    """Return the metric's value in a run; None if the run has none."""
    if ":" not in metric:
        numbers = [finite(row.get(metric)) for row in view.metrics.rows]
        known = [number for number in numbers if number is not None]
        return fmean(known[-LAST_STEPS:]) if known else None
    task, _, name = metric.rpartition(":")
    of_task = [line["metrics"] for line in view.evaluations if _same(task, line["task"])]
    return finite(of_task[-1].get(name)) if of_task else None


def _same(named: str, full: str) -> bool:
    """Return whether a name, which may be a short one, denotes a task."""
    return named == full or ("/" not in named and named == full.rpartition("/")[2])


def _declared(metric: str, resolved: Resolved, host: Host, where: str) -> Metric:
    """Return the declaration of a training metric by the config's components."""
    from rlvr_core.record.metrics import run_glossary as glossary

    whole = glossary(*{component.cls for component in resolved.components.values()})
    declared: Metric | None = whole.lookup(metric)
    if declared is not None:
        return declared
    close = difflib.get_close_matches(metric, _COMMON, n=3)
    tasks = [f"{ref.use}:accuracy" for ref in resolved.config.eval.tasks]
    hint = [f"did you mean: {', '.join(close)}?"] if close else []
    hint += [f"of an evaluation, for example: {tasks[0]}"] if tasks else []
    raise ConfigError(
        f"a run of this config has no metric '{metric}'",
        where=where,
        remedy=(*hint, "rlvr docs runs#metrics has those of training"),
    )


_COMMON = ("reward/mean", "pass_rate", "loss", "entropy", "grad_norm", "kl", "tokens/completion")
"""Names that are suggested for a similar one."""
