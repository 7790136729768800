"""The web application: routes and responses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from rlvr_core.api import ConfigError, RlvrError, RunError
from rlvr_core.toolkit import printable
from rlvr_view.report.page import assets
from rlvr_view.viewer import pages
from rlvr_view.viewer.choice import Choice
from rlvr_view.viewer.export import KINDS
from rlvr_view.viewer.fence import HEADERS, Fence
from rlvr_view.viewer.index import Cache
from rlvr_view.viewer.indexing import Follower
from rlvr_view.viewer.pages import Viewer
from rlvr_view.viewer.runs import MissingError, OutsideError, Runs, state

HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def application(runs: Runs, cache: Cache) -> Starlette:
    """Return the application.

    Args:
        runs: The runs to show.
        cache: Where indexes are kept; closed when the application ends.

    Raises:
        MachineError: If plotly is not installed.
    """
    viewer_files = {
        name: (HERE / name).read_text(encoding="utf-8") for name in ("viewer.css", "viewer.js")
    }
    files = {name: text.encode() for name, text in {**assets(), **viewer_files}.items()}
    viewer = Viewer(runs, Follower(cache), HERE, _stamped(files))

    @asynccontextmanager
    async def life(_: Starlette) -> Any:
        yield
        viewer.follower.close()
        cache.close()

    site = Site(viewer, files)
    return Starlette(
        routes=site.routes(),
        middleware=[Middleware(Fence)],
        exception_handlers={RlvrError: site.faulty, 404: site.unknown, Exception: site.broken},
        lifespan=life,
    )


class Site:
    """Responds to requests.

    Args:
        viewer: State that the pages share.
        files: The static files by name.
    """

    def __init__(self, viewer: Viewer, files: Mapping[str, bytes]) -> None:
        self._viewer = viewer
        self._files = files

    def routes(self) -> list[Route]:
        """Return the routes."""
        run = "/runs/{run}"
        return [
            Route("/", self._page(pages.runs_page)),
            Route("/state", self._list_state),
            Route("/static/{stamp}/{name}", self._static),
            Route(run, self._page(pages.run_page)),
            Route(f"{run}/state", self._run_state),
            Route(f"{run}/report", self._report),
            Route(f"{run}/rollouts", self._page(pages.rollouts_page)),
            Route(f"{run}/groups/{{key}}", self._page(pages.group_page)),
            Route(f"{run}/problem", self._page(pages.problem_page)),
            Route(f"{run}/export", self._export),
        ]

    def faulty(self, request: Request, error: Exception) -> Response:
        """Respond with what is wrong with a request or a run."""
        assert isinstance(error, RlvrError)
        status = {MissingError: 404, OutsideError: 403, ConfigError: 400, RunError: 409}.get(
            type(error), 500
        )
        if request.url.path.endswith(("/state", "/report")):
            return _json({"error": printable(str(error))}, status)
        text = self._viewer.render("fault.html.j2", fault=error, status=status)
        return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)

    def unknown(self, request: Request, error: Exception) -> Response:
        """Respond that there is no such page."""
        return self.faulty(request, MissingError("there is no such page"))

    def broken(self, request: Request, error: Exception) -> Response:
        """Respond that a page cannot be rendered."""
        fault = RunError(
            f"this page cannot be made: {type(error).__name__}: {error}",
            remedy="a damaged record can be the cause; the traceback is in rlvr view's terminal",
        )
        answer = self.faulty(request, fault)
        answer.status_code = 500
        answer.headers.update(HEADERS)  # this response does not pass through Fence
        return answer

    def _page(self, make: Callable[[Viewer, Request], str]) -> Callable[[Request], Response]:
        """Return a handler that sends a page."""

        def answer(request: Request) -> Response:
            return HTMLResponse(make(self._viewer, request).encode("utf-8", "backslashreplace"))

        return answer

    def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            raise MissingError("there is no such file")
        lasting = {"cache-control": "max-age=31536000, immutable"}
        return Response(self._files[name], media_type=_TYPES[Path(name).suffix], headers=lasting)

    def _run_state(self, request: Request) -> Response:
        folder = self._viewer.runs.open(request.path_params["run"])
        done = self._viewer.progress(folder).done
        return _json({"state": _digest(state(folder) + str(done))})

    def _list_state(self, request: Request) -> Response:
        lines = [{**line.data(), "seconds": None} for line in self._viewer.runs.lines()]
        return _json({"state": _digest(json.dumps(lines))})

    def _report(self, request: Request) -> Response:
        folder = self._viewer.runs.open(request.path_params["run"])
        return _json(self._viewer.report(folder))

    def _export(self, request: Request) -> Response:
        """Send the chosen completions as a file.

        Raises:
            ConfigError: If the kind is unknown.
            RunError: If the rollouts are still being read.
        """
        folder = self._viewer.runs.open(request.path_params["run"])
        choice, kind = Choice.of(request.query_params), request.query_params.get("kind", "jsonl")
        if kind not in KINDS:
            raise ConfigError(f"kind is one of {', '.join(KINDS)}, not '{kind}'")
        lines = self._viewer.exported(folder, choice, kind)
        name = quote(f"{folder.name}-{'answers' if kind == 'sft' else 'rollouts'}.jsonl", safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


def _stamped(files: dict[str, bytes]) -> dict[str, str]:
    """Return the address of each file, which changes with its content."""
    return {
        name: f"/static/{hashlib.sha256(content).hexdigest()[:12]}/{name}"
        for name, content in files.items()
    }


def _json(value: Any, status: int = 200) -> Response:
    """Return JSON in ASCII: halves of surrogate pairs cannot be written otherwise."""
    return Response(json.dumps(value), status, media_type="application/json")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
