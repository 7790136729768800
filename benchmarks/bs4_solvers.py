"""Reference and common-bug solvers of every rlvr_bs4 archetype on many seeds.

    python benchmarks/bs4_solvers.py --seeds 200
    python benchmarks/bs4_solvers.py --seeds 200 --constant

``bits`` is the entropy of the answers, at most log2 of the seeds. Exits with 1 unless every
reference solver has full marks under every parser and every bug solver fails on at least four
fifths of the seeds. With ``--constant`` no solver runs: what one and the same response is worth on
every task of an archetype, the best archetype for it first.
"""

from __future__ import annotations

import argparse
import sys
import time

from rlvr_bs4 import catalog
from rlvr_bs4.generate import SPLITS
from rlvr_bs4.site import PARSERS
from rlvr_bs4.solvers import Score, constant, score


def main() -> int:
    """Print a line per archetype; the exit code."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=200, help="seeds of each archetype")
    options.add_argument("--size", default="small", help="bare, small, medium or large")
    options.add_argument("--only", nargs="*", default=None, help="archetypes")
    options.add_argument("--split", default="train", choices=SPLITS)
    options.add_argument("--start", type=int, default=0, help="seeds of the split to leave out")
    options.add_argument("--constant", action="store_true", help="of constant responses instead")
    args = options.parse_args()
    if args.constant:
        return constants(args)
    begin, bad = time.perf_counter(), 0
    print(f"{'archetype':34} {'reference (html.parser, lxml)':32} bits  bug solvers: share failed")
    for id in args.only or catalog.everything():
        found = score(id, args.seeds, args.size, args.split, PARSERS, args.start)
        bad += not found.good
        print(line(found), flush=True)
    print(f"{bad} bad, {time.perf_counter() - begin:.0f} s")
    return 1 if bad else 0


def constants(args: argparse.Namespace) -> int:
    """Print what a constant response is worth on each archetype; the exit code."""
    ids = args.only or list(catalog.everything())
    found = {id: constant(id, args.seeds, args.size, args.split, args.start) for id in ids}
    for id, (right, said) in sorted(found.items(), key=lambda one: (-one[1][0], one[0])):
        print(f"{id:34} {right:6.3f}  {said if len(said) <= 100 else said[:99] + '…'}")
    return 0


def line(found: Score) -> str:
    """One archetype's results."""
    right = " ".join(f"{found.right[parser]}/{found.n}" for parser in PARSERS)
    bugs = ", ".join(f"{name} {failed / found.n:.2f}" for name, failed in found.failed.items())
    return f"{found.id:34} {right:32} {found.bits:4.1f}  {bugs}{'' if found.good else '   <-- BAD'}"


if __name__ == "__main__":
    sys.exit(main())
