"""Finds a model, runs every check of it, and reads its identity."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, Finding, Json, RlvrError, one_line
from rlvr_core.eval.model_ref import find_model
from rlvr_core.record.provenance.lineage import lineage_lines, lineage_of
from rlvr_core.record.provenance.model import model_identity, tokenizer_identity
from rlvr_core.toolkit import check_model_path, is_uri, load_host, model_path, quiet_libraries
from rlvr_doctor.examination.report import Report
from rlvr_doctor.modelcheck import architecture, token_checks, weight_checks
from rlvr_doctor.modelcheck.folder import ModelFolder, Question, folder_of
from rlvr_doctor.modelcheck.stored import BrokenPartError


def _config(subject: ModelFolder) -> Iterator[Finding]:
    kind = subject.config.model_type
    code = subject.raw_config.get("auto_map")
    yield Finding("config", "ok", f"config.json of a {kind}" + (", with code" if code else ""))


_MODEL: tuple[tuple[str, Question], ...] = (
    ("config", _config),
    ("weights/files", weight_checks.files),
    ("weights/values", weight_checks.values),
    ("weights/names", weight_checks.names),
    ("model/architecture", architecture.size),
    ("model/context", architecture.context),
    ("tokenizer/vocabulary", token_checks.vocabulary),
    ("tokenizer/special", token_checks.special),
    ("tokenizer/template", token_checks.template),
)
_ADAPTER: tuple[tuple[str, Question], ...] = (
    ("adapter", weight_checks.adapter),
    ("weights/files", weight_checks.files),
    ("weights/values", weight_checks.values),
)


@dataclass(slots=True)
class Examined:
    """The results about a model.

    Attributes:
        name: The model's name as given by the user.
        folder: The model's folder on this machine; None if there is none.
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
        """Return hashes and origin, as label and value."""
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
    examined = Examined(model, here)
    if here is None:
        text = f"'{reference}' is not in the hub's cache on this machine"
        remedy = f"fetch it: hf download {reference}"
        examined.report.findings.append(Finding("files", "fail", text, remedy))
    else:
        subject = ModelFolder(reference, here, revision, trust_remote_code, values)
        quiet_libraries()
        examined.report = examine(subject)
        examined.identity = _identity(subject)
        examined.lineage = lineage_of(here)
    return examined


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
    identity: dict[str, Mapping[str, Any]] = {}
    try:
        identity["model"] = model_identity(subject.reference, subject.revision)
    except OSError:
        identity["model"] = {}
    with contextlib.suppress(BrokenPartError, RlvrError, ValueError):
        if not subject.is_adapter:
            identity["tokenizer"] = tokenizer_identity(subject.tokenizer)
    return identity


def examine(subject: ModelFolder) -> Report:
    """Return the findings about a model."""
    report = Report()
    named: set[str] = set()
    for id_, ask in _ADAPTER if subject.is_adapter else _MODEL:
        answers: list[Finding] = []  # keeps the findings of a check up to an error
        try:
            answer = ask(subject)
            answers += [answer] if isinstance(answer, Finding) else answer or ()
        except BrokenPartError as error:
            if error.part in named:
                answers.append(Finding(id_, "note", f"not examined: {error.part} is broken"))
            else:
                answers.append(Finding(id_, "fail", error.text, error.remedy))
            named.add(error.part)
        except Exception as error:
            text = f"could not be examined: {one_line(error)}"
            answers.append(Finding(id_, "warn", text, "report it, with the model's name"))
        report.findings += answers
    return report
