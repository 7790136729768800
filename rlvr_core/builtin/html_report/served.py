"""The report for ``rlvr view``: a run's sections, and the static files that draw them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlvr_core.api import RunView
from rlvr_core.builtin.html_report.groups import Groups, Seen
from rlvr_core.builtin.html_report.page import assets, environment, fragment
from rlvr_core.builtin.html_report.records import Records


class RunReport:
    """The service ``core/run-report``."""

    assets = staticmethod(assets)
    environment = staticmethod(environment)

    def __call__(
        self, view: RunView, seen: Iterable[tuple[int, float, Mapping[str, str]]]
    ) -> dict[str, Any]:
        """Return the sections of a run's report; see ``fragment``.

        Args:
            view: The run.
            seen: The step, pass rate and labels of each judged group.
        """
        groups = Groups([Seen(*one) for one in seen])
        return fragment(Records(view, view.folder.name, groups=groups))


run_report = RunReport()
