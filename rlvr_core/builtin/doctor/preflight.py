"""The cheap part of the examination, which every ``rlvr run`` makes: ``guards.preflight``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, ConfigError, NeedsCalibration, RunError
from rlvr_core.builtin.doctor.answers import ANSWERS
from rlvr_core.builtin.doctor.model import DISK, MODEL, PROCESSES
from rlvr_core.builtin.doctor.problems import DATA
from rlvr_core.builtin.doctor.prompts import PROMPTS
from rlvr_core.builtin.doctor.report import Report
from rlvr_core.builtin.doctor.settings import SETTINGS
from rlvr_core.builtin.doctor.short import SHORT
from rlvr_core.builtin.doctor.subject import Subject
from rlvr_core.builtin.doctor.weight_files import FILES
from rlvr_core.builtin.doctor.wording import WORDING

if TYPE_CHECKING:
    from rlvr_core.api.services import Prepared

TRIED = 16
SECONDS = 5.0
"""Fewer than for the doctor, because every run waits for it."""
STOPS = "verifier/gold"
ELSEWHERE = ("data/held_out", "data/overlong", "verifier/references")
"""Checks already made when the run is prepared, or by the guard gold."""
CERTAIN = {
    "model/attention": ("model", "attention"),
    "model/lora": ("model", "lora", "target_modules"),
    "prompt/context": ("sampling", "max_tokens"),
    "engine/tensor-parallel": ("engine", "with", "tensor_parallel_size"),
    "train/context-parallel": ("train", "context_parallel"),
    "train/groups": ("train", "context_parallel"),
}
"""Checks of the model's structure and of processes, with their config keys: after a failure, no run
is possible, or it would train on positions beyond the model's context."""


def preflight(prepared: Prepared) -> list[str]:
    """The service ``core/preflight``: check what can be checked without the model's weights.

    Returns:
        Lines for the overview: results of gold answers, and a line for each warning. Only the first
        process returns any.

    Raises:
        ConfigError: If the model's structure rules out what the configuration asks for.
        RunError: If gold answers are judged wrongly, see the guard ``gold``, if a judge is not
            within its bounds, see ``core/judge-calibration``, or if verdicts do not come.
    """
    if os.environ.get("RANK", "0") != "0":
        return []
    subject = Subject(prepared, prepared.config, tried=TRIED, seconds=SECONDS)
    _refuse(subject)
    everything = [*subject.problems, *(p for some in subject.held_out.values() for p in some)]
    gold = prepared.resolved.host.service("core/gold")
    lines: list[str] = gold(everything, prepared.judge, prepared.resolved)
    if any(isinstance(one, NeedsCalibration) for one in prepared.judge.plan.verifiers.values()):
        calibrate = prepared.resolved.host.service("core/judge-calibration")
        found = calibrate(subject.problems, prepared.judge.plan, prepared.resolved)
        prepared.data_reports.append(found)  # the measurements become part of the run's record
        lines += found.lines
    report = Report()
    skipped = (STOPS, *ELSEWHERE, *CERTAIN)
    for checks in (SETTINGS, PROMPTS, MODEL, FILES, DATA, SHORT, WORDING, ANSWERS, DISK):
        for check in checks:
            if check.id not in skipped:
                report.ask([check], subject)
            if report.lost:
                raise RunError(
                    f"preflight: verdicts did not come within {subject.patience:g} s",
                    where=check.id,
                    remedy="the pool lost them, or a verifier waits for something: try it with "
                    "rlvr verify; guards.preflight: false skips this examination",
                )
    return lines + [
        f"warning: preflight {one.id}: {one.answer.value}; {one.answer.remedy}"
        for one in report.level("warn", "fail")
    ]


def _refuse(subject: Subject) -> None:
    """Check the model's structure, built without weights, before the run starts."""
    report = Report()
    report.ask([check for check in (*MODEL, *PROMPTS, *PROCESSES) if check.id in CERTAIN], subject)
    where = subject.prepared.resolved.where
    if failed := report.level("fail"):
        raise ConfigError.collect(
            [
                Complaint(one.answer.value, where(CERTAIN[one.id]), (one.answer.remedy,))
                for one in failed
            ]
        )
