"""Invariant ``sync``: the engine computes with the weights that it was sent.

After each sync the engine's own parameters are read back, in its process, and compared bit for bit
with the trainer's, rounded as the engine holds them. A probe of log-probs cannot tell the weights
of one small update from those of the next, above all in bfloat16; sums of bits can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr_core.api import EngineTraits, FingerprintsWeights, traits_of
from rlvr_core.api.services import weight_checksums
from rlvr_core.builtin.invariants.check import Invariant, Trainer, compute_dtype

if TYPE_CHECKING:
    from rlvr_core.api import Engine, WeightSource

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Parts of tensors that engines put together, in their names."""


class Sync(Invariant):
    """Weights are where they were sent.

    Args:
        engine: The engine of this process.
        trainer: The policy's trainer.
    """

    id, phase = "sync", "after each sync"

    def __init__(self, engine: Engine, trainer: Trainer) -> None:
        self._engine = engine if isinstance(engine, FingerprintsWeights) else None
        self._own_names = traits_of(engine, EngineTraits).own_weights
        self._trainer = trainer

    def weights_loaded(self, step: int, version: int, source: WeightSource) -> None:
        """Compare the engine's weights with the trainer's; raises ``RunError``."""
        # a sharded policy would have to be gathered once more
        if self._engine is None or source.sharded:
            return
        held = self._engine.fingerprint()
        if not held:
            return
        if self._own_names:
            dtype = compute_dtype(self._trainer)
            sent = weight_checksums(source.tensors(), dtype)
        else:
            sent = weight_checksums(source.module.named_parameters())
        compared, differing = compare(sent, held)
        if differing:
            raise self.fault(
                step,
                f"after the sync to version {version} the engine holds other weights than the "
                f"trainer in {len(differing)} of {compared} tensors: {differing[0]} "
                "(band: none)",
                "the engine kept its old weights: they were not sent, or not loaded"
                if len(differing) == compared
                else "part of the weights did not arrive: look at the names that the engine's "
                "loading leaves out",
            )


def compare(sent: Mapping[str, int], held: Mapping[str, int]) -> tuple[int, list[str]]:
    """Compare checksums by name, of fused tensors by their sum.

    Returns:
        Tensors of the engine that have a counterpart, and the names of those that differ.
    """
    # a moving reference beside the adapter in the trainer's module is no part of the policy
    held = {name: value for name, value in held.items() if ".reference." not in name}
    compared, differing = 0, []
    for name, value in held.items():
        parts = [name]
        for fused, single in FUSED.items():
            if fused in name and name not in sent:
                parts = [name.replace(fused, one) for one in single]
        if all(part in sent for part in parts):
            compared += 1
            if sum(sent[part] for part in parts) != value:
                differing.append(name)
    return compared, differing
