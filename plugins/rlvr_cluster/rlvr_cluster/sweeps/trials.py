"""The trials of a sweep: their values, and the configs and folders of their runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rlvr_cluster.sweeps.axes import Choice, Values, drawn, grid
from rlvr_cluster.sweeps.metric import check_metric, check_reported
from rlvr_cluster.sweeps.state import CONFIG_FILE, LOG_FILE
from rlvr_core.api import Complaint, ConfigError, Json, RlvrError
from rlvr_core.config.dialect import write
from rlvr_core.script.train import option
from rlvr_core.toolkit import Host, Resolved, resolve_file, write_atomic

if TYPE_CHECKING:
    from rlvr_cluster.sweeps.spec import Sweep


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a trial.

    Attributes:
        trial: Number of its trial.
        seed: The ``run.seed``.
        folder: Folder of its config and its run folder.
        config: The whole config, as plain data.
    """

    trial: int
    seed: int
    folder: Path
    config: Mapping[str, Any]

    @property
    def file(self) -> Path:
        """The file of its config."""
        return self.folder / CONFIG_FILE

    @property
    def log(self) -> Path:
        """The file of its process's output."""
        return self.folder / LOG_FILE

    @property
    def label(self) -> str:
        """The run's name in messages."""
        return f"trial {self.trial} seed {self.seed}"

    def prepare(self) -> None:
        """Write its config, with which ``rlvr run`` can repeat it without the sweep."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.file.exists():
            write_atomic(self.file, write(dict(self.config)))


@dataclass(frozen=True, slots=True)
class Trial:
    """One combination of values, with a run for each seed."""

    number: int
    values: Values
    runs: tuple[Run, ...]
    direction: str
    """Whether its configs ``maximize`` or ``minimize`` the metric."""


def values_of(sweep: Sweep) -> Iterator[Values]:
    """Yield the values of every trial, by number."""
    spec = sweep.spec
    if spec.method == "grid":
        yield from grid({key: axis for key, axis in sweep.axes.items() if isinstance(axis, Choice)})
        return
    assert spec.trials is not None
    for number in range(spec.trials):
        yield drawn(sweep.axes, spec.seed, number)


def make_trials(sweep: Sweep, host: Host) -> list[Trial]:
    """Check the config of every trial, and return the trials.

    Raises:
        RlvrError: If configs are wrong, or differ from those in the sweep's folder; reports the
            faults of all trials at once.
    """
    trials, faults, kinds = [], defaultdict[Complaint, list[int]](list), set[type[RlvrError]]()
    judged: dict[str, RlvrError | None] = {}
    for number, values in enumerate(values_of(sweep)):
        try:
            trial = _make_trial(sweep, number, values, host)
            _check_judged(sweep, trial, host, judged)
        except RlvrError as error:
            kinds.add(type(error))
            for complaint in error.complaints:
                faults[_placed(sweep, complaint, values)].append(number)
            continue
        trials.append(trial)
    if faults:
        wrong = set().union(*faults.values())
        complaints = [
            fault if not trials and len(numbers) == len(wrong) else _named(fault, numbers)
            for fault, numbers in faults.items()
        ]
        raise (kinds.pop() if len(kinds) == 1 else ConfigError).collect(complaints)
    return trials


def _make_trial(sweep: Sweep, number: int, values: Values, host: Host) -> Trial:
    """Check the config of a trial, and return the trial.

    Raises:
        RlvrError: If the config is wrong, or differs from the one in the trial's folder.
    """
    resolved = _resolved(sweep, values, host)
    direction = check_metric(sweep, resolved, host)
    seeds = sweep.spec.seeds
    first = resolved.config.run.seed
    listed = seeds if isinstance(seeds, list) else range(first, first + seeds)
    folder, data = sweep.folder / f"trial{number:03d}", resolved.dump()
    runs = []
    for seed in listed:
        name = f"{sweep.spec.name}-{number:03d}-s{seed}"
        config = {**data, "run": {**data["run"], "name": name, "seed": seed}}
        run = Run(number, seed, folder / f"seed{seed}", config)
        _check_same(run)
        runs.append(run)
    return Trial(number, values, tuple(runs), direction)


def _check_judged(
    sweep: Sweep, trial: Trial, host: Host, judged: dict[str, RlvrError | None]
) -> None:
    """Check that the trial's evaluations report the metric, unless the same ones were checked."""
    config = trial.runs[0].config
    what = json.dumps([config[key] for key in ("eval", "rewards", "verify")], sort_keys=True)
    if what not in judged:
        try:
            check_reported(sweep, _resolved(sweep, trial.values, host), host)
            judged[what] = None
        except RlvrError as error:
            judged[what] = error
    if (fault := judged[what]) is not None:
        raise fault


def _resolved(sweep: Sweep, values: Values, host: Host) -> Resolved:
    return resolve_file(sweep.base, [option(key, value) for key, value in values.items()], host)


def _check_same(run: Run) -> None:
    """Refuse a trial whose folder holds a different config, of an earlier sweep."""
    if not run.file.is_file():
        return
    there = yaml.safe_load(run.file.read_text(encoding="utf-8"))
    now = yaml.safe_load(write(dict(run.config)))
    if there == now:
        return
    differing = ", ".join(_differing(there, now)[:5])
    raise ConfigError(
        f"this folder holds a trial of another config: {differing}",
        where=str(run.folder),
        remedy=(
            "give the sweep another name to start afresh",
            "or remove the sweep's folder",
        ),
    )


def _differing(there: Json, now: Json, prefix: str = "") -> list[str]:
    """Return the keys in which two configs differ, each with both values."""
    if isinstance(there, dict) and isinstance(now, dict):
        keys = list(dict.fromkeys([*there, *now]))
        pairs = [(f"{prefix}{key}", there.get(key), now.get(key)) for key in keys]
        return [text for key, a, b in pairs if a != b for text in _differing(a, b, f"{key}.")]
    return [f"{prefix.rstrip('.')} is {there!r} there and {now!r} now"]


def _placed(sweep: Sweep, complaint: Complaint, values: Mapping[str, Json]) -> Complaint:
    """Attribute a fault to the parameter that causes it."""
    for key in values:
        if complaint.where.startswith(f"--set {key}="):
            return Complaint(complaint.what, sweep.where("parameters", key), complaint.remedy)
    return complaint


def _named(complaint: Complaint, trials: Sequence[int]) -> Complaint:
    shown = ", ".join(map(str, trials[:8])) + (f" and {len(trials) - 8} more" * (len(trials) > 8))
    what = f"trial{'s' * (len(trials) > 1)} {shown}: {complaint.what}"
    return Complaint(what, complaint.where, complaint.remedy)
