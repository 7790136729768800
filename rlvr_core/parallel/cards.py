"""Public figures of GPUs."""

from __future__ import annotations

PEAKS = {
    "H100": (989e12, 67e12),
    "H200": (989e12, 67e12),
    "A100": (312e12, 19.5e12),
    "L4": (121e12, 30.3e12),
    "4090": (165.2e12, 82.6e12),
}
"""Dense FLOP/s of products in 16 bits, and in float32 without TF32, which rlvr does not turn on."""


def peak_of(name: str, *, half: bool) -> float | None:
    """FLOP/s of products of the GPU that a driver calls by this name; None if not known."""
    words = name.replace("-", " ").split()
    peaks = next((peaks for word, peaks in PEAKS.items() if word in words), None)
    return None if peaks is None else peaks[0 if half else 1]
