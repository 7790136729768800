"""Finds and examines a model, with its identity and measured figures."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, Json, RlvrError
from rlvr_core.api.services import (
    check_model_path,
    find_model,
    is_uri,
    lineage_lines,
    lineage_of,
    load_host,
    model_identity,
    model_path,
    output,
    tokenizer_identity,
)
from rlvr_core.builtin.modelcheck.baselines import Baseline, known, names_of, registered
from rlvr_core.builtin.modelcheck.place import folder_of
from rlvr_core.builtin.modelcheck.questions import examine
from rlvr_core.builtin.modelcheck.report import BrokenPartError, Finding, Report
from rlvr_core.builtin.modelcheck.subject import Subject

_HOW = {"files": "of these files", "id": "of this id", "name": "by the name alone"}


@dataclass(slots=True)
class Examined:
    """The results about a model.

    Attributes:
        name: Its name as given by the user.
        folder: Its folder on this machine; None if there is none.
        report: The findings.
        identity: ``model`` and ``tokenizer`` as in ``identity`` of ``run.json``.
        lineage: Where it came from, if rlvr trained it.
        baselines: Its figures, each with how the model was recognised.
    """

    name: str
    folder: Path | None
    report: Report = field(default_factory=Report)
    identity: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    lineage: Mapping[str, Json] | None = None
    baselines: list[tuple[Baseline, str]] = field(default_factory=list)

    @property
    def recognised(self) -> str:
        """How the model was recognised in the figures, in words."""
        return ", ".join(_HOW[how] for how in _HOW if any(how == one for _, one in self.baselines))

    @property
    def identity_lines(self) -> list[tuple[str, str]]:
        """Return its hashes and origin, as label and value."""
        found = []
        for part, fields in self.identity.items():
            keys = ("commit", "sha256") if part == "model" else ("sha256",)
            found += [(f"{part} {key}", str(fields[key])) for key in keys if fields.get(key)]
        return found + (lineage_lines(self.lineage) if self.lineage else [])

    def as_json(self) -> dict[str, Json]:
        """Return everything as JSON."""
        return {
            "model": self.name,
            "folder": None if self.folder is None else str(self.folder),
            "verdict": self.report.verdict,
            "checks": [one.as_json() for one in self.report.findings],
            "identity": {part: dict(one) for part, one in self.identity.items()},
            "lineage": self.lineage,
            "baselines": [{**one.as_json(), "same": how} for one, how in self.baselines],
        }


def check(
    model: str,
    *,
    revision: str | None = None,
    step: int | None = None,
    runs_dir: str = "runs",
    trust_remote_code: bool = False,
    values: bool = True,
) -> Examined:
    """Examine a model.

    Args:
        model: Folder, hub id, ``tiny:TASK``, run or checkpoint.
        revision: Revision of a hub id.
        step: Which checkpoint of a run; None for its newest.
        runs_dir: Folder of run folders.
        trust_remote_code: Whether code that comes with the model may run.
        values: Whether the numbers of all weights are read.

    Raises:
        ConfigError: If it is a file, or no such run.
        MachineError: If there is no such folder, or it cannot be created or fetched.
    """
    reference = locate(model, step, runs_dir)
    here = folder_of(reference, revision)
    found = Examined(model, here)
    digests: list[str] = []
    if here is None:
        text = f"'{reference}' is not in the hub's cache on this machine"
        remedy = f"fetch it: hf download {reference}"
        found.report.findings.append(Finding("files", "fail", text, remedy))
    else:
        subject = Subject(reference, here, revision, trust_remote_code, values)
        output.quiet_libraries()
        found.report = examine(subject)
        found.identity = _identity(subject)
        found.lineage = lineage_of(here)
        digests = [str(found.identity["model"].get(key)) for key in ("sha256", "commit")]
    names = names_of(reference, str(here or "")) | names_of(model)
    found.baselines = known(registered(load_host()), names, digests)
    return found


def locate(model: str, step: int | None, runs_dir: str) -> str:
    """Return the folder of a model, created or fetched if necessary; or its hub id.

    Raises:
        ConfigError: If it is a file, or no such run.
        MachineError: If there is no such folder.
    """
    if not is_uri(model):
        _check_text(model)
    reference = model_path(find_model(model, step=step, runs_dir=runs_dir).path, load_host())
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        check_model_path(reference, "MODEL")
        return reference
    if not any((folder / name).exists() for name in ("config.json", "adapter_config.json")):
        check_model_path(reference, "MODEL")
    return str(folder)


def _check_text(model: str) -> None:
    if not model.strip() or "\0" in model:
        raise ConfigError(f"{model!r} names no model", where="MODEL")
    try:
        is_file = Path(model).expanduser().is_file()
    except (OSError, RuntimeError) as error:  # the name is too long, or the home folder unknown
        raise ConfigError(f"'{model}' cannot be a model: {error}", where="MODEL") from None
    if is_file:
        raise ConfigError(
            f"'{model}' is a file, not a model's folder",
            where="MODEL",
            remedy="name the folder that it lies in; files of GGUF are not trained",
        )


def _identity(subject: Subject) -> dict[str, Mapping[str, Any]]:
    """Return its hashes as in ``run.json``."""
    found: dict[str, Mapping[str, Any]] = {}
    try:
        found["model"] = model_identity(subject.reference, subject.revision)
    except OSError:
        found["model"] = {}
    with contextlib.suppress(BrokenPartError, RlvrError, ValueError):
        if not subject.is_adapter:
            found["tokenizer"] = tokenizer_identity(subject.tokenizer)
    return found
