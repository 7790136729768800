"""Verdicts per second of our maths verifiers and of the math-verify package, on the same rows.

    RLVR_DATA=data python benchmarks/verifiers.py [--quick | --rows N] [--processes N] [--json FILE]

math-verify works as its users call it, with its timeouts on: ``parse(..., parsing_timeout=5)``
and ``verify(..., timeout_seconds=5)``. Rows are taken in slices, each side in turn, so that a
busy machine slows all of them. Needs ``pip install rlvr-core[bench]`` and rlvr-math.

Hangs are responses that keep math-verify until its own timeout. Our verifiers judge the same
responses without hanging; the side ``made to hang`` is one of ours that does hang on them, in C,
so that the pool must kill it at the same five seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psutil
from verifier_rows import SETS, Row, rows

from rlvr_core.api import Completion, Problem, Verdict
from rlvr_core.verify.pool import VerifierPool, VerifierSpec, percentile
from rlvr_math.answer import MathVerify

TIMEOUT = 5
THEIRS = "math-verify (package)"
OURS = {
    "gsm8k": ("gsm8k", "gsm8k-flexible", "answer", "qwen-math", "math-verify"),
    "math-gold": ("answer", "minerva", "qwen-math", "math-verify"),
    "math-corrupted": ("answer", "minerva", "qwen-math", "math-verify"),
}
TARGETS = {
    "gsm8k": "rlvr_math.final_number:Gsm8k",
    "gsm8k-flexible": "rlvr_math.answer:Gsm8kFlexible",
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
    """What one side did with one set.

    Attributes:
        set: Which rows.
        side: Who judged.
        verdicts: Whether each row passed.
        seconds: Wall time of all rows.
        cpu: CPU seconds of all its processes; None where some were killed.
        p50: Median seconds of one row.
        p99: 99th percentile of the same.
    """

    set: str
    side: str
    verdicts: tuple[bool | None, ...]
    seconds: float
    cpu: float | None
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        """Verdicts per second."""
        return len(self.verdicts) / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Verdicts per second of CPU time; 0 where it is not known."""
        return len(self.verdicts) / self.cpu if self.cpu else 0.0


class Hanging(MathVerify):
    """A verifier that never comes back from one response: a power with a hundred million digits."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response, or hang."""
        if completion.text == HANG:
            return Verdict(float(7 ** (10**9) > 0))
        return super().verify(problem, completion)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="300 rows of each set, 100 for hangs")
    parser.add_argument("--rows", type=int, help="so many rows of each set [default: all]")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="also write every figure there")
    options = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    print(
        f"math-verify {version('math-verify')}, sympy {version('sympy')}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    done: list[Result] = []
    sample = {name: _sample(rows(name), 300 if options.quick else options.rows) for name in SETS}
    print(_heading("one process each"))
    for name in SETS:
        found = [*_in_process(name, sample[name]), _pooled(name, sample[name], 1)]
        done += _table(found, sample[name])
    many = options.processes
    if many > 1:
        print("\n" + _heading(f"{many} processes each"))
        for name in SETS:
            some = sample[name][:5000]
            done += _table([_theirs_many(name, some, many), _pooled(name, some, many)], some)
    print("\n" + _heading("one process each, hangs among GSM8K's rows"))
    for share in HANGS:
        some = _with_hangs(_sample(sample["gsm8k"], 100 if options.quick else 400), share)
        done += _table(_hanging(f"{share:.0%} hangs", some), some)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in done]))


def _sample(of: Sequence[Row], n: int | None) -> list[Row]:
    """The first rows: responses to one problem stay together."""
    return list(of[:n])


def _with_hangs(of: Sequence[Row], share: float) -> list[Row]:
    rng, hung = random.Random(1), list(of)
    for at in rng.sample(range(len(hung)), round(share * len(hung))):
        hung[at] = Row(f"hang/{at}", hung[at].gold, HANG, False)
    return hung


def _in_process(name: str, of: Sequence[Row]) -> list[Result]:
    """Every side in this process, in turn, slice by slice."""
    sides: dict[str, Judge] = {THEIRS: theirs}
    sides |= {f"ours: {preset}": _judge(preset) for preset in OURS[name]}
    return _measure(name, of, sides)


def _measure(name: str, of: Sequence[Row], sides: dict[str, Judge]) -> list[Result]:
    for judge in sides.values():
        judge(of[0])  # imports and caches of patterns
    took: dict[str, list[float]] = {side: [] for side in sides}
    said: dict[str, list[bool]] = {side: [] for side in sides}
    cpu = dict.fromkeys(sides, 0.0)
    for some in _slices(of):
        for side, judge in sides.items():
            before = time.process_time()
            for row in some:
                start = time.perf_counter()
                verdict = judge(row)
                took[side].append(time.perf_counter() - start)
                said[side].append(verdict)
            cpu[side] += time.process_time() - before
    return [
        Result(name, side, tuple(said[side]), sum(took[side]), cpu[side], *_percentiles(took[side]))
        for side in sides
    ]


def _slices(of: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(of), SLICE):
        yield of[start : start + SLICE]


def theirs(row: Row) -> bool:
    """The verdict of the math-verify package, as its users ask for it."""
    from math_verify import parse, verify

    gold = parse(f"\\boxed{{{row.gold}}}", parsing_timeout=TIMEOUT)
    answer = parse(row.response, parsing_timeout=TIMEOUT)
    return bool(verify(gold, answer, timeout_seconds=TIMEOUT))


def _judge(preset: str) -> Judge:
    verifier = VerifierSpec(TARGETS[preset], {}).build()
    return lambda row: bool(verifier.verify(row.problem, row.completion).passed)


def _pooled(name: str, of: Sequence[Row], workers: int, target: str = TARGETS[POOLED]) -> Result:
    side = f"ours: {POOLED}, pool" if target == TARGETS[POOLED] else "ours: made to hang, pool"
    spec = dict.fromkeys(("warm-up", "it"), VerifierSpec(target, {}))
    with VerifierPool(spec, workers=workers, timeout=TIMEOUT, memory_mb=4096) as pool:
        warm = Row("warm", r"\mathbb{R}\setminus\{1\}", r"\boxed{(1,\infty)}", False)
        alone = [warm.completion]
        for future in [pool.submit_group(warm.problem, alone, ["warm-up"]) for _ in range(50)]:
            future.result()  # its processes have started and imported sympy
        if target == TARGETS[POOLED]:  # as after a run's first answers: the pool knows it is fast
            for row in of[:60]:
                pool.submit_group(row.problem, [row.completion], ["it"]).result()
        processes = [psutil.Process(pid) for pid in (os.getpid(), *pool.pids())]
        before, start = _cpu(processes), time.perf_counter()
        groups = [list(some) for _, some in itertools.groupby(of, lambda row: row.problem.id)]
        futures = [
            pool.submit_group(some[0].problem, [row.completion for row in some], ["it"])
            for some in groups
        ]
        said = tuple(one["it"].passed for future in futures for one in future.result())
        seconds, stats = time.perf_counter() - start, pool.stats()["it"]
        cpu = None if stats.timeouts else _cpu(processes) - before
    return Result(name, side, said, seconds, cpu, stats.p50, stats.p99)


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _theirs_many(name: str, of: Sequence[Row], processes: int) -> Result:
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(_timed, [of[0]] * 50 * processes, chunksize=50)
        start = time.perf_counter()
        found = pool.map(_timed, of, chunksize=20)
        seconds = time.perf_counter() - start
    said, took, cpu = zip(*found, strict=True)
    return Result(name, THEIRS, said, seconds, sum(cpu), *_percentiles(took))


def _timed(row: Row) -> tuple[bool, float, float]:
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    before, start = time.process_time(), time.perf_counter()
    return theirs(row), time.perf_counter() - start, time.process_time() - before


def _hanging(name: str, of: Sequence[Row]) -> list[Result]:
    sides = {THEIRS: theirs, f"ours: {POOLED}": _judge(POOLED)}
    found = [*_measure(name, of, sides), _pooled(name, of, 1)]
    return [*found, _pooled(name, of, 1, "verifiers:Hanging")]


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(seconds)
    return percentile(ordered, 0.5), percentile(ordered, 0.99)


def _heading(what: str) -> str:
    columns = (
        "rows | verdicts/s | x | verdicts per CPU s | x | p50 ms | p99 ms "
        "| as labelled | as math-verify"
    )
    return f"| {what} | | {columns} |\n|---|---|" + "---|" * 9


def _table(found: Sequence[Result], of: Sequence[Row]) -> Sequence[Result]:
    base = found[0]
    for one in found:
        labelled = sum(
            bool(said) == row.expected for said, row in zip(one.verdicts, of, strict=True)
        )
        alike = sum(bool(a) == bool(b) for a, b in zip(one.verdicts, base.verdicts, strict=True))
        n, by_cpu = len(of), _or_dash(one.cpu_rate / base.cpu_rate, 1)
        print(
            f"| {one.set} | {one.side} | {n:,} | {one.rate:,.0f} | {one.rate / base.rate:.1f} "
            f"| {_or_dash(one.cpu_rate)} | {by_cpu} "
            f"| {one.p50 * 1e3:.3f} | {one.p99 * 1e3:.3f} | {labelled / n:.2%} | {alike / n:.2%} |",
            flush=True,
        )
    return found


def _or_dash(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}" if value else "-"


if __name__ == "__main__":
    main()
