"""Runs every check of a model; checks that depend on a broken part are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rlvr_core.api import Finding
from rlvr_doctor.examination.report import Report, first_line
from rlvr_doctor.modelcheck import architecture, token_checks, weight_checks
from rlvr_doctor.modelcheck.folder import ModelFolder
from rlvr_doctor.modelcheck.report import BrokenPartError

Question = Callable[[ModelFolder], Finding | Iterable[Finding] | None]


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
            text = f"could not be examined: {first_line(error)}"
            answers.append(Finding(id_, "warn", text, "report it, with the model's name"))
        report.findings += answers
    return report
