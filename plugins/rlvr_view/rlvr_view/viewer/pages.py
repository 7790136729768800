"""The pages: the values that each template renders."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rlvr_core.api import ConfigError
from rlvr_core.record.results import facts
from rlvr_core.toolkit import RunFolder, brief
from rlvr_view.report.groups import Groups, Seen
from rlvr_view.report.page import environment, fragment
from rlvr_view.report.records import Records
from rlvr_view.viewer import compare
from rlvr_view.viewer.choice import PAGE, Choice
from rlvr_view.viewer.index import reading
from rlvr_view.viewer.indexing import FIRST_LOOK, GLANCE, Follower
from rlvr_view.viewer.reader import Reader, span
from rlvr_view.viewer.runs import KEPT, SORTS, Runs, chosen, state
from rlvr_view.viewer.tokens import COLOURS

if TYPE_CHECKING:
    from starlette.requests import Request


class Viewer(Reader):
    """The state that all pages share.

    Args:
        runs: The runs.
        follower: Builds indexes.
        templates: Folder of the templates.
        files: The address of each static file.
    """

    def __init__(
        self, runs: Runs, follower: Follower, templates: Path, files: dict[str, str]
    ) -> None:
        super().__init__(runs, follower)
        self._templates = environment(templates)
        self._templates.globals |= {"files": files, "number": _number, "span": span, "path": _path}
        self._reports: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def render(self, template: str, **values: Any) -> str:
        """Render a page."""
        return str(self._templates.get_template(template).render(**values))

    def report(self, folder: RunFolder) -> dict[str, Any]:
        """Return the sections of a run's report, rebuilt when its records have changed."""
        key = state(folder) + str(self.progress(folder).done)
        with self._lock:
            known = self._reports.get(folder.name)
            if known is None or known[0] != key:
                groups = Groups(list(self._seen(folder)))
                sections = fragment(Records(self.runs.view(folder), folder.name, groups))
                self._reports.pop(folder.name, None)
                self._reports[folder.name] = known = key, sections
                for oldest in list(self._reports)[:-KEPT]:
                    del self._reports[oldest]
            return known[1]

    def _seen(self, folder: RunFolder) -> Iterator[Seen]:
        with reading(self.follow(folder)) as index:
            for row in index.execute(
                "SELECT step, passed, judged, labels FROM groups WHERE judged"
            ):
                rate = row["passed"] / row["judged"]
                yield Seen(row["step"], rate, json.loads(row["labels"]))


def runs_page(viewer: Viewer, request: Request) -> str:
    """Return the table of runs."""
    query = request.query_params
    sort, down = query.get("sort", "started"), query.get("order", "down") != "up"
    if sort not in SORTS:
        raise ConfigError(f"runs are sorted by {', '.join(SORTS)}, not by '{sort}'")
    text, outcome = query.get("text", ""), query.get("outcome", "")
    every = list(viewer.runs.lines())
    lines = chosen(every, text, outcome, sort, down=down)
    filters = {"text": text, "outcome": outcome}
    heads = [
        (
            name,
            urlencode(
                {**filters, "sort": name, "order": "up" if name == sort and down else "down"}
            ),
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
        text=text,
        outcome=outcome,
        heads=heads,
        sort=sort,
        order="down" if down else "up",
        temporary=viewer.follower.cache.temporary,
    )


def run_page(viewer: Viewer, request: Request) -> str:
    """Return a run's page, which fetches the sections of its report."""
    folder = viewer.runs.open(request.path_params["run"])
    try:  # before indexing starts, whose thread would slow this one down
        summary, notes = facts(viewer.runs.view(folder).summary()), list[str]()
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        summary, notes = [], [f"its records are damaged: {type(error).__name__}: {error}"]
    folder, common = _run(viewer, request, GLANCE)
    notes += common["progress"].notes
    return viewer.render("run.html.j2", **common, facts=summary, notes=notes)


def rollouts_page(viewer: Viewer, request: Request) -> str:
    """Return the rollout browser."""
    folder, common = _run(viewer, request)
    choice = Choice.of(request.query_params)
    page_rows, lists = viewer.find(folder, choice)
    pages = max(1, -(-page_rows.total // PAGE))
    page = max(1, int(choice.page))
    return viewer.render(
        "rollouts.html.j2",
        **common,
        choice=choice,
        options=lists,
        rows=page_rows.rows,
        total=page_rows.total,
        page=page,
        pages=pages,
        before=choice.query(page=str(page - 1)) if page > 1 else None,
        after=choice.query(page=str(page + 1)) if page < pages else None,
        query=choice.query(),
        notes=common["progress"].notes,
    )


def group_page(viewer: Viewer, request: Request) -> str:
    """Return the page of one group."""
    folder, common = _run(viewer, request)
    choice, key = Choice.of(request.query_params), request.path_params["key"]
    whole = request.query_params.get("whole") == "1"
    return viewer.render(
        "group.html.j2",
        **common,
        **viewer.group(folder, choice, key, whole=whole),
        colours=COLOURS,
        query=choice.query(),
    )


def problem_page(viewer: Viewer, request: Request) -> str:
    """Return the draws of one problem across the steps."""
    folder, common = _run(viewer, request)
    problem = request.query_params.get("id", "")
    which = request.query_params.get("which", "best")
    draws, total = viewer.draws(folder, problem, which)
    return viewer.render(
        "problem.html.j2",
        **common,
        problem=problem,
        which=which,
        kinds=compare.WHICH,
        draws=draws,
        total=total,
    )


def _run(
    viewer: Viewer, request: Request, patience: float = FIRST_LOOK
) -> tuple[RunFolder, dict[str, Any]]:
    folder = viewer.runs.open(request.path_params["run"])
    name = folder.path.name
    common = {
        "run": name,
        "at": f"/runs/{quote(name, safe='')}",
        "outcome": viewer.runs.view(folder).outcome,
        "progress": viewer.progress(folder, patience),
    }
    return folder, common


def _number(value: Any) -> str:
    return "" if value is None else brief(value)


def _path(key: str) -> str:
    return quote(key, safe="")
