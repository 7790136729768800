"""MFU that the roofline predicts for Qwen3-1.7B on an H200: the table of docs/plan.md.

    python tests/gpu_kit/mfu.py

By two sets of ceilings: those that were assumed before the card was touched (660 TFLOP/s for
products, 4.0 TB/s for everything else), and today's, which are what a step reached there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu_standin"), str(HERE.parents[1])]

import fast  # noqa: E402
from predict import setup_of  # noqa: E402
from steps import groups  # noqa: E402

from rlvr_core.builtin.planner import cards, speed  # noqa: E402
from rlvr_core.builtin.planner.setup import Setup  # noqa: E402

CASES = (
    ("1.7B, 512 tokens", False),
    ("1.7B, 512 tokens", True),
    ("1.7B, 512 tokens, every second layer", True),
    ("1.7B, 4096 tokens", True),
)
"""Cases of part C, with ``train.compile`` or without."""
OF_PEAK, OF_BANDWIDTH = 660e12, 4.0e12
"""The ceilings that were assumed for everything, FLOP/s and bytes a second."""
MEASURED = 790e12
"""FLOP/s of the largest product that was measured on an H200; the 28 % were of these."""


def planned(name: str, *, compiled: bool) -> Setup:
    """A case of the kit, as the planner has it."""
    case = fast.case_of(name)
    given = groups(case, 151_936)
    trained = sum(len(one.completion.token_ids) for group in given for one in group.members)
    prompts = sum(len(group.members[0].completion.prompt_ids) for group in given)
    sizes = {"loss_tokens": trained, "tokens": trained + prompts}
    return setup_of(case, [sizes], compiled=compiled)


class Assumed(cards.Card):
    """A card of which everything reaches what was assumed at first."""

    def products(self, *, half: bool) -> float:
        """See ``Card``."""
        return OF_PEAK

    @property
    def attainable(self) -> float:
        """See ``Card``."""
        return OF_BANDWIDTH

    elementwise = attainable


def mfu(setup: Setup) -> tuple[float, float]:
    """Seconds of a step and its FLOP/s, six a parameter and token that the model is given."""
    timed = speed.speed_of(setup, 1e11)
    seconds = timed.scoring + timed.gradient + timed.optimizer
    return seconds, 6 * setup.shape.params * setup.step_tokens / seconds


def first(setup: Setup) -> Setup:
    """The same by the first ceilings."""
    card = setup.card
    fields = (card.memory, card.peak, card.wide, card.bandwidth, card.link, card.host)
    return replace(setup, card=Assumed(*fields))


def table() -> Iterator[str]:
    """Lines of the page."""
    yield (
        "| case | first ceilings: s | MFU of 790 TFLOP/s | today's: s | MFU of 790 | MFU of 989 |"
    )
    yield "|---|---|---|---|---|---|"
    for name, compiled in CASES:
        setup = planned(name, compiled=compiled)
        (then, fast_then), (now, fast_now) = mfu(first(setup)), mfu(setup)
        label = name.removeprefix("1.7B, ") + (", compiled" if compiled else "")
        yield (
            f"| {label} | {then:.2f} | {fast_then / MEASURED:.1%} | {now:.2f} "
            f"| {fast_now / MEASURED:.1%} | {fast_now / fast.PEAK:.1%} |"
        )


if __name__ == "__main__":
    print("\n".join(table()))
