"""Reports the row layout and attention of a run on a GPU, and why they are not the fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import DataReport
from rlvr_core.packing.attention_mask import flash_fault
from rlvr_core.packing.packed import heads_of, padded_because

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def way_of_run(model: PreTrainedModel, paths: Sequence[str], dtype: torch.dtype) -> DataReport:
    """Say which attention the rows of a run take, and why no faster one.

    Args:
        model: The policy, on its device.
        paths: ``model.forward_paths``.
        dtype: What is computed in.

    Returns:
        What to say, and what ``run.json`` keeps under ``attention``: ``rows`` is ``packed`` or
        ``padded``, ``kernel`` is ``flash``, ``grids`` or ``its own``; ``reason`` is empty where
        nothing is faster.
    """
    if "core/packed" not in paths:
        return _report("padded", "its own", "model.forward_paths has no core/packed")
    heads = heads_of(model)
    if not heads:
        why = padded_because(model) or "packed rows do not give what whole rows give"
        return _report("padded", "its own", why)
    faults = [flash_fault(model.device, dtype, sizes) for sizes in sorted(heads)]
    why = next(filter(None, faults), "")
    return _report("packed", "grids" if why else "flash", why)


def _report(rows: str, kernel: str, why: str) -> DataReport:
    record = {"rows": rows, "kernel": kernel, "reason": why}
    if not why:
        line = "attention: rows are packed, flash kernel"
    elif rows == "packed":
        line = f"attention: rows are packed, but padded for attention. No flash kernel: {why}"
    else:
        line = f"attention: rows are padded, the slowest way: {why} (rlvr docs speed)"
    return DataReport("attention", record, (line,))
