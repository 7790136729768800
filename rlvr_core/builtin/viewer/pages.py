"""The pages: what each one's template is given."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rlvr_core.api import ConfigError, RunError
from rlvr_core.api.services import RunFolder, brief, facts, finite, printable
from rlvr_core.builtin.viewer import compare, group
from rlvr_core.builtin.viewer.choice import PAGE, Choice, find, neighbours, options
from rlvr_core.builtin.viewer.gaps import add_gaps
from rlvr_core.builtin.viewer.index import reading
from rlvr_core.builtin.viewer.indexing import Follower
from rlvr_core.builtin.viewer.marks import Marks
from rlvr_core.builtin.viewer.runs import KEPT, MissingError, Runs, state
from rlvr_core.builtin.viewer.stream import read_rows
from rlvr_core.builtin.viewer.tokens import tokenizer_of

if TYPE_CHECKING:
    from starlette.requests import Request

MARKED = re.compile(r"\d+\.(?:\d+|x)(?:-\d+)?(?:/\d+)?")
"""What a mark may belong to: a group, or a completion of it."""
COLOURS = {
    "logprob": "log-prob",
    "gap": "trainer-engine gap",
    "advantage": "advantage",
    "mask": "loss mask",
    "version": "policy version",
    "none": "no colours",
}
_SORTS = {
    "started": lambda line: line.started,
    "name": lambda line: line.name,
    "outcome": lambda line: line.outcome,
    "steps": lambda line: line.steps,
    "reward": lambda line: float("-inf") if line.reward is None else line.reward,
    "pass rate": lambda line: float("-inf") if line.pass_rate is None else line.pass_rate,
    "time": lambda line: -1.0 if line.seconds is None else line.seconds,
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the index of a run is.

    Attributes:
        done: Bytes that were read.
        total: Bytes that there are.
        groups: Groups that were found.
        notes: What is wrong with the files, in sentences.
        complete: Whether everything was read that was there at the last look.
    """

    done: int
    total: int
    groups: int
    notes: list[str]
    complete: bool

    @property
    def share(self) -> float:
        """Share that was read."""
        return self.done / self.total if self.total else 0.0


class Viewer:
    """What all pages share.

    Args:
        runs: The runs.
        follower: Builds indexes.
        report: The service ``core/run-report``.
        templates: Folder of the templates.
        files: The address of each static file.
    """

    def __init__(
        self, runs: Runs, follower: Follower, report: Any, templates: Path, files: dict[str, str]
    ) -> None:
        self.runs = runs
        self.follower = follower
        self._report = report
        self._templates = report.environment(templates)
        self._templates.globals |= {"files": files, "number": _number, "span": _span, "path": _path}
        self._reports: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def render(self, template: str, **values: Any) -> str:
        """Render a page."""
        return str(self._templates.get_template(template).render(**values))

    def follow(self, folder: RunFolder) -> Path:
        """Keep a run's index in step; return its file."""
        return self.follower.follow(folder.path, folder.traces / "rollouts.jsonl")

    def marks(self, folder: RunFolder) -> Marks:
        """Return the notes and favourites of a run."""
        return Marks(folder, self.follower.cache.file(folder.path).with_suffix(".notes-lock"))

    def progress(self, folder: RunFolder) -> Progress:
        """Return how far a run's index is."""
        file = self.follow(folder)
        with reading(file) as index:
            known = index.execute("SELECT done, total FROM progress").fetchone()
            done, total = known or (0, 0)
            groups = index.execute("SELECT count(*) FROM groups").fetchone()[0]
            bad = index.execute(
                "SELECT number, damaged, skipped FROM parts WHERE damaged OR skipped"
            ).fetchall()
        notes = [
            f"file {row['number']} of the rollouts is damaged: what comes after is left out"
            for row in bad
            if row["damaged"]
        ]
        if skipped := sum(row["skipped"] for row in bad):
            notes.append(f"{skipped} lines of the rollouts are no groups or cannot be read")
        if fault := self.follower.faults.get(file):
            notes.append(f"the index cannot be built: {fault}")
        return Progress(done, total, groups, notes, known is not None and done >= total)

    def report(self, folder: RunFolder) -> dict[str, Any]:
        """Return the sections of a run's report; made again when its records have changed."""
        key = state(folder) + str(self.progress(folder).done)
        with self._lock:
            known = self._reports.get(folder.name)
            if known is None or known[0] != key:
                made = self._report(self.runs.view(folder), list(self._seen(folder)))
                self._reports.pop(folder.name, None)
                self._reports[folder.name] = known = key, made
                for oldest in list(self._reports)[:-KEPT]:
                    del self._reports[oldest]
            return known[1]

    def _seen(self, folder: RunFolder) -> Iterator[tuple[int, float, Mapping[str, str]]]:
        with reading(self.follow(folder)) as index:
            for row in index.execute(
                "SELECT step, passed, judged, labels FROM groups WHERE judged"
            ):
                yield row["step"], row["passed"] / row["judged"], json.loads(row["labels"])


def runs_page(viewer: Viewer, request: Request) -> str:
    """Return the table of runs."""
    query = request.query_params
    sort, down = query.get("sort", "started"), query.get("order", "down") != "up"
    if sort not in _SORTS:
        raise ConfigError(f"runs are sorted by {', '.join(_SORTS)}, not by '{sort}'")
    wanted, outcome = query.get("text", ""), query.get("outcome", "")
    every = list(viewer.runs.lines())
    lines = [
        line
        for line in every
        if wanted.lower() in line.name.lower() and outcome in ("", line.outcome)
    ]
    if sort != "started" or not down:
        lines.sort(key=_SORTS[sort], reverse=down)
    kept = {"text": wanted, "outcome": outcome}
    heads = [
        (
            name,
            urlencode({**kept, "sort": name, "order": "up" if name == sort and down else "down"}),
            ("descending" if down else "ascending") if name == sort else "none",
        )
        for name in ("name", "outcome", "steps", "reward", "pass rate", "started", "time")
    ]
    return viewer.render(
        "runs.html.j2",
        root=str(viewer.runs.root),
        lines=lines,
        total=len(every),
        outcomes=sorted({line.outcome for line in every}),
        text=wanted,
        outcome=outcome,
        heads=heads,
        sort=sort,
        order="down" if down else "up",
        temporary=viewer.follower.cache.temporary,
    )


def run_page(viewer: Viewer, request: Request) -> str:
    """Return a run's page, which fetches the sections of its report."""
    folder, common = _run(viewer, request)
    try:
        told, notes = facts(viewer.runs.view(folder).summary()), list[str]()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        told, notes = [], [f"its records are damaged: {type(error).__name__}: {error}"]
    notes += common["progress"].notes
    return viewer.render("run.html.j2", **common, facts=told, notes=notes)


def rollouts_page(viewer: Viewer, request: Request) -> str:
    """Return the rollout browser."""
    folder, common = _run(viewer, request)
    choice = Choice.of(request.query_params)
    marks, fault = _marks(viewer, folder)
    with reading(viewer.follow(folder)) as index:
        found = find(index, choice, marks)
        lists = options(index)
    pages = max(1, -(-found.total // PAGE))
    page = max(1, int(choice.page))
    return viewer.render(
        "rollouts.html.j2",
        **common,
        choice=choice,
        options=lists,
        rows=found.rows,
        total=found.total,
        page=page,
        pages=pages,
        before=choice.query(page=str(page - 1)) if page > 1 else None,
        after=choice.query(page=str(page + 1)) if page < pages else None,
        query=choice.query(),
        marks=marks,
        notes=[*common["progress"].notes, *fault],
    )


def group_page(viewer: Viewer, request: Request) -> str:
    """Return the page of one group.

    Raises:
        MissingError: If there is no such group, or it is no longer in the run's files.
    """
    folder, common = _run(viewer, request)
    choice, key = Choice.of(request.query_params), request.path_params["key"]
    marks, fault = _marks(viewer, folder)
    inner, given = choice.completions()
    with reading(viewer.follow(folder)) as index:
        found = index.execute("SELECT * FROM groups WHERE key = ?", (key,)).fetchone()
        if found is None:
            raise MissingError(
                f"there is no group {key} in what was read so far",
                remedy="look for it among the rollouts",
            )
        before, after = neighbours(index, choice, marks, key)
        times = index.execute(
            "SELECT count(*) FROM groups WHERE problem = ?", (found["problem"],)
        ).fetchone()[0]
        fitting = {
            row[0]
            for row in index.execute(
                f"SELECT c.sample FROM completions c JOIN groups g ON g.id = c.grp "
                f"WHERE g.id = ? AND {inner}",
                [found["id"], *given],
            )
        }
    stream = folder.traces / "rollouts.jsonl"
    [(_, row)] = read_rows(stream, [(found["part"], found["offset"], found["length"])])
    if row is None or row.get("step") != found["step"] or "completions" not in row:
        raise MissingError("the run's files have changed: this group is not there any more")
    add_gaps(row, folder.traces)
    view = viewer.runs.view(folder)
    tokenizer = tokenizer_of(view)
    whole = request.query_params.get("whole") == "1"
    shown = group.completions(row, view, tokenizer, whole=whole)
    for one in shown:
        one.matches = one.sample in fitting
    return viewer.render(
        "group.html.j2",
        **common,
        key=key,
        group=found,
        prompt=printable(str(row.get("prompt") or ""), None if whole else group.TEXT),
        completions=shown,
        facts=_group_facts(row, view),
        missing=group.not_recorded(row, tokenizer),
        coloured=any(turn.tokens for one in shown for turn in one.turns),
        colours=COLOURS,
        times=times,
        before=before,
        after=after,
        query=choice.query(),
        whole=whole,
        marks=marks,
        notes=fault,
    )


def problem_page(viewer: Viewer, request: Request) -> str:
    """Return the draws of one problem across the steps.

    Raises:
        MissingError: If it was never drawn.
    """
    folder, common = _run(viewer, request)
    problem = request.query_params.get("id", "")
    which = request.query_params.get("which", "best")
    if which not in compare.WHICH:
        raise ConfigError(f"which is one of {', '.join(compare.WHICH)}, not '{which}'")
    with reading(viewer.follow(folder)) as index:
        draws, total = compare.draws(index, problem, which)
    if not total:
        raise MissingError(f"problem '{problem}' is not in what was read so far")
    return viewer.render(
        "problem.html.j2",
        **common,
        problem=problem,
        which=which,
        kinds=compare.WHICH,
        draws=draws,
        total=total,
        notes=[],
    )


def _run(viewer: Viewer, request: Request) -> tuple[RunFolder, dict[str, Any]]:
    folder = viewer.runs.open(request.path_params["run"])
    name = folder.path.name
    common = {
        "run": name,
        "at": f"/runs/{quote(name, safe='')}",
        "outcome": viewer.runs.view(folder).outcome,
        "progress": viewer.progress(folder),
    }
    return folder, common


def _marks(viewer: Viewer, folder: RunFolder) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return a run's marks, and what is wrong with them."""
    try:
        return viewer.marks(folder).read(), []
    except RunError as error:
        return {}, [str(error)]


def _group_facts(row: Mapping[str, Any], view: Any) -> list[tuple[str, str]]:
    rows: list[dict[str, Any]] = view.metrics.rows
    metrics = next((one for one in rows if one["step"] == row["step"]), {})
    gap = finite(metrics.get("mismatch/abs_mean"))
    tags = row.get("tags")
    told = {
        "data set": row.get("dataset"),
        **(tags if isinstance(tags, dict) else {}),
        "policy version": row.get("sampled_version"),
        "fate": str(row.get("fate") or "differs by completion").replace("_", " "),
        "trainer-engine gap of the step": None if gap is None else f"{gap:.3g} nats a token",
    }
    return [(str(key), str(value)) for key, value in told.items() if value not in (None, "")]


def _number(value: Any) -> str:
    return "" if value is None else brief(value)


def _path(key: str) -> str:
    return quote(key, safe="")


def _span(seconds: float | None) -> str:
    """Return a span of time for people."""
    if seconds is None:
        return ""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {left:02d} s" if minutes else f"{left} s"
