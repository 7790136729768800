"""Completions share random numbers that should be their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.registry import EVERYWHERE, Patch, fault


def seeds(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change the seeds of each request before any engine sees them."""
    patch.after(
        "rlvr_core.rollout.collect:Generator._request",
        lambda request, *_: replace(request, seeds=tuple(change(request))),
    )


@fault("seeds", backends=EVERYWHERE)
def one_seed_a_group(patch: Patch) -> None:
    """All completions of a group share one seed."""
    seeds(patch, lambda r: [r.seeds[0]] * len(r.seeds))


@fault("seeds", backends=EVERYWHERE)
def two_seeds_of_eight(patch: Patch) -> None:
    """Two distinct seeds in a group of eight."""
    seeds(patch, lambda r: [r.seeds[i % 2] for i in range(len(r.seeds))])


@fault("seeds", backends=EVERYWHERE)
def four_seeds_of_eight(patch: Patch) -> None:
    """Four distinct seeds in a group of eight."""
    seeds(patch, lambda r: [r.seeds[i // 2] for i in range(len(r.seeds))])


@fault("seeds")
def seven_seeds_of_eight(patch: Patch) -> None:
    """The last completion of each group has the seed of the first."""
    seeds(patch, lambda r: [*r.seeds[:-1], r.seeds[0]])


@fault("seeds", backends=EVERYWHERE)
def same_seeds_for_every_problem(patch: Patch) -> None:
    """Every problem has the seeds 0 to 7."""
    seeds(patch, lambda r: range(len(r.seeds)))


@fault("seeds")
def same_seeds_for_every_problem_of_a_step(patch: Patch) -> None:
    """All problems of a policy version have the same seeds."""
    seeds(
        patch,
        lambda r: [hash(r.id.split("@")[1].split("#")[0]) % 9973 + i for i in range(len(r.seeds))],
    )


@fault("seeds")
def one_seed_for_all(patch: Patch) -> None:
    """Every completion of the run has the same seed."""
    seeds(patch, lambda r: [7] * len(r.seeds))


@fault("seeds", "duplicate", backends=EVERYWHERE)
def answers_copied_in_group(patch: Patch) -> None:
    """The engine's first answer stands for all of its group."""
    patch.after(
        "rlvr_core.rollout.collect:_fault",
        lambda found, *_: found,
    )

    def make(original: Any) -> Any:
        first: dict[Any, Any] = {}

        def completion(prompt_ids: Any, generation: Any) -> Any:
            key = (prompt_ids, generation.version)
            return original(prompt_ids, first.setdefault(key, generation))

        return completion

    patch.wrap("rlvr_core.rollout.collect:_completion", make)


@fault("seeds", shape="few problems")
def seeds_without_version(patch: Patch) -> None:
    """Seeds do not depend on version and draw: a problem met again gets the same noise."""
    patch.after(
        "rlvr_core.rollout.collect:Generator._request",
        lambda request, *_: replace(
            request,
            seeds=tuple(
                int.from_bytes(f"{request.problem.id}{i}".encode(), "big") % 2**62
                for i in range(len(request.seeds))
            ),
        ),
    )
