"""The cheap part of the examination, which every ``rlvr run`` makes: ``guards.preflight``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, ConfigError, NeedsCalibration
from rlvr_core.builtin.doctor.model import MODEL, PROCESSES
from rlvr_core.builtin.doctor.prompts import PROMPTS
from rlvr_core.builtin.doctor.report import Report
from rlvr_core.builtin.doctor.subject import Subject

if TYPE_CHECKING:
    from rlvr_core.api.services import Prepared

CERTAIN = {
    "model/attention": ("model", "attention"),
    "model/lora": ("model", "lora", "target_modules"),
    "model/vocabulary": ("model", "path"),
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
        RunError: If gold answers are judged wrongly, see the guard ``gold``, or if a judge is not
            within its bounds, see ``core/judge-calibration``.
    """
    if os.environ.get("RANK", "0") != "0":
        return []
    subject, report = Subject(prepared, prepared.config), Report()
    report.ask((*MODEL, *PROMPTS, *PROCESSES), subject)
    certain = [one for one in report.level("fail") if one.id in CERTAIN]
    if certain:
        where = prepared.resolved.where
        raise ConfigError.collect(
            [Complaint(one.text, where(CERTAIN[one.id]), (one.remedy,)) for one in certain]
        )
    everything = [*subject.problems, *(p for some in subject.held_out.values() for p in some)]
    lines: list[str] = subject.service("core/gold")(everything, prepared.judge, prepared.resolved)
    if any(isinstance(one, NeedsCalibration) for one in prepared.judge.plan.verifiers.values()):
        calibrate = subject.service("core/judge-calibration")
        judges = calibrate(subject.problems, prepared.judge.plan, prepared.resolved)
        prepared.data_reports.append(judges)  # the measurements become part of the run's record
        lines += judges.lines
    return lines + [
        f"warning: preflight {one.id}: {one.text}; {one.remedy}"
        for one in report.level("warn", "fail")
    ]
