"""Which run ``--resume`` means, and with what configuration it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.api.services import RunConfig, find_run, parse_options, resolve_file

if TYPE_CHECKING:
    from rlvr_core.api.services import Host, Resolved, RunFolder

FREE_KEYS = (
    "train.steps",
    "train.parallel",
    "train.context_parallel",
    "checkpoint.",
    "eval.every",
    "eval.early_stop",
    "guards",
    "eval.max_contaminated",
    "track",
    "plugins.",
    "meta.",
    "run.dir",
    "run.mirror",
    "run.timeout",
    "run.accept_changed",
    "data.cache_uri",
)
"""What may differ between a run and its resumption without changing the steps already taken."""


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
    _same_run(_flat(stored.dump()), _flat(given.dump()), folder)
    return given, folder


def _run_dir(overrides: Sequence[str]) -> str:
    """Where runs are, when no configuration says it."""
    given = parse_options([text for text in overrides if text.startswith("run.dir=")], "--set")
    return str(given.get("run", {}).get("dir") or RunConfig.model_fields["run"].default.dir)


def _same_run(stored: dict[str, object], given: dict[str, object], folder: RunFolder) -> None:
    differing = [
        key
        for key in sorted(stored.keys() | given.keys())
        if stored.get(key) != given.get(key) and not key.startswith(FREE_KEYS)
    ]
    if differing:
        raise ConfigError.collect(
            [
                Complaint(
                    f"{key} is {given.get(key)!r} here and {stored.get(key)!r} in the run",
                    where=str(folder.path),
                    remedy=(
                        ("resume without a config file to go on as it was, or start a new run",)
                        if key == differing[-1]
                        else ()
                    ),
                )
                for key in differing
            ]
        )


def _flat(value: object, prefix: str = "") -> dict[str, object]:
    if isinstance(value, dict):
        items = [(str(key), child) for key, child in value.items()]
    elif isinstance(value, list):
        items = [(str(index), child) for index, child in enumerate(value)]
    else:
        return {prefix: value}
    flat: dict[str, object] = {}
    for key, child in items:
        flat |= _flat(child, f"{prefix}.{key}" if prefix else key)
    return flat
