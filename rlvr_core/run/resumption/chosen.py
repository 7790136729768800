"""Finds the run that ``--resume`` means, and its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.model import RunConfig
from rlvr_core.config.resolve import parse_options, resolve_file
from rlvr_core.config.tree import numbered
from rlvr_core.record.find import find_run
from rlvr_core.record.provenance.compare import flat

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.plugins.host import Host
    from rlvr_core.record.rundir import RunFolder

EXACT_KEYS = (
    "train.steps",
    "train.max_nonfinite_steps",
    "train.reference.offload",
    "checkpoint.",
    "eval.every",
    "eval.early_stop",
    "guards",
    "verify.pool",
    "verify.workers",
    "verify.memory_mb",
    "verify.max_error_rate",
    "environment.workers",
    "eval.max_contaminated",
    "track",
    "plugins.",
    "meta.",
    "run.dir",
    "run.mirror",
    "run.timeout",
    "run.identity",
    "run.accept_changed",
    "data.cache_uri",
    "data.max_overlong_share",
)
"""Keys that may change on resume and do not affect results."""

ROUNDED_KEYS = (
    "train.tokens_per_micro_batch",
    "train.gradient_checkpointing",
    "train.compile",
    "train.parallel",
    "train.shard_size",
    "train.context_parallel",
    "verify.timeout",
    "environment.timeout",
    "environment.straggler_timeout",
    "environment.concurrent",
    *(
        f"engine.with.{option}"
        for option in (
            *("gpu_memory_utilization", "kv_cache_mb", "max_num_seqs", "enforce_eager", "sleep"),
            *("sleep_level", "tensor_parallel", "servers", "urls", "gpus", "folder", "restarts"),
            *("deadline", "hang_after", "max_in_flight", "actors"),
        )
    ),
)
"""Keys that may change on resume and affect results by rounding or by time limits."""


def run_to_resume(
    resume: str, config: Path | None, overrides: Sequence[str], host: Host
) -> tuple[Resolved, RunFolder]:
    """The checked configuration, and the folder to go on in.

    Args:
        resume: The run's name, its folder, or ``last``.
        config: A file that says anew how to go on; None for the run's own configuration.
        overrides: Values on top, as ``--set`` takes them.
        host: The plugins.

    Raises:
        ConfigError: If there is no such run, or what made the steps already taken is another.
    """
    if config is None:
        folder = find_run(resume, _run_dir(overrides), "--set run.dir=DIR")
        given = resolve_file(folder.resolved, overrides, host)
    else:
        given = resolve_file(config, overrides, host)
        folder = find_run(resume, given.config.run.dir, "--set run.dir=DIR")
    stored = resolve_file(folder.resolved, [], host)
    if config is not None and "warmup_steps" not in given.loaded.draft.root.plain()["train"]:
        # made of the number of steps, and that may be another now
        warmup = f"train.warmup_steps={stored.config.train.warmup_steps}"
        given = resolve_file(config, [warmup, *overrides], host)
    _check_changes(changed_values(stored.dump(), given.dump()), folder)
    return given, folder


def _run_dir(overrides: Sequence[str]) -> str:
    """Return the folder of runs if no configuration names it."""
    given = parse_options([text for text in overrides if text.startswith("run.dir=")], "--set")
    return str(given.get("run", {}).get("dir") or RunConfig.model_fields["run"].default.dir)


def changed_values(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of two configurations that differ, ``[before, now]`` by dotted key.

    A guard's key holds its name: its place in the list depends on which others are named.
    """
    before, now = map(_values, (stored, given))
    return {
        key: [before.get(key), now.get(key)]
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    }


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by dotted key; an empty list or section has none."""
    flattened = flat({**config, "guards": _by_name(config["guards"])})
    return {key: value for key, value in flattened.items() if value not in ({}, [])}


def _check_changes(changes: Mapping[str, list[Any]], folder: RunFolder) -> None:
    """Refuse changes of what the steps already taken depend on."""
    refused = {
        key: values
        for key, values in changes.items()
        if not key.startswith((*EXACT_KEYS, *ROUNDED_KEYS))
    }
    if not refused:
        return
    start = f"or begin a new run from its weights: --set model.path={folder.checkpoints}/latest"
    complaints = [
        Complaint(f"{key} is {now!r} here and {before!r} in the run", str(folder.path))
        for key, (before, now) in refused.items()
    ]
    last = complaints[-1]
    remedy = (f"leave {', '.join(refused)} as in the run, and the resumption goes on", start)
    raise ConfigError.collect([*complaints[:-1], Complaint(last.what, last.where, remedy)])


def _by_name(guards: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the entries by component; the second of a component has its number too."""
    return dict(zip(numbered(guard["use"] for guard in guards), guards, strict=True))
