"""Resolves the model a user names: a folder, a Hub id, or a checkpoint of a run."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.data.uri import is_uri, model_path
from rlvr_core.plugins.host import load_host
from rlvr_core.record.checkpoints import COMPLETE, CheckpointStore, verify
from rlvr_core.record.find import find_run
from rlvr_core.record.rundir import RunFolder

if TYPE_CHECKING:
    from rlvr_core.config.model import ModelSection, RunConfig

_STEP = re.compile(r"^step(\d{6,})$")
HELD = ".held-"
"""Beginning of the name of a folder in a run's folder that holds checkpoints for a consumer."""


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model to evaluate.

    Attributes:
        path: Local folder or Hub id.
        run: The run that the checkpoint belongs to; None for any other model.
        step: The checkpoint's step.
    """

    path: str
    run: RunFolder | None = None
    step: int | None = None

    @property
    def label(self) -> str:
        """Short name for folders and tables."""
        if self.run is not None:
            return f"{self.run.name}-step{self.step:06d}"
        if Path(self.path).is_dir():
            return Path(self.path).name
        return self.path.replace("/", "-" if ":" in self.path else "--").replace(":", "-")

    @property
    def max_tokens(self) -> int | None:
        """The cap on completions of the run; None for a model that belongs to none."""
        config = self._run_config
        return None if config is None else config.sampling.max_tokens

    def sections(self) -> dict[str, Any]:
        """The settings that a checkpoint takes from its run, by section of an ``EvalConfig``."""
        config = self._run_config
        if config is None:
            return {}
        return {
            "prompt": config.data.prompt.model_dump(),
            "environment": config.environment.model_dump(by_alias=True),
            "plugins": config.plugins,
            "model": config.model.model_dump(include={"dtype", "attention", "trust_remote_code"}),
        }

    @property
    def _run_config(self) -> RunConfig | None:
        from rlvr_core.config.load import load_config

        return None if self.run is None else load_config(self.run.resolved).config


def find_model(text: str, *, step: int | None, runs_dir: str) -> ModelRef:
    """Resolve ``text``: a model's folder, a run's folder or name, or else a Hub id.

    A URI that a plugin opens (``s3://bucket/run/checkpoints/step000020``) is fetched first.

    Args:
        text: What the user wrote.
        step: Which checkpoint of a run; None for its newest.
        runs_dir: Folder of run folders.

    Raises:
        ConfigError: If a step is given for something other than a run, or the run lacks it.
        MachineError: If it is a checkpoint that was never finished, or is damaged.
    """
    if is_uri(text):
        text = model_path(text, load_host())
    folder = Path(text).expanduser()
    model = any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))
    model |= _STEP.match(folder.resolve().name) is not None
    run = None if model else _run(text, runs_dir)
    if run is not None:
        return _of_run(run, step)
    if step is not None:
        raise ConfigError(f"'{text}' is no run, so it has no steps", where="--step")
    return _checkpoint(folder) or ModelRef(text)


def _run(text: str, runs_dir: str) -> RunFolder | None:
    if Path(text).is_dir():
        try:
            return RunFolder.open(text)
        except ConfigError:
            return None
    if "/" in text or text.startswith((".", "~")):
        return None  # a Hub id, or a missing folder, which the loader reports
    try:
        return find_run(text, runs_dir)
    except ConfigError as error:
        complaint = error.complaints[0]
        remedy = (*complaint.remedy, f"a model's folder is written ./{text}, and a hub id ORG/NAME")
        raise ConfigError(complaint.what, where=complaint.where, remedy=remedy) from error


def _of_run(run: RunFolder, step: int | None) -> ModelRef:
    complete = CheckpointStore(run.checkpoints, 1).complete()
    steps = {int(path.name.removeprefix("step")): path for path in complete}
    if not steps:
        raise ConfigError(f"run '{run.name}' has no complete checkpoint", where=str(run.path))
    chosen = max(steps) if step is None else step
    if chosen not in steps:
        raise ConfigError(
            f"run '{run.name}' has no complete checkpoint of step {step}",
            where="--step",
            remedy=f"it has: {', '.join(map(str, sorted(steps)))}",
        )
    model = _checkpoint(steps[chosen])
    assert model is not None
    return model


def _holds_checkpoints(folder: Path) -> bool:
    return folder.name == "checkpoints" or folder.name.startswith(HELD)


def _checkpoint(folder: Path) -> ModelRef | None:
    """Return the checkpoint in a folder; None if it holds any other model."""
    real = folder.resolve()
    match = _STEP.match(real.name)
    if match is None or (not _holds_checkpoints(real.parent) and not (real / COMPLETE).is_file()):
        return None
    wrong = verify(real)
    if wrong is not None:
        raise MachineError(f"checkpoint {real.name} cannot be used: {wrong}", where=str(folder))
    try:
        run = RunFolder.open(real.parent.parent)
    except ConfigError:
        return ModelRef(str(folder))
    return ModelRef(str(folder), run, int(match[1]))


def runnable(path: str, section: ModelSection) -> str:
    """Return a model's path; for a LoRA adapter, that of a temporary merged copy.

    Raises:
        MachineError: If the adapter or its base model cannot be loaded.
        RunError: If the copy cannot be written to the temporary folder (``TMPDIR``).
    """
    from rlvr_core.lora.export import is_adapter, write_merged

    if not is_adapter(path):
        return path
    place = Path(tempfile.mkdtemp(prefix="rlvr-merged-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    from rlvr_core.step.model import DTYPES

    write_merged(
        Path(path).expanduser(),
        place / Path(path).name,
        DTYPES[section.dtype],
        trust_remote_code=section.trust_remote_code,
    )
    return str(place / Path(path).name)


def path_in_run(path: str) -> str:
    """Return a model's path; for a checkpoint that ``rlvr watch`` holds, its place in the run."""
    folder = Path(path).expanduser()
    if folder.parent.name.startswith(HELD):
        return str(folder.parent.parent / "checkpoints" / folder.name)
    return path
