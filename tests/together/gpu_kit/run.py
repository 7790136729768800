"""The checks that only a GPU can make: ``make gpu``, ``make gpu ARGS=--help``.

A  facts and ceilings          B  a step is right           C  how fast it is, and what it takes
W  whole runs with all guards  R  killed and resumed        D  two processes on a card
G  compiled                    I  weights on the card       E  vLLM

Each finding is a line of ``gpu.jsonl`` in ``--out`` and of the table that is printed; a check that
breaks is one too, and the next goes on. What a machine lacks is said, and nothing is made up.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import torch

from tests.together.gpu_kit.record import HEADER, Record, row_of


def main() -> int:
    """Run the parts; 1 if something is wrong."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    words.add_argument("--parts", default="".join(PARTS))
    words.add_argument("--out", type=Path, default=Path("build/gpu"))
    words.add_argument(
        "--model",
        default="tiny:math/arithmetic",
        help="folder of a tiny model, for parts W, R and D",
    )
    words.add_argument("--cases", help="of part C, by a part of their names; by default all")
    words.add_argument("--limit", type=float, default=300, help="seconds for the matrix of B")
    words.add_argument("--at-once", type=int, default=3, help="runs of part W beside each other")
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    record = Record(given.out)
    print(HEADER, flush=True)
    for part in given.parts:
        record.attempt(part, "whole part", lambda part=part: run(part, record, given))
    wrong = [one for one in record.findings if one.ok is False]
    print(f"\n{len(record.findings)} figures, {len(wrong)} wrong", *map(row_of, wrong), sep="\n")
    return bool(wrong)


def run(part: str, record: Record, given: argparse.Namespace) -> None:
    """One part."""
    if torch.cuda.is_available():
        PARTS[part](record, given)
    else:
        record.add(part, "whole part", None, note="not made: torch sees no GPU here")


def ceilings(record: Record, given: argparse.Namespace) -> None:
    """A."""
    from tests.together.gpu_kit.facts import facts

    facts(record)


def right(record: Record, given: argparse.Namespace) -> None:
    """B."""
    from tests.together.gpu_kit.right import right

    right(record, given.limit)


def fast(record: Record, given: argparse.Namespace) -> None:
    """C."""
    from tests.together.gpu_kit import fast

    fast.fast(record, [one for one in fast.CASES if given.cases is None or given.cases in one])
    if given.cases is None:
        record.attempt("C", "peer", lambda: fast.peer(record, "1.7B, 512 tokens"))
        fast.free()
        record.attempt("C", "profile", lambda: fast.profiled(record))
        fast.free()


def compiled(record: Record, given: argparse.Namespace) -> None:
    """G."""
    from tests.together.gpu_kit import fast, right

    right.compiled(record)
    fast.fast(record, fast.COMPILED, compiled=True)
    record.attempt("G", "profile", lambda: fast.profiled(record, compiled=True))


def runs(record: Record, given: argparse.Namespace) -> None:
    """W."""
    from tests.together.gpu_kit.runs import whole_runs

    whole_runs(record, given.model, given.at_once)


def resumed(record: Record, given: argparse.Namespace) -> None:
    """R."""
    from tests.together.gpu_kit import runs

    record.attempt("R", "resumed", lambda: runs.resumed(record, given.model))
    record.attempt("R", "wide", lambda: runs.wide(record))


def two(record: Record, given: argparse.Namespace) -> None:
    """D."""
    from tests.together.gpu_kit.two import two

    two(record, given.model)


def transports(record: Record, given: argparse.Namespace) -> None:
    """I."""
    from tests.together.gpu_kit.ipc import transports

    transports(record)


def engines(record: Record, given: argparse.Namespace) -> None:
    """E."""
    from tests.together.gpu_kit import engines

    if importlib.util.find_spec("vllm") is None:
        record.add("E", "whole part", None, note="not made: vLLM is not installed here")
    else:
        engines.engines(record, given.model)


PARTS = {"A": ceilings, "B": right, "C": fast, "W": runs, "R": resumed, "D": two}
PARTS |= {"G": compiled, "I": transports, "E": engines}

if __name__ == "__main__":
    sys.exit(main())
