"""The published order of the built-in samplers, by plain code that shares none with them.

``docs/samplers.md`` has the rules: the order of ``core/shuffle``, ``core/sequential``,
``core/curriculum`` and ``core/mixture`` follows from ids, seed and weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rlvr_core.api.services import local_path

if TYPE_CHECKING:
    from rlvr_core.api import Source
    from rlvr_core.api.services import RunConfig

SAMPLERS = "rlvr_core.builtin.samplers."
"""Where the samplers are whose order is computed here."""


def sampler_name(sampler: Any) -> str:
    """Return a sampler's module and class, such as ``epochs:Shuffle``."""
    kind = type(sampler)
    return f"{kind.__module__.removeprefix(SAMPLERS)}:{kind.__qualname__}"


def expected_order(
    config: RunConfig, sampler: Any, sources: Sequence[Source]
) -> Iterator[str] | None:
    """Return the ids in the order in which a sampler of ours has to draw them, without end.

    Args:
        config: The run's configuration.
        sampler: The sampler.
        sources: The training data.

    Returns:
        None for any other sampler, one that is derived from ours included.
    """
    name = sampler_name(sampler)
    seed, options = config.run.seed, config.sampler.with_
    whole = [problem.id for source in sources for problem in source.problems]
    if name == "epochs:Sequential":
        return _epochs(whole, None)
    if name == "curriculum:Curriculum":
        return _epochs(_file(options["order"], whole), None)
    if name == "epochs:Shuffle" and all(source.weight is None for source in sources):
        return _epochs(whole, (seed, 0))
    if name not in ("epochs:Shuffle", "mixture:Mixture"):
        return None
    pools: list[list[str]] = []
    keys: list[tuple[int, int] | None] = []
    for index, source in enumerate(sources):
        ids = [problem.id for problem in source.problems]
        shuffled = source.order in (None, "shuffle")
        keys.append((seed, index) if shuffled else None)
        if source.order not in (None, "shuffle", "sequential"):
            ids = _file(str(source.order), ids)
        pools.append(_shuffled(ids, keys[-1], 0)[: source.count])
    total = sum(map(len, pools))
    weights = [
        Fraction(len(pool) / total if source.weight is None else source.weight)
        for pool, source in zip(pools, sources, strict=True)
    ]
    mode = options.get("mode", "weighted") if name.startswith("mixture") else "weighted"
    return _mixed(pools, keys, weights, mode)


def _shuffled(ids: Sequence[str], key: tuple[int, int] | None, epoch: int) -> list[str]:
    """Return the order of an epoch: by the BLAKE2b of seed, source, epoch and id."""

    def rank(id_: str) -> bytes:
        text = repr((*(key or ()), epoch, id_)).encode("utf-8", "backslashreplace")
        return hashlib.blake2b(text, digest_size=8).digest()

    return list(ids) if key is None else sorted(ids, key=rank)


def _epochs(ids: Sequence[str], key: tuple[int, int] | None) -> Iterator[str]:
    epoch = 0
    while True:
        yield from _shuffled(ids, key, epoch)
        epoch += 1


def _mixed(
    pools: Sequence[Sequence[str]],
    keys: Sequence[tuple[int, int] | None],
    weights: Sequence[Fraction],
    mode: str,
) -> Iterator[str]:
    """Draw from sources in turns: who has had the least of its share is next."""
    streams = [_epochs(pool, key) for pool, key in zip(pools, keys, strict=True)]
    drawn, credit = [0] * len(pools), [Fraction(0)] * len(pools)
    while True:
        able = list(range(len(pools)))
        if mode != "weighted":
            epoch = min(n // len(pool) for n, pool in zip(drawn, pools, strict=True))
            able = [i for i in able if drawn[i] < (epoch + 1) * len(pools[i])]
            if all(n == epoch * len(pool) for n, pool in zip(drawn, pools, strict=True)):
                credit = [Fraction(0)] * len(pools)
        if mode == "sequential":
            chosen = able[0]
        else:
            for index in able:
                credit[index] += weights[index]
            chosen = max(able, key=lambda index: (credit[index], -index))
            credit[chosen] -= sum(weights[index] for index in able)
        drawn[chosen] += 1
        yield next(streams[chosen])


def _file(uri: str, known: Sequence[str]) -> list[str]:
    """Return the ids of an order file that the data have, in its order."""
    have = set(known)
    lines = local_path(uri).read_bytes().decode("utf-8-sig").split("\n")
    return [one for one in (line.removesuffix("\r") for line in lines) if one in have]
