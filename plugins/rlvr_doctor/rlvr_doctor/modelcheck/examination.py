"""Finds and examines a model, with its identity."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, Finding, Json, RlvrError
from rlvr_core.data.uri import check_model_path, is_uri, model_path
from rlvr_core.eval.model_ref import find_model
from rlvr_core.plugins.host import load_host
from rlvr_core.record.provenance.lineage import lineage_lines, lineage_of
from rlvr_core.record.provenance.model import model_identity, tokenizer_identity
from rlvr_core.terminal import output
from rlvr_doctor.examination.report import Report
from rlvr_doctor.modelcheck.folder import ModelFolder
from rlvr_doctor.modelcheck.place import folder_of
from rlvr_doctor.modelcheck.questions import examine
from rlvr_doctor.modelcheck.report import BrokenPartError


@dataclass(slots=True)
class Examined:
    """The results about a model.

    Attributes:
        name: Its name as given by the user.
        folder: Its folder on this machine; None if there is none.
        report: The findings.
        identity: ``model`` and ``tokenizer`` as in ``identity`` of ``run.json``.
        lineage: Where it came from, if rlvr trained it.
    """

    name: str
    folder: Path | None
    report: Report = field(default_factory=Report)
    identity: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    lineage: Mapping[str, Json] | None = None

    @property
    def identity_lines(self) -> list[tuple[str, str]]:
        """Return its hashes and origin, as label and value."""
        lines = []
        for part, fields in self.identity.items():
            keys = ("commit", "sha256") if part == "model" else ("sha256",)
            lines += [(f"{part} {key}", str(fields[key])) for key in keys if fields.get(key)]
        return lines + (lineage_lines(self.lineage) if self.lineage else [])

    def as_json(self) -> dict[str, Json]:
        """Return everything as JSON."""
        return {
            "model": self.name,
            "folder": None if self.folder is None else str(self.folder),
            **self.report.as_json(),
            "identity": {part: dict(fields) for part, fields in self.identity.items()},
            "lineage": self.lineage,
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
    if here is None:
        text = f"'{reference}' is not in the hub's cache on this machine"
        remedy = f"fetch it: hf download {reference}"
        found.report.findings.append(Finding("files", "fail", text, remedy))
    else:
        subject = ModelFolder(reference, here, revision, trust_remote_code, values)
        output.quiet_libraries()
        found.report = examine(subject)
        found.identity = _identity(subject)
        found.lineage = lineage_of(here)
    return found


def locate(model: str, step: int | None, runs_dir: str) -> str:
    """Return the folder of a model, created or fetched if necessary; or its hub id.

    Raises:
        ConfigError: If it is a file, or no such run.
        MachineError: If there is no such folder.
    """
    if not is_uri(model) and Path(model).expanduser().is_file():
        raise ConfigError(
            f"'{model}' is a file, not a model's folder",
            where="MODEL",
            remedy="name the folder that it lies in; files of GGUF are not trained",
        )
    reference = model_path(find_model(model, step=step, runs_dir=runs_dir).path, load_host())
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        check_model_path(reference, "MODEL")
        return reference
    if not any((folder / name).exists() for name in ("config.json", "adapter_config.json")):
        check_model_path(reference, "MODEL")
    return str(folder)


def _identity(subject: ModelFolder) -> dict[str, Mapping[str, Any]]:
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
