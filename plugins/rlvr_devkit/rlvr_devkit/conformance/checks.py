"""The list of all promises, used by pytest, ``rlvr plugins check``, its help and the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlvr_devkit.conformance.advantages import ADVANTAGE_CHECKS
from rlvr_devkit.conformance.common import COMMON_CHECKS, PLUGIN_CHECKS
from rlvr_devkit.conformance.datasets import DATASET_CHECKS, EVAL_TASK_CHECKS
from rlvr_devkit.conformance.engines import ENGINE_CHECKS
from rlvr_devkit.conformance.environments import ENVIRONMENT_CHECKS
from rlvr_devkit.conformance.launchers import COMMAND_CHECKS, LAUNCHER_CHECKS
from rlvr_devkit.conformance.losses import LOSS_CHECKS
from rlvr_devkit.conformance.optimizers import OPTIMIZER_CHECKS, SCHEDULE_CHECKS
from rlvr_devkit.conformance.samplers import SAMPLER_CHECKS
from rlvr_devkit.conformance.subject import Check
from rlvr_devkit.conformance.tool_formats import TOOL_FORMAT_CHECKS
from rlvr_devkit.conformance.trackers import GUARD_CHECKS, TRACKER_CHECKS
from rlvr_devkit.conformance.verifiers import VERIFIER_CHECKS

CHECKS: Mapping[str, tuple[Check, ...]] = {
    "plugin": PLUGIN_CHECKS,
    "dataset": (*COMMON_CHECKS, *DATASET_CHECKS),
    "verifier": (*COMMON_CHECKS, *VERIFIER_CHECKS),
    "loss": (*COMMON_CHECKS, *LOSS_CHECKS),
    "advantage": (*COMMON_CHECKS, *ADVANTAGE_CHECKS),
    "sampler": (*COMMON_CHECKS, *SAMPLER_CHECKS),
    "launcher": (*COMMON_CHECKS, *LAUNCHER_CHECKS),
    "eval_task": (*COMMON_CHECKS, *EVAL_TASK_CHECKS),
    "engine": (*COMMON_CHECKS, *ENGINE_CHECKS),
    "environment": (*COMMON_CHECKS, *ENVIRONMENT_CHECKS),
    "guard": (*COMMON_CHECKS, *GUARD_CHECKS),
    "tool_format": (COMMON_CHECKS[0], *TOOL_FORMAT_CHECKS),  # tool formats have no options
    "optimizer": (*COMMON_CHECKS, *OPTIMIZER_CHECKS),
    "schedule": (*COMMON_CHECKS, *SCHEDULE_CHECKS),
    "tracker": (*COMMON_CHECKS, *TRACKER_CHECKS),
    "transport": COMMON_CHECKS,
    "forward_path": (),
    "verifier_pool": (),
    "command": COMMAND_CHECKS,
}
"""Every promise by kind, in the order of checking; ``plugin`` is the plugin as a whole."""


def lines() -> Iterator[tuple[str, str, str]]:
    """Yield kind, check and promise; promises of all kinds with options once, as ``all``."""
    for check in COMMON_CHECKS:
        yield "all", check.id, check.promise
    for kind, checks in CHECKS.items():
        for check in checks:
            if check not in COMMON_CHECKS:
                yield kind, check.id, check.promise
