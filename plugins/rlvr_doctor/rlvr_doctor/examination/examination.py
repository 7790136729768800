"""The examination of a configuration: read, prepare, sample, take two steps, report."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import Finding, RlvrError, one_line
from rlvr_core.api.components import RunObserver
from rlvr_core.run.build import build
from rlvr_core.toolkit import load_host, model_path, quiet_libraries, resolve_file
from rlvr_doctor.examination.answers import ANSWERS
from rlvr_doctor.examination.batch import BATCH, histogram
from rlvr_doctor.examination.costs import LIVE
from rlvr_doctor.examination.live import Live, measure
from rlvr_doctor.examination.model import MODEL
from rlvr_doctor.examination.problems import DATA
from rlvr_doctor.examination.prompts import PROMPTS, visible
from rlvr_doctor.examination.report import Report, refused
from rlvr_doctor.examination.subject import Subject

if TYPE_CHECKING:
    from rlvr_core.run.inputs import Inputs

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
"""Options for an examination: the two steps are those at the peak learning rate, like most of the
real run, and in one process."""


class Quiet(RunObserver):
    """Observes the examined run, and shows nothing of it."""

    def close(self) -> None:
        """Do nothing: there is nothing to restore."""


def nothing(_: str) -> None:
    """Ignore a message."""


def examine(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    live: bool = True,
    say: Callable[[str], None] = nothing,
) -> Report:
    """Examine a configuration on its own model and data.

    Args:
        path: The YAML file.
        overrides: ``KEY=VALUE`` options on top.
        live: Whether to load the model, sample, and take two steps.
        say: Called with progress messages.
    """
    report, host = Report(), load_host()
    quiet_libraries()
    try:
        limits = resolve_file(path, overrides, host).config
        with scratch_folder() as folder:
            resolved = resolve_file(path, [*overrides, *list(LENIENT), f"run.dir={folder}"], host)
            say("loading data")
            locate = partial(model_path, resolved.config.model.path, host)
            subjects: list[Subject] = []

            def look(inputs: Inputs) -> Inputs | None:
                subjects.append(Subject(inputs, limits))
                _examine_inputs(subjects[0], report, say)
                return inputs if live else None

            with build(resolved, locate, Quiet(), command=["doctor"], look=look) as session:
                if session is not None:
                    measured = measure(subjects[0], session, say)
                    report.ask(BATCH, measured.batch)
                    report.ask(LIVE, measured)
                    _show_batch(measured, report)
            if session is not None:  # managed machines may put run folders elsewhere
                shutil.rmtree(session.folder.path, ignore_errors=True)
    except RlvrError as error:
        report.findings += refused("run/start", error)
    except Exception as error:  # an unexpected error is a finding, and does not end the examination
        remedy = "see the findings above; the traceback is that of: rlvr run CONFIG"
        report.findings.append(Finding("run/start", "fail", one_line(error), remedy))
    return report


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield a folder for the examined run, removed at the end."""
    folder = tempfile.mkdtemp(prefix="rlvr-doctor-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _examine_inputs(subject: Subject, report: Report, say: Callable[[str], None]) -> None:
    """Make the checks that need no weights."""
    for part, checks in (
        ("model", MODEL),
        ("prompts", PROMPTS),
        ("data", DATA),
        ("verifiers", ANSWERS),
    ):
        say(part)
        report.ask(checks, subject)
    problem, ids = subject.rendered[0]
    report.shown[f"prompt of {problem.id}"] = visible(subject.tokenizer, ids)


def _show_batch(live: Live, report: Report) -> None:
    tokenizer = live.subject.tokenizer
    for passed in (True, False):
        member = next((m for m in live.batch.members if m.passed is passed), None)
        if member is not None:
            title = f"a completion that {'passed' if passed else 'did not pass'}"
            report.shown[title] = visible(tokenizer, member.completion.token_ids)
    lengths = [len(member.completion.token_ids) for member in live.batch.members]
    report.shown["completion lengths, in tokens"] = histogram(lengths)
