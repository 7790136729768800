"""Public figures of GPUs, and what share of them the planner takes to be attainable."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_core.parallel.cards import PEAKS

PRODUCT_SHARE = 700 / 989
"""Share of the peak of bfloat16 products that a step of Qwen3-1.7B reached on an H200: 700 of 989
TFLOP/s. A single product of 8,192 x 8,192 reached 778."""
BANDWIDTH_SHARE = 4.0 / 4.8
"""Attainable share of the memory bandwidth: 4.0 of an H200's 4.8 TB/s; a copy reached 4.2."""
ELEMENTWISE_SHARE = 2.55 / 4.8
"""The share that element-wise operations of a step reached there, many of them on strided tensors
and each in a kernel of its own: 2.55 TB/s."""
LAUNCH = 4e-6
"""Seconds from one kernel launch to the next."""
RESERVED = 1.5 * 2**30
"""Bytes that CUDA, NCCL and gaps between allocations are assumed to take."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, as its maker describes it.

    Attributes:
        memory: Bytes of device memory that the driver shows.
        peak: Dense FLOP/s of products in 16 bits.
        wide: FLOP/s of products in float32, without TF32, which rlvr does not turn on.
        bandwidth: Bytes per second of device memory.
        link: Bytes per second to another GPU, one direction.
        host: Bytes per second to host memory, one direction.
    """

    memory: float
    peak: float
    wide: float
    bandwidth: float
    link: float
    host: float

    def products(self, *, half: bool) -> float:
        """Attainable FLOP/s of products in 16 bits, or in float32."""
        return (self.peak if half else self.wide) * PRODUCT_SHARE

    @property
    def attainable(self) -> float:
        """Attainable bytes per second of device memory."""
        return self.bandwidth * BANDWIDTH_SHARE

    @property
    def elementwise(self) -> float:
        """Bytes per second of device memory in the element-wise operations of training."""
        return self.bandwidth * ELEMENTWISE_SHARE


CARDS = {
    "h100-80": Card(81_559 * 2**20, *PEAKS["H100"], 3.35e12, 450e9, 50e9),
    "h200": Card(143_771 * 2**20, *PEAKS["H200"], 4.8e12, 450e9, 50e9),
    "a100-80": Card(81_920 * 2**20, *PEAKS["A100"], 2.039e12, 300e9, 25e9),
    "a100-40": Card(40_960 * 2**20, *PEAKS["A100"], 1.555e12, 300e9, 25e9),
    "l4-24": Card(23_034 * 2**20, *PEAKS["L4"], 0.3e12, 25e9, 25e9),
    "rtx4090-24": Card(24_564 * 2**20, *PEAKS["4090"], 1.008e12, 25e9, 25e9),
}


_NAMES = {"H100": "h100-80", "H200": "h200", "A100": "a100-80", "L4": "l4-24", "4090": "rtx4090-24"}


def card_named(name: str) -> Card | None:
    """The card that a driver calls by this name; None if not known."""
    words = name.replace("-", " ").split()
    key = next((key for word, key in _NAMES.items() if word in words), None)
    return None if key is None else CARDS[key]
