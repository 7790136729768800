"""Checks of what an evaluation sampled, before its results count.

The completions of problems that are drawn by their names, up to so many tokens of each task, are
kept beside the results and looked at when all are there: by the model's files, their seeds and the
task's sampling parameters (the service ``core/evaluated``). Of all of them a short trace is kept,
which the stored results must repeat.
"""

from __future__ import annotations

import heapq
import math
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Complaint, ExternalTask, Group, Judged, Problem
from rlvr_core.api.services import read_jsonl
from rlvr_core.builtin.evals.engine import load_apart

if TYPE_CHECKING:
    from rlvr_core.api import Engine, EngineContext
    from rlvr_core.builtin.evals.session import Ready, Session
    from rlvr_core.builtin.evals.store import Store

TOKENS = 4096
"""Tokens of a task that are looked at."""

Trace = tuple[int, int | None, bool | None, float | None]
"""Of a completion: checksum of its text, number of tokens, outcome and score."""


@dataclass
class Kept:
    """What is kept of a task's completions.

    Attributes:
        traces: Of each problem's completions, by id.
    """

    traces: dict[str, list[Trace]] = field(default_factory=dict)
    _chosen: list[tuple[int, str, int, Group]] = field(default_factory=list)
    _tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, problem: Problem, members: Sequence[Judged]) -> None:
        """Keep a problem's completions, or their traces alone; thread-safe."""
        with self._lock:
            self.traces[problem.id] = [_trace(one) for one in members]
            self.choose(Group(problem, tuple(members), 0))

    def choose(self, group: Group) -> None:
        """Keep a group, unless those that are drawn before it by name have tokens enough."""
        n = sum(len(one.completion.token_ids) for one in group.members)
        draw = zlib.crc32(group.problem.id.encode())
        heapq.heappush(self._chosen, (-draw, group.problem.id, n, group))
        self._tokens += n
        while self._tokens - self._chosen[0][2] >= TOKENS:
            self._tokens -= heapq.heappop(self._chosen)[2]

    @property
    def groups(self) -> list[Group]:
        """Return the groups that are looked at."""
        return [group for *_, group in sorted(self._chosen, key=lambda one: one[:2], reverse=True)]


def _trace(one: Judged) -> Trace:
    completion = one.completion
    text = zlib.crc32(completion.text.encode("utf-8", "surrogatepass"))
    score = one.reward if one.reward is not None and math.isfinite(one.reward) else None
    return text, completion.n_tokens, one.passed, score


class Checks:
    """The checks of one evaluation.

    Args:
        session: The prepared evaluation.
        say: Tells the user what is not checked.
    """

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self._session, self._say = session, say
        self._kept: dict[str, Kept] = {}
        self._complaints: dict[str, Complaint] = {}
        self._apart: Any = None
        self._context: EngineContext | None = None

    def started(self, engine: Engine, context: EngineContext) -> None:
        """The engine runs; how it samples is not checked."""

    def kept(self, task: Ready, store: Store) -> Kept:
        """Return what keeps a task's completions, those of an earlier call among them."""
        kept = self._kept[task.name] = Kept()
        if self._apart is not None and store.finished:
            if not store.has_tokens:
                self.earlier(task.name)
                return kept
            for group in store.groups():
                kept.choose(group)
        return kept

    def earlier(self, task: str) -> None:
        """Tell the user of completions whose call ended before they were checked."""
        self._say(f"{task}: how an earlier call sampled its completions is not checked")

    def unchecked(self, task: Ready) -> None:
        """Tell the user of a task that samples by itself."""
        if task.needs_engine:
            self._say(f"{task.name} samples by itself, and that is not checked")

    def in_engine(self) -> None:
        """Check by the model that the engine samples from, if it is in this process."""
        if self._apart is not None and self._own_model is not None:
            self._check(self._own_model)

    def after_engine(self) -> None:
        """Check by the model, loaded now, if the engine had it elsewhere and is gone."""
        if self._apart is None or self._own_model is not None or not any(self._groups):
            return
        assert self._context is not None
        model, why = load_apart(self._session, self._context.model)
        if model is None:
            self._say(f"how completions are sampled is not checked: {why}")
        self._check(model)

    @property
    def _own_model(self) -> Any:
        assert self._context is not None
        assert self._context.model is not None
        model: Any = self._context.model
        return None if model.device.type == "meta" else model

    @property
    def _groups(self) -> Iterator[Group]:
        return (group for kept in self._kept.values() for group in kept.groups)

    def _check(self, model: Any) -> None:
        wrong = None if model is None else self._apart.wrong_model(model)
        for task in self._session.tasks:
            if isinstance(task.task, ExternalTask) or task.name not in self._kept:
                continue
            found = wrong or self._wrong(task, self._kept[task.name].groups, model)
            if found is not None:
                self._complain(task, *found)

    def _wrong(self, task: Ready, groups: Sequence[Group], model: Any) -> tuple[str, str] | None:
        assert self._context is not None
        room = self._context.max_model_len
        found: tuple[str, str] | None = self._apart.wrong_texts(groups, task.sampling, task.n, room)
        if found is None and model is not None:
            draws = {problem.id: place for place, problem in enumerate(task.problems)}
            found = self._apart.wrong_tokens(model, groups, task.sampling, draws)
        return found

    def stored(self, task: Ready, store: Store) -> None:
        """Check that the results are those of the completions that were sampled."""
        if self._apart is None or task.name not in self._kept:
            return
        kept = self._kept[task.name].traces
        if wrong := wrong_results(store.folder, kept):
            self._complain(
                task,
                f"the results that were written are not those of the completions: {wrong}",
                "look at what judges completions, and at what writes results",
            )

    def _complain(self, task: Ready, what: str, remedy: str) -> None:
        self._complaints.setdefault(
            task.name,
            Complaint(
                f"the evaluation {task.name}: {what}",
                remedy=(
                    remedy,
                    "nothing counts of what was sampled; it is kept as refused-*.jsonl",
                    "--set check=false turns it off",
                ),
            ),
        )

    @property
    def complaints(self) -> Mapping[str, Complaint]:
        """What is wrong, by task."""
        return self._complaints


def wrong_results(folder: Path, traces: Mapping[str, Sequence[Trace]]) -> str:
    """Return how stored results differ from what was sampled and judged; empty if they do not."""
    left = {(id_, number) for id_, some in traces.items() for number in range(len(some))}
    rows = zip(
        read_jsonl(folder / "completions.jsonl"), read_jsonl(folder / "results.jsonl"), strict=True
    )
    for completion, result in rows:
        key = result["problem_id"], result["sample"]
        if key not in left:
            continue
        left.discard(key)
        text = zlib.crc32(completion["text"].encode("utf-8", "surrogatepass"))
        found = (text, result["n_tokens"], result["passed"], result["score"])
        due = traces[key[0]][key[1]]
        if (completion["problem_id"], completion["sample"]) != key or found != due:
            return (
                f"completion {key[1]} of problem {key[0]} is recorded with passed {found[2]}, "
                f"score {found[3]} and {found[1]} tokens, and had {due[2]}, {due[3]} and {due[1]}"
                f"{'' if found[0] == due[0] else ', and another text'}"
            )
    return f"{len(left)} completions are missing" if left else ""
