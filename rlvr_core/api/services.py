"""What the kernel does for plugins: rendering, verifying, reading data, files of a run.

Names here are promised like those of ``rlvr_core.api``, but may change in a minor version. Each is
imported from its home when it is first used; the kernel itself never imports this module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.builtin.datasets.hub import hub_rows
    from rlvr_core.builtin.datasets.jsonl import MAX_INT_DIGITS, read_rows
    from rlvr_core.builtin.environments.questions import Questions, response
    from rlvr_core.builtin.evals.config import Asked, read_eval_config
    from rlvr_core.builtin.evals.model_ref import find_model
    from rlvr_core.builtin.jobs.again import fetch_newest, fetch_results, send_results, unsent
    from rlvr_core.builtin.jobs.jobs import Job, JobBook
    from rlvr_core.builtin.jobs.secrets import secrets_in, secrets_in_words
    from rlvr_core.builtin.jobs.staging import Layout, overrides
    from rlvr_core.builtin.lora.export import is_adapter, write_merged
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.data.uri import cache_folder, local_path
    from rlvr_core.engines.sync import (
        PROBE_TOKENS,
        check_probe,
        probe_prompt,
        shared_prefix,
        source_logprobs,
        trainer_logprobs,
    )
    from rlvr_core.host.host import load_host
    from rlvr_core.parallel.ranks import LostError, Ranks, apart, fault_of
    from rlvr_core.rollout.collect import Answered, Generator, Judgement, joined, outcome_of
    from rlvr_core.rollout.replay import Reading, ReplayBuffer, member_of
    from rlvr_core.rollout.single_turn import conversations_of
    from rlvr_core.rollout.source import SourceParts

__all__ = [
    "MAX_INT_DIGITS",
    "PROBE_TOKENS",
    "Answered",
    "Asked",
    "Generator",
    "Job",
    "JobBook",
    "Judgement",
    "Layout",
    "LostError",
    "Questions",
    "Ranks",
    "Reading",
    "ReplayBuffer",
    "Resolved",
    "SourceParts",
    "apart",
    "cache_folder",
    "check_probe",
    "conversations_of",
    "fault_of",
    "fetch_newest",
    "fetch_results",
    "find_model",
    "hub_rows",
    "is_adapter",
    "joined",
    "load_host",
    "local_path",
    "member_of",
    "outcome_of",
    "overrides",
    "probe_prompt",
    "read_eval_config",
    "read_rows",
    "response",
    "secrets_in",
    "secrets_in_words",
    "send_results",
    "shared_prefix",
    "source_logprobs",
    "trainer_logprobs",
    "unsent",
    "write_merged",
]

_HOMES = {
    "builtin.lora.export": (
        "is_adapter",
        "write_merged",
    ),
    "builtin.evals.model_ref": ("find_model",),
    "builtin.evals.config": (
        "Asked",
        "read_eval_config",
    ),
    "builtin.datasets.hub": ("hub_rows",),
    "builtin.datasets.jsonl": (
        "MAX_INT_DIGITS",
        "read_rows",
    ),
    "builtin.environments.questions": (
        "Questions",
        "response",
    ),
    "builtin.jobs.again": (
        "fetch_newest",
        "fetch_results",
        "send_results",
        "shared_prefix",
        "unsent",
    ),
    "builtin.jobs.jobs": (
        "Job",
        "JobBook",
    ),
    "builtin.jobs.secrets": (
        "secrets_in",
        "secrets_in_words",
    ),
    "builtin.jobs.staging": (
        "Layout",
        "overrides",
    ),
    "config.resolve": ("Resolved",),
    "engines.sync": (
        "PROBE_TOKENS",
        "check_probe",
        "probe_prompt",
        "shared_prefix",
        "source_logprobs",
        "trainer_logprobs",
    ),
    "parallel.ranks": (
        "LostError",
        "Ranks",
        "apart",
        "fault_of",
    ),
    "rollout.collect": (
        "Answered",
        "Generator",
        "Judgement",
        "joined",
        "outcome_of",
    ),
    "rollout.replay": (
        "Reading",
        "ReplayBuffer",
        "member_of",
    ),
    "rollout.source": ("SourceParts",),
    "rollout.single_turn": ("conversations_of",),
    "data.uri": (
        "cache_folder",
        "local_path",
    ),
    "host.host": ("load_host",),
}
_HOME = {name: f"rlvr_core.{module}" for module, names in _HOMES.items() for name in names}


def _load(module: str, name: str) -> Any:
    """The name in its home; it may be a module itself."""
    home = importlib.import_module(module)
    return (
        getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{module}.{name}")
    )


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlvr_core.api.services' has no attribute {name!r}")
    value = _load(_HOME[name], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
