"""The examination of a configuration: read, prepare, sample, take two steps, report."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import RlvrError
from rlvr_core.api.services import (
    Host,
    RunObserver,
    load_host,
    model_path,
    prepare,
    quiet_libraries,
    start,
)
from rlvr_core.builtin.doctor.answers import ANSWERS
from rlvr_core.builtin.doctor.batch import BATCH
from rlvr_core.builtin.doctor.costs import LIVE
from rlvr_core.builtin.doctor.endings import histogram
from rlvr_core.builtin.doctor.live import Live, measure
from rlvr_core.builtin.doctor.mending import Draft, resolve_leniently
from rlvr_core.builtin.doctor.model import DISK, MODEL
from rlvr_core.builtin.doctor.problems import DATA
from rlvr_core.builtin.doctor.prompts import PROMPTS, visible
from rlvr_core.builtin.doctor.report import Answer, Report
from rlvr_core.builtin.doctor.settings import SETTINGS
from rlvr_core.builtin.doctor.short import SHORT
from rlvr_core.builtin.doctor.subject import Subject
from rlvr_core.builtin.doctor.weight_files import FILES, VALUES
from rlvr_core.builtin.doctor.wording import WORDING

if TYPE_CHECKING:
    from rlvr_core.api.services import Prepared, Resolved, RunConfig, Session

LENIENT = (
    "run.name=doctor",
    "run.mirror=null",
    "guards=[{use: defaults, off: true}]",
    "eval.max_contaminated=1.0",
    "verify.max_error_rate=1.0",
    "data.max_overlong_share=1.0",
    "eval.every=0",
    "eval.early_stop=null",
    "checkpoint.every=0",
    "checkpoint.keep_best=null",
    "track=[]",
    "train.warmup_steps=0",
    "train.lr_schedule=constant",
    "train.context_parallel=1",
)
"""Options that disable guards, whose checks the examination does itself, and that take its two
steps at the peak learning rate, like most of the real run, and in one process."""

Drive = Callable[["Session", Any], None]


class Quiet(RunObserver):
    """Observes the examined run, and reports what it waits for."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def phase(self, label: str) -> None:
        """Report a phase."""
        self._say(label)

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


def nothing(_: str) -> None:
    """Ignore a message."""


def examine(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    host: Host | None = None,
    live: bool = True,
    say: Callable[[str], None] = nothing,
) -> Report:
    """Examine a configuration on its own model and data.

    Every fault is reported: a fault that would end a run is recorded and removed from the
    configuration, and the examination continues.

    Args:
        path: The YAML file.
        overrides: ``KEY=VALUE`` options on top.
        host: The loaded plugins.
        live: Whether to load the model, sample, and take two steps.
        say: Called with progress messages.
    """
    report, host = Report(), host or load_host()
    quiet_libraries()
    draft = Draft.read(path, overrides)
    resolved = resolve_leniently(draft, host, report)
    seen: set[str] = set()
    cures: list[str] = []
    while resolved is not None:
        limits = resolved.config
        with scratch_folder() as folder:
            lenient = draft.resolve(host, [*LENIENT, *cures, f"run.dir={folder}"])
            fault = _prepared(lenient, limits, host, report, live=live, say=say, seen=seen)
        if fault is None:
            found = _cures(report, lenient) if live and not cures else []
            if not found:
                break
            cures = found
            seen.add("batch")
            continue
        report.refusal("run/start", "Can the run start?", fault)
        if not draft.mend(fault) and not _without_attention(draft, report):
            break
        resolved = resolve_leniently(draft, host, report)
    return report


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield a folder for the examined run, removed at the end."""
    folder = tempfile.mkdtemp(prefix="rlvr-doctor-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepared(
    resolved: Resolved,
    limits: RunConfig,
    host: Host,
    report: Report,
    *,
    live: bool,
    say: Callable[[str], None],
    seen: set[str],
) -> RlvrError | None:
    """Prepare the run and make all checks; return the error that prevented the rest."""
    say("loading data")
    try:
        with prepare(resolved, partial(model_path, resolved.config.model.path, host)) as prepared:
            subject = Subject(prepared, limits)
            for part, checks in (
                ("settings", SETTINGS),
                ("prompts", PROMPTS),
                ("model", (*MODEL, *FILES)),
                ("data", (*DATA, *SHORT, *WORDING)),
                ("verifiers", ANSWERS),
            ):
                if part in seen:
                    continue
                say(part)
                report.ask(checks, subject)
                seen.add(part)
            if not live:
                _show_prompt(subject, report)
                report.ask(DISK, subject)
                return None
            if "batch" in seen:
                _again(prepared, subject, report, say)
            else:
                _show_prompt(subject, report)
                report.ask(VALUES, subject)
                _start(prepared, subject, report, say)
    except RlvrError as error:
        return error
    except Exception as error:  # an unexpected error is a finding, and does not end the examination
        what = f"{type(error).__name__}: {error}"
        remedy = "see the findings above; the traceback is that of: rlvr run CONFIG"
        report.add("run/start", "Can the run start?", Answer("fail", what, remedy, weight=60))
    return None


def _start(
    prepared: Prepared, subject: Subject, report: Report, say: Callable[[str], None]
) -> None:
    """Start the run, and make the checks that need the model."""
    found: list[Live] = []

    def drive(session: Session, _: Any) -> None:
        say("sampling")
        found.append(measure(subject, session))

    try:
        folder = start(prepared, Quiet(say), folder=None, command=["doctor"], drive=drive)
    finally:
        for live in found:
            report.ask(BATCH, live.batch)
            report.ask(LIVE, live)
            _show_batch(live, report)
    shutil.rmtree(folder.path, ignore_errors=True)  # managed machines may put run folders elsewhere


def _without_attention(draft: Draft, report: Report) -> bool:
    """Remove an attention that the model cannot use; return whether it was removed."""
    wrong = any(one.id == "model/attention" for one in report.level("fail"))
    return wrong and draft.data["model"].pop("attention", None) is not None


def _cures(report: Report, resolved: Resolved) -> list[str]:
    """Return options that correct findings which may hide other mistakes."""
    wrong = {one.id for one in report.level("fail", "warn")}
    sampling = resolved.config.sampling
    cures = []
    if "prompt/template" in wrong:
        cures.append("data.prompt.chat_template=auto")
    if "prompt/special" in wrong and resolved.config.data.prompt.system:
        cures.append("data.prompt.system=null")
    if "batch/stops" in wrong:
        cures.append("sampling.stop=[]")
    if "batch/ending" in wrong and "prompt/eos" not in wrong:
        cures.append(f"sampling.max_tokens={8 * sampling.max_tokens}")
    if "batch/repeats" in wrong:
        cures.append("sampling.temperature=1.0")
    return cures


def _again(
    prepared: Prepared, subject: Subject, report: Report, say: Callable[[str], None]
) -> None:
    """Check a batch again, without mistakes that may have hidden others."""
    again = Report()

    def drive(session: Session, _: Any) -> None:
        say("sampling without what was found")
        live = measure(subject, session)
        again.ask(BATCH, live.batch)
        again.ask(LIVE, live)

    folder = start(prepared, Quiet(say), folder=None, command=["doctor"], drive=drive)
    shutil.rmtree(folder.path, ignore_errors=True)
    known = {one.id for one in report.level("fail", "warn")}
    for one in again.level("fail", "warn"):
        if one.id not in known:
            value = f"without the mistakes above: {one.answer.value}"
            report.add(one.id, one.question, replace(one.answer, value=value))


def _show_prompt(subject: Subject, report: Report) -> None:
    problem, ids = subject.rendered[0]
    report.shown[f"prompt of {problem.id}"] = visible(subject.tokenizer, ids)


def _show_batch(live: Live, report: Report) -> None:
    tokenizer = live.subject.tokenizer
    for passed in (True, False):
        one = next((m for m in live.batch.members if m.passed is passed), None)
        if one is not None:
            word = "passed" if passed else "did not pass"
            report.shown[f"a completion that {word}"] = visible(tokenizer, one.completion.token_ids)
    lengths = [len(one.completion.token_ids) for one in live.batch.members]
    report.shown["completion lengths, in tokens"] = histogram(lengths)
