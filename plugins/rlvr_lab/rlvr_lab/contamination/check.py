"""Finds a model's training problems by its run or a file; refuses held-out ones among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Complaint,
    ConfigError,
    DataError,
    DataReport,
    Message,
    Problem,
    RlvrError,
    RunData,
)
from rlvr_core.config.resolve import resolve_file
from rlvr_core.config.tree import dotted
from rlvr_core.data.load import fingerprint
from rlvr_core.data.rows import read_rows
from rlvr_core.data.uri import local_path
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.record.find import find_run
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.rundir import RunFolder
from rlvr_lab.contamination.search import Contamination, Trained
from rlvr_lab.held import run_of

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved

PROMPTS = ("prompt", "messages", "question", "problem", "instruction")
"""Fields in which a row's prompt is looked for, in this order."""


def check_run(data: RunData) -> DataReport:
    """Look for held-out problems in a run's training data, including that of its initial model.

    For ``rlvr eval`` the training data is that of the run whose checkpoint it evaluates.

    Raises:
        ConfigError: If a task has more of them than allowed, or data that the user names cannot
            be read. A checkpoint's own data that cannot be read is noted instead, because the
            model may have been moved.
    """
    trained = Trained()
    for name, problems in data.trained.items():
        trained.add_problems(name, problems)
    host = load_host()
    for text in data.trained_on:
        _take_named(trained, text, host)
    _inherit(trained, data.model, host)
    if not trained.sources and not trained.unknown:
        trained.unknown.append(
            "what the model was trained on is not known; --trained-on RUN_OR_JSONL says it"
        )
    results = {name: trained.search(problems) for name, problems in data.held_out.items()}
    _refuse(results, data)
    return DataReport(
        "contamination",
        {name: result.data() for name, result in results.items()},
        tuple(f"{name}: {line}" for name, result in results.items() for line in result.lines()),
    )


def _refuse(results: Mapping[str, Contamination], data: RunData) -> None:
    complaints = [
        Complaint(
            f"{name}: {len(result.matches)} of {result.n} problems were trained on: "
            f"{result.examples}",
            data.where,
            (
                f"found in: {', '.join(result.sources)}",
                f"take other problems for one of the two, or accept it: {data.remedy}",
            ),
        )
        for name, result in results.items()
        if result.share > data.max_contaminated
    ]
    if complaints:
        raise ConfigError.collect(complaints)


def _inherit(trained: Trained, model_path: str, host: Host) -> None:
    """Add what a model was trained on before, if it is a checkpoint of a run."""
    run = run_of(Path(model_path).expanduser())
    if run is None or _name(run) in trained.sources:
        return
    try:
        _take_run(trained, run, host)
    except RlvrError as error:
        first = error.complaints[0]
        place = f" ({first.where})" if first.where else ""
        trained.unknown.append(f"the data of run {run.name} cannot be read: {first.what}{place}")


def _take_named(trained: Trained, text: str, host: Host) -> None:
    path = Path(text).expanduser()
    if "://" in text or path.is_file():
        trained.add(text, _rows(text))
        return
    if path.name.endswith((".jsonl", ".json", ".gz")) and not path.exists():
        raise ConfigError(f"there is no file '{text}'", where="--trained-on")
    _take_run(trained, run_of(path) or find_run(text), host)


def _take_run(trained: Trained, run: RunFolder, host: Host) -> None:
    resolved = resolve_file(run.resolved, [], host)
    recorded = Manifest.read(run).fields.get("data") or {}
    fingerprints = list(recorded.values())
    for index, ref in enumerate(resolved.config.data.sources):
        problems = list(resolved.build("dataset", ref).load())
        if index < len(fingerprints) and _changed(problems, fingerprints[index]):
            raise DataError(f"{ref.use} has other problems now than when the run began")
        trained.add_problems(_name(run), problems)
    _take_answers(trained, run, resolved, recorded)
    _inherit(trained, resolved.config.model.path, host)


def _take_answers(
    trained: Trained, run: RunFolder, resolved: Resolved, recorded: Mapping[str, Any]
) -> None:
    """Add the given answers that losses with their own data imitated."""
    for loc, ref in resolved.config.losses.items():
        if ref.data is None:
            continue
        # rare, and imports torch
        from rlvr_core.demonstrations import answered, load_answers

        loader, target = resolved.build("dataset", ref.data), ref.with_.get("target")
        answers = load_answers(loader, target, resolved.config.run.seed, ref.data.use)
        then = recorded.get(dotted((*loc, "answers")))  # older runs did not record them
        if then is not None and _changed(answered(answers), then):
            raise DataError(f"{ref.data.use} has other answers now than when the run began")
        trained.add_problems(_name(run), (problem for problem, _ in answers))


def _changed(problems: Sequence[Problem], recorded: Mapping[str, Any]) -> bool:
    # a run's recorded data excludes over-long prompts: it may have fewer problems and another hash
    fewer = len(problems) > recorded["problems"]
    return not fewer and fingerprint(problems) != recorded["sha256"]


def _name(run: RunFolder) -> str:
    return f"the training data of {run.name}"


def _rows(text: str) -> Iterator[tuple[str, str | Sequence[Message] | None]]:
    number = 0
    for number, row in read_rows(local_path(text)):
        id_, prompt = row.get("id"), next((row[key] for key in PROMPTS if key in row), None)
        if prompt is not None and not isinstance(prompt, str):
            prompt = _conversation(prompt, f"{text}:{number}")
        if id_ is None and prompt is None:
            raise DataError(
                "the row has neither an id nor a prompt",
                where=f"{text}:{number}",
                remedy=f"a prompt is looked for in: {', '.join(PROMPTS)}",
            )
        yield (f"line {number}" if id_ is None else str(id_)), prompt
    if not number:
        raise DataError("there are no rows", where=text)


def _conversation(value: Any, where: str) -> tuple[Message, ...]:
    try:
        # the model's answer is not part of the question
        turns = [(turn["role"], turn["content"]) for turn in value if turn["role"] != "assistant"]
    except (TypeError, KeyError):
        turns = []
    if not turns or not all(isinstance(text, str) for _, text in turns):
        raise DataError(
            "the prompt is neither text nor a list of messages with role and content", where=where
        )
    return tuple(Message(role, text) for role, text in turns)
