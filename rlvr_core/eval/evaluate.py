"""``rlvr eval``: samples, judges and records missing completions, then summarises."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Complaint,
    Draw,
    ExternalTask,
    Json,
    Judged,
    ModelAccess,
    RunError,
)
from rlvr_core.api.engines import WrapsEngine
from rlvr_core.api.progress import progress
from rlvr_core.eval.spec import Spec
from rlvr_core.eval.store import Row, Store, read_results, slug
from rlvr_core.eval.summary import summarise, task_metrics
from rlvr_core.record.files import write_atomic
from rlvr_core.rollout.collect import Answered, Generator

if TYPE_CHECKING:
    from rlvr_core.eval.session import Ready, Session
    from rlvr_core.verify.reward import RewardPlan

WINDOW = 16384
"""Completions requested at a time, which bounds memory use."""


def evaluate(
    session: Session,
    out: Path,
    say: Callable[[str], None],
    waiting: Callable[[str], None] | None = None,
) -> dict[str, Row]:
    """Evaluate every task; results already in the folder are not computed again.

    Args:
        session: The prepared evaluation.
        out: Folder of the results, one folder in it per task.
        say: Called with progress messages.
        waiting: Called with what is being waited for; ``say`` if omitted.

    Returns:
        The summary of each task, by name, as written.

    Raises:
        RunError: If the engine fails, answers are missing, or the folder cannot be written.
    """
    stores = {
        task.name: Store(out / slug(task.name), task.spec, task.problems, session.beside_task(task))
        for task in session.tasks
    }
    sample(session, stores, say, waiting)
    summaries = {task.name: _finish(task, stores[task.name]) for task in session.tasks}
    _write_summary(out, {"folder": str(out), "tasks": summaries})
    return summaries


def sample(
    session: Session,
    stores: Mapping[str, Store],
    say: Callable[[str], None],
    waiting: Callable[[str], None] | None = None,
) -> None:
    """Complete every store; the model is loaded only if results are missing.

    See ``evaluate`` for the arguments.

    Raises:
        RunError: If the engine fails or leaves answers out.
    """
    missing = sum(len(store.pending) for store in stores.values())
    total = sum(len(store.problems) for store in stores.values())
    try:
        if 0 < missing < total:
            say(f"going on: {total - missing} of {total} problems are done")
        if missing:
            say(f"engine: {session.engine.entry.name} ({session.why})")
            with session.generator(say, waiting) as generator:
                for task in session.tasks:
                    store = stores[task.name]
                    if isinstance(task.task, ExternalTask):
                        _ask(task, store, session, generator, say)
                    else:
                        _sample(task, store, generator, session.plan)
    finally:
        for store in stores.values():
            store.close()
    _nothing_missing(stores)


def _sample(task: Ready, store: Store, generator: Generator, plan: RewardPlan) -> None:
    def write(answered: Answered) -> None:
        if any(completion.finish_reason == "abort" for completion in answered.completions):
            return  # not an answer; the problem stays pending
        members = []
        for completion, verdicts in zip(answered.completions, answered.verdicts, strict=True):
            reward, passed = plan.combine(verdicts, 0)
            members.append(Judged(completion, verdicts, reward, passed))
        store.write(answered.draw.problem, answered.prompt.text, members)

    pending = store.pending
    size = max(1, WINDOW // task.n)
    answered = f"problems of {task.name}"
    with progress(answered, lambda: len(store.finished), len(store.problems)):
        for start in range(0, len(pending), size):
            # the position in the whole task, so that a resumed evaluation draws the same
            draws = [Draw(p, task.n, place) for place, p in pending[start : start + size]]
            generator.generate(draws, task.sampling, version=0, step=0, each=write)
            generator.judge.errors.check()


def _ask(
    task: Ready,
    store: Store,
    session: Session,
    generator: Generator,
    say: Callable[[str], None],
) -> None:
    """Run a task that asks the engine in its own way."""
    pending = [problem for _, problem in store.pending]
    if not pending:
        return
    assert isinstance(task.task, ExternalTask)
    engine = generator.engine
    model = ModelAccess(
        path=session.model_path,
        tokenizer=session.tokenizer(),
        # its requests are single-turn, even if other tasks play conversations
        engine=engine.wrapped if isinstance(engine, WrapsEngine) else engine,
        max_length=session.max_length(),
        folder=store.folder,
        seed=session.config.seed,
        deadline=session.config.deadline,
        say=say,
    )
    for answer in task.task.answer(pending, model):
        store.write(answer.problem, answer.prompt, answer.members)


def _nothing_missing(stores: Mapping[str, Store]) -> None:
    complaints = [
        Complaint(
            f"{name}: {len(store.pending)} problems have no answer, "
            f"{store.pending[0][1].id} among them",
            str(store.folder),
            ("run the same command again: it continues with those",),
        )
        for name, store in stores.items()
        if store.pending
    ]
    if complaints:
        raise RunError.collect(complaints)


def _finish(task: Ready, store: Store) -> Row:
    head, _, results = read_results(store.folder)
    groups = list(store.groups())
    report = task.task.score(groups)
    numbers = summarise(results) | {"task_metrics": task_metrics(task.task, groups, report)}
    if report.basis:
        numbers["basis"] = dict(report.basis)
    return finish_summary(store.folder, head, numbers)


def finish_summary(folder: Path, head: Mapping[str, Any], numbers: Mapping[str, Json]) -> Row:
    """Write ``summary.json`` of one task, and return it.

    Args:
        folder: The task's folder.
        head: The content of ``spec.json``: where the numbers come from.
        numbers: The numbers, ``truncation_rate`` among them.
    """
    spec, limit = Spec(head["spec"]), head["max_truncated"]
    summary: Row = {
        "task": spec.task,
        "spec_hash": spec.hash,
        "n_per_problem": spec.n,
        "sampling": spec.content["sampling"],
        "model": head["model"],
        "engine": head["engine"],
        **{key: head[key] for key in ("verifiers",) if key in head},
        "versions": head["versions"],
        "contamination": head.get("contamination"),
        **numbers,
        "max_truncated": limit,
        "spoilt": numbers["truncation_rate"] > limit,
    }
    _write_summary(folder, summary)
    return summary


def _write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / "summary.json", text + "\n")


def check_truncation(summaries: Mapping[str, Row]) -> None:
    """Refuse results with too many answers truncated at the token cap.

    Raises:
        RunError: If there are any; names each such task and its rate.
    """
    spoilt: Sequence[Complaint] = [
        Complaint(
            f"{name}: {summary['truncation_rate']:.1%} of the answers were cut off at "
            f"{summary['sampling']['max_tokens']} tokens, more than {summary['max_truncated']:.1%}",
            remedy=(
                "raise the task's max_tokens, or accept it: --allow-truncation",
                "the results are written, and marked as spoilt",
            ),
        )
        for name, summary in summaries.items()
        if summary["spoilt"]
    ]
    if spoilt:
        raise RunError.collect(spoilt)
