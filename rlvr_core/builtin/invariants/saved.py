"""Whether what a checkpoint says beside its tensors is what the run had."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LEDGER = "ledger/"
ADAPTER = "adapter_config.json"


def other_adapter(folder: Path, model: Any) -> str:
    """Return how a saved adapter would act otherwise than the live one; empty if it would not.

    A program that loads it multiplies its matrices by a scale that its config gives, and puts them
    beside the layers that it names.
    """
    if not (folder / ADAPTER).is_file():
        return ""
    said = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
    layers = {name: one for name, one in model.named_modules() if hasattr(one, "lora_A")}
    if said.get("use_dora") or said.get("rank_pattern") or said.get("alpha_pattern"):
        return ""
    rank, alpha = said.get("r"), said.get("lora_alpha")
    due = alpha / (math.sqrt(rank) if said.get("use_rslora") else rank)
    targets = said.get("target_modules")
    for name, layer in layers.items():
        (has, *_) = layer.scaling.values()
        if not math.isclose(has, due, rel_tol=1e-6):
            return (
                f"{ADAPTER} has lora_alpha {alpha} and r {rank}, a scale of {due:g}, and the "
                f"adapter of {name} had {has:g}"
            )
        if isinstance(targets, list) and not any(f".{name}".endswith(f".{t}") for t in targets):
            return f"{ADAPTER} does not name {name}, which has an adapter"
    return ""


class LedgerLines:
    """Adds up what a run's lines say of its completions: a checkpoint's accounts must be the same.

    Attributes:
        total: By fate, and ``drawn``; None after a checkpoint that did not have them.
    """

    def __init__(self) -> None:
        self.total: Counter[str] | None = Counter()

    def add(self, line: Mapping[str, float]) -> None:
        """Add the line of a step."""
        if self.total is not None:
            for name, value in line.items():
                if name.startswith(LEDGER) and name != "ledger/in_flight":
                    self.total[name.removeprefix(LEDGER)] += round(value)

    def wrong(self, taken: Mapping[str, int], folder: Path) -> str:
        """Return what a checkpoint's ledger says otherwise than the lines up to it."""
        state = json.loads((folder / "trainer" / "state.json").read_text(encoding="utf-8"))
        ledger = state.get("ledger")
        if ledger is None:
            return ""
        # what was drawn or settled since the last line is in the next one
        has = Counter(ledger["total"]) - Counter(ledger["step"])
        has["drawn"] = ledger["drawn"] - ledger["drawn_in_step"]
        for name in sorted(has.keys() | taken.keys()):
            if has[name] != taken.get(name, 0):
                return (
                    f"its ledger has {has[name]} completions as {name}, and the lines of its "
                    f"steps add up to {taken.get(name, 0)}"
                )
        return ""
