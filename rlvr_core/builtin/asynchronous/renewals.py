"""Whether an engine says which tokens it sampled after new weights came amid a completion.

What is unfinished when the engine has loaded new weights, and began under older ones, goes on under
the new ones. Of the completions that it is answered with, one at least must have tokens of the new
version, as what the engine was sampling together ends with its longest completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from rlvr_core.api import Generation, RunError

FEWEST = 2
"""Renewals amid completions from which an engine that never says so is wrong."""

Answers = tuple[Generation, ...]


class Renewals:
    """Follows the requests that were unfinished at weight syncs; used by one thread."""

    def __init__(self) -> None:
        self._open: list[tuple[int, list[Future[Answers]]]] = []
        self._amid = self._told = 0

    def loaded(self, version: int, unfinished: Sequence[Future[Answers]]) -> None:
        """Note what was unfinished when the engine had loaded a version.

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
        if self._amid >= FEWEST and not self._told:
            raise RunError(
                f"guard sync: weights were renewed amid completions {self._amid} times, and no "
                "token was said to be sampled under new weights (token_versions; band: at least "
                "one each time): stale tokens and new ones have the same version",
                remedy="an engine that keeps unfinished requests at a sync gives the version of "
                "each token: look at Generation.token_versions; or set train.in_flight: drain",
            )

    def _count(self, version: int, futures: Sequence[Future[Answers]]) -> None:
        """Count a renewal whose requests are answered."""
        answered = [one for one in futures if not one.cancelled() and one.exception() is None]
        begun = [a for one in answered for a in one.result() if a.version < version]
        if begun:
            self._amid += 1
            self._told += any(max(one.token_versions, default=0) >= version for one in begun)
