"""D: two processes on one card train as one does, by ``ddp``: gloo carries what NCCL would.

NCCL wants a card for each process. FSDP2 over gloo and one card ends in a segmentation fault.
"""

from __future__ import annotations

import sys
import time

from tests.together.gpu_kit.record import Record
from tests.together.gpu_kit.runs import QUICKSTART, RLVR, keep, metrics, side_by_side, words_of

STEPS = 8
CHANGES = ["model.dtype=bfloat16", "checkpoint.every=100"]
SAYS = """
import sys
import torch.distributed as dist
plain = dist.init_process_group
def joined(*given, **more):
    more["backend"] = "gloo"
    return plain(*given, **more)
dist.init_process_group = joined
from rlvr_core.cli.main import main
sys.argv[0] = "rlvr"
sys.exit(main())
"""


def two(record: Record, model: str) -> None:
    """Compare one process with two."""
    alone = rewards(record, model, "alone", 1, [])
    record.attempt("D", "ddp", lambda: compared(record, model, "ddp", alone))
    record.add("D", "fsdp", None, note="not made: it needs NCCL, and that a card for each process")


def compared(record: Record, model: str, strategy: str, alone: dict[str, list[float]]) -> None:
    """Two processes against one: the first step's loss and gradient, and what was learnt."""
    begun = time.monotonic()
    both = rewards(record, model, strategy, 2, [f"train.parallel={strategy}"])
    for metric in ("loss", "grad_norm"):
        far = abs(both[metric][0] / alone[metric][0] - 1)
        name = f"{strategy}: {metric} of the first step against one process"
        record.add("D", name, far, "relative", limit=0.02, ok=far <= 0.02)
    last = both["reward/mean"][-1], alone["reward/mean"][-1]
    note = f"reward of step {STEPS}: {last[0]:.3f}, alone {last[1]:.3f}"
    record.add("D", f"{strategy}: seconds", time.monotonic() - begun, "s", note=note)


def rewards(
    record: Record, model: str, name: str, world: int, more: list[str]
) -> dict[str, list[float]]:
    """Run it, and return metrics by name, a number a step.

    Raises:
        RuntimeError: A process failed.
    """
    place = record.folder / "work" / f"two-{name}"
    words = words_of(QUICKSTART, place, model, STEPS, *CHANGES, *more)
    words = [sys.executable, "-c", SAYS, *words[len(RLVR) :]]
    codes, logs = side_by_side(words, place, world, cards=1, limit=150)
    said = keep(record, f"two processes, {name}: {codes}", place, *logs)
    if any(codes):
        lines = [line for line in said.splitlines() if "error" in line.lower()]
        raise RuntimeError(f"exit codes {codes}: {lines[-1] if lines else said[-300:]}")
    return metrics(place)
