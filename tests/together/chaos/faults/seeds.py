"""Completions share random numbers that should be their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.together.chaos.changes import COLLECT, requests
from tests.together.chaos.registry import BOTH, TWO, Patch, fault


def _seeds(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change the seeds of each request before any engine sees them."""
    requests(patch, lambda request: replace(request, seeds=tuple(change(request))))


@fault("seeds", backends=BOTH)
def one_seed_a_group(patch: Patch) -> None:
    """All completions of a group share one seed."""
    _seeds(patch, lambda request: [request.seeds[0]] * len(request.seeds))


@fault("seeds", backends=BOTH)
def last_seed_is_the_first(patch: Patch) -> None:
    """The last completion of each group has the seed of the first."""
    _seeds(patch, lambda request: [*request.seeds[:-1], request.seeds[0]])


@fault("seeds", backends=BOTH)
def same_seeds_for_every_problem(patch: Patch) -> None:
    """Every problem has the seeds 0 to 7."""
    _seeds(patch, lambda request: range(len(request.seeds)))


@fault("seeds", shape="few problems")
def seeds_without_version(patch: Patch) -> None:
    """Seeds do not depend on version and draw: a problem met again gets the same noise."""
    _seeds(
        patch,
        lambda request: [
            int.from_bytes(f"{request.problem.id}{i}".encode(), "big") % 2**62
            for i in range(len(request.seeds))
        ],
    )


@fault("seeds")
def answers_copied_in_group(patch: Patch) -> None:
    """The engine's first answer stands for all of its group."""

    def make(original: Any) -> Any:
        first: dict[Any, Any] = {}

        def completion(prompt_ids: Any, generation: Any) -> Any:
            key = (prompt_ids, generation.version)
            return original(prompt_ids, first.setdefault(key, generation))

        return completion

    patch.wrap(f"{COLLECT}:_completion", make)


@fault("seeds", shape="groups that grow")
def chunks_of_a_group_begin_again(patch: Patch) -> None:
    """A group that grows gets the seeds of its first chunk for every other chunk."""

    def make(original: Any) -> Any:
        def request(self: Any, draw: Any, *args: Any) -> Any:
            first = original(self, replace(draw, first=0), *args)
            return replace(original(self, draw, *args), seeds=first.seeds)

        return request

    patch.wrap(f"{COLLECT}:Generator._request", make)


@fault("seeds", backends=TWO)
def each_process_counts_its_seeds_from_one(patch: Patch) -> None:
    """Seeds are made of how many requests a process had: both processes have the same."""
    counted: dict[tuple[int, int], int] = {}

    def make(original: Any) -> Any:
        def seed(run: int, problem: str, version: int, draw: int, sample: int) -> int:
            place = counted.setdefault((version, draw), len(counted))
            return int(original(run, "", 0, place, sample))

        return seed

    patch.wrap(f"{COLLECT}:completion_seed", make)
