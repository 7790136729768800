"""Verdicts per second of our maths verifiers and of the math-verify package, on the same rows.

    RLVR_DATA=data python benchmarks/verifiers.py [--rows N]

math-verify works as its users call it, with its timeouts on: ``parse(..., parsing_timeout=5)``
and ``verify(..., timeout_seconds=5)``. Rows are taken in slices, each side in turn, so that a
busy machine slows all of them. Needs ``pip install rlvr-core[bench]`` and rlvr-math.

Hangs are responses that keep math-verify until its own timeout.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from verifier_rows import SETS, Row, rows

from rlvr_core.verify.pool import VerifierPool, VerifierSpec

TIMEOUT = 5
THEIRS = "math-verify (package)"
TARGETS = {
    "answer": "rlvr_math.answer:Answer",
    "minerva": "rlvr_math.answer:Minerva",
    "qwen-math": "rlvr_math.answer:QwenMath",
    "math-verify": "rlvr_math.answer:MathVerify",
}
POOLED = "math-verify"
"""The preset that goes through the pool: it stands in for the package."""
HANG = r"so it is $\boxed{9^{9^{9^9}}}$."
HANGS = (0.0, 0.01, 0.05)
SLICE = 100
Judge = Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class Result:
    """What one side did: who judged, whether each row passed, and the seconds of all rows."""

    side: str
    verdicts: tuple[bool | None, ...]
    seconds: float


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="so many rows of each set [default: all]")
    options = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    print(
        f"math-verify {version('math-verify')}, sympy {version('sympy')}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| rows | one process each | | verdicts/s | x | as labelled |\n|---|---|---|---|---|---|")
    # the first rows: responses to one problem stay together
    sample = {name: rows(name)[: options.rows] for name in SETS}
    for name, some in sample.items():
        sides: dict[str, Judge] = {THEIRS: theirs}
        sides |= {f"ours: {preset}": _judge(preset) for preset in TARGETS}
        _table(name, [*_in_turns(some, sides), _pooled(some)], some)
    for share in HANGS:
        some = _with_hangs(sample["gsm8k"][:400], share)
        sides = {THEIRS: theirs, f"ours: {POOLED}": _judge(POOLED)}
        _table(f"gsm8k, {share:.0%} hangs", [*_in_turns(some, sides), _pooled(some)], some)


def _with_hangs(of: Sequence[Row], share: float) -> list[Row]:
    rng, hung = random.Random(1), list(of)
    for at in rng.sample(range(len(hung)), round(share * len(hung))):
        hung[at] = Row(f"hang/{at}", hung[at].gold, HANG, False)
    return hung


def _in_turns(of: Sequence[Row], sides: dict[str, Judge]) -> list[Result]:
    """Every side in this process, in turn, slice by slice."""
    for judge in sides.values():
        judge(of[0])  # imports and caches of patterns
    seconds = dict.fromkeys(sides, 0.0)
    verdicts: dict[str, list[bool]] = {side: [] for side in sides}
    for some in (of[start : start + SLICE] for start in range(0, len(of), SLICE)):
        for side, judge in sides.items():
            start = time.perf_counter()
            verdicts[side] += [judge(row) for row in some]
            seconds[side] += time.perf_counter() - start
    return [Result(side, tuple(verdicts[side]), seconds[side]) for side in sides]


def theirs(row: Row) -> bool:
    """The verdict of the math-verify package, as its users ask for it."""
    from math_verify import parse, verify

    gold = parse(f"\\boxed{{{row.gold}}}", parsing_timeout=TIMEOUT)
    answer = parse(row.response, parsing_timeout=TIMEOUT)
    return bool(verify(gold, answer, timeout_seconds=TIMEOUT))


def _judge(preset: str) -> Judge:
    verifier = VerifierSpec(TARGETS[preset], {}).build()
    return lambda row: bool(verifier.verify(row.problem, row.completion).passed)


def _pooled(of: Sequence[Row]) -> Result:
    spec = dict.fromkeys(("warm-up", "it"), VerifierSpec(TARGETS[POOLED], {}))
    with VerifierPool(spec, workers=1, timeout=TIMEOUT, memory_mb=4096) as pool:
        warm = Row("warm", r"\mathbb{R}\setminus\{1\}", r"\boxed{(1,\infty)}", False)
        alone = [warm.completion]
        for future in [pool.submit_group(warm.problem, alone, ["warm-up"]) for _ in range(50)]:
            future.result()  # its process has started and imported sympy
        for row in of[:60]:  # as after a run's first answers: the pool knows it is fast
            pool.submit_group(row.problem, [row.completion], ["it"]).result()
        start = time.perf_counter()
        groups = [list(some) for _, some in itertools.groupby(of, lambda row: row.problem.id)]
        futures = [
            pool.submit_group(some[0].problem, [row.completion for row in some], ["it"])
            for some in groups
        ]
        verdicts = tuple(one["it"].passed for future in futures for one in future.result())
        return Result(f"ours: {POOLED}, pool", verdicts, time.perf_counter() - start)


def _table(name: str, results: Sequence[Result], of: Sequence[Row]) -> None:
    base = results[0].seconds
    for result in results:
        pairs = zip(result.verdicts, of, strict=True)
        labelled = sum(bool(passed) == row.expected for passed, row in pairs)
        print(
            f"| {name} | {result.side} | {len(of):,} | {len(of) / result.seconds:,.0f} "
            f"| {base / result.seconds:.1f} | {labelled / len(of):.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
