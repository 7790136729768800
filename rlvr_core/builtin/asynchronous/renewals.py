"""Checks that an engine reports which tokens it sampled after a weight sync amid a completion.

A request that is unfinished when the engine has loaded new weights continues under the new ones. At
least one of its completions must then have tokens of the new version, since a batch ends with its
longest completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from rlvr_core.api import Generation, RunError

FEWEST = 2
"""Weight syncs amid completions after which an engine that never reports one is at fault."""

Answers = tuple[Generation, ...]


class Renewals:
    """Follows the requests that were unfinished at weight syncs; used by one thread."""

    def __init__(self) -> None:
        self._open: list[tuple[int, list[Future[Answers]]]] = []
        self._amid = self._reported = 0

    def loaded(self, version: int, unfinished: Sequence[Future[Answers]]) -> None:
        """Record the requests that were unfinished when the engine had loaded a version.

        Raises:
            RunError: If no token of earlier renewals has the version that it was sampled under.
        """
        later = []
        for one in self._open:
            if all(future.done() for future in one[1]):
                self._count(*one)
            else:
                later.append(one)
        self._open = later
        if unfinished:
            self._open.append((version, list(unfinished)))
        if self._amid >= FEWEST and not self._reported:
            raise RunError(
                f"guard sync: weights were renewed amid completions {self._amid} times, and no "
                "token was said to be sampled under new weights (token_versions; band: at least "
                "one each time): stale tokens and new ones have the same version",
                remedy="an engine that keeps unfinished requests at a sync gives the version of "
                "each token: look at Generation.token_versions; or set train.in_flight: drain",
            )

    def _count(self, version: int, futures: Sequence[Future[Answers]]) -> None:
        """Count a weight sync whose requests have been answered."""
        answered = [one for one in futures if not one.cancelled() and one.exception() is None]
        begun = [a for one in answered for a in one.result() if a.version < version]
        if begun:
            self._amid += 1
            self._reported += any(max(one.token_versions, default=0) >= version for one in begun)
