"""Sources of problems: a data set with options, a file, or the sources of a config."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, Finding, Problem, RunError
from rlvr_core.data.load import NamedLoader, fingerprint, load_sources
from rlvr_core.toolkit import ComponentRef, build, load_host, resolve_file
from rlvr_doctor.datacheck.checks import PER_TAG, Report, check_problems
from rlvr_doctor.datacheck.judging import Judge

_LOADERS = {
    ".jsonl": "core/jsonl",
    ".json": "core/jsonl",
    ".csv": "core/csv",
    ".parquet": "core/parquet",
}
_CONFIGS = (".yaml", ".yml")
HASH_SEEDS = ("1", "2")
"""Values of PYTHONHASHSEED for the processes that load a source again."""


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of problems that is not loaded yet.

    Attributes:
        name: Name in messages.
        ref: The data set and its options.
        verifier: The verifier that a config names instead of the problems' own.
    """

    name: str
    ref: ComponentRef
    verifier: ComponentRef | None = None

    def load(self) -> tuple[Problem, ...]:
        """Load its problems.

        Raises:
            ConfigError: If the name or an option is wrong.
            DataError: If the data is unusable, or two problems have one id.
        """
        loader = build(load_host(), "dataset", self.ref, "the source")
        (source,) = load_sources([NamedLoader(self.ref.use, loader)])
        return source.problems


def sources_of(source: str, options: Mapping[str, Any]) -> list[NamedSource]:
    """Find what a source names.

    Args:
        source: A registered data set, a data file or folder, or a config (``.yaml``).
        options: Options of the data set.

    Raises:
        ConfigError: If there is no such data set or file, or a config is given options.
    """
    path = Path(source)
    if path.suffix in _CONFIGS:
        if options:
            raise ConfigError("a config has its options in it", where="--with", remedy="edit it")
        return _of_config(source)
    ending = path.name.removesuffix(".gz")
    loader = next((name for end, name in _LOADERS.items() if ending.endswith(end)), None)
    if path.is_dir() and "/" in source:
        loader = "core/folder"
    if loader is None:
        return [NamedSource(source, ComponentRef(use=source, **{"with": dict(options)}))]
    if not path.exists():
        raise ConfigError(f"there is no file {source}", where="SOURCE")
    return [NamedSource(source, ComponentRef(use=loader, **{"with": {"path": source, **options}}))]


def _of_config(path: str) -> list[NamedSource]:
    resolved = resolve_file(path, (), load_host())
    rewards = [ref for ref in resolved.config.rewards if ref.use != "auto"]
    automatic = len(rewards) < len(resolved.config.rewards)
    verifier = None
    if rewards and not automatic:
        verifier = ComponentRef(use=rewards[0].use, **{"with": rewards[0].with_})
    return [
        NamedSource(
            f"{path}: data.sources[{index}] {ref.use}",
            ComponentRef(use=ref.use, **{"with": ref.with_}),
            verifier,
        )
        for index, ref in enumerate(resolved.config.data.sources)
    ]


def check_source(
    source: NamedSource, judge: Judge, *, by: Sequence[str] = (), per_tag: int = PER_TAG
) -> Report:
    """Load a source and check it, including its ids and contents in other processes.

    Args:
        source: The source.
        judge: Judges responses; it is opened here.
        by: Tags to report by; if empty, those with few values, in combination.
        per_tag: Maximum problems to try of each tag.
    """
    problems = source.load()
    report = check_problems(source.name, problems, judge, by=by, per_tag=per_tag)
    if differs := unstable(source, problems):
        report.faults.append(Finding("stable", "fail", differs))
    return report


def unstable(source: NamedSource, problems: Sequence[Problem]) -> str:
    """Load a source again in other processes; return how it differs, empty if it does not.

    Raises:
        RunError: If it cannot be loaded there.
    """
    expected = marks(problems)
    for seed in HASH_SEEDS:
        done = subprocess.run(
            [sys.executable, "-m", "rlvr_doctor.datacheck.sources"],
            input=json.dumps({"use": source.ref.use, "with": source.ref.with_}),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RunError(
                f"{source.name} cannot be loaded in a process of its own: {done.stderr[-2000:]}"
            )
        reloaded = json.loads(done.stdout.splitlines()[-1])
        if reloaded != expected:
            what = "ids" if reloaded["ids"] != expected["ids"] else "contents of its problems"
            return f"loaded again with PYTHONHASHSEED={seed}, the {what} are not the same"
    return ""


def marks(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the data that must be equal whenever a source is loaded."""
    ids = [problem.id for problem in problems]
    return {"ids": ids, "content": fingerprint(problems)}


def _main() -> None:
    ref = ComponentRef(**json.load(sys.stdin))
    sys.stdout.write("\n" + json.dumps(marks(NamedSource(ref.use, ref).load())) + "\n")


if __name__ == "__main__":
    _main()
