"""Invariant ``sync``: the engine computes with the weights that it was sent.

After each sync the engine's own parameters are read back, in its process, and compared bit for bit
with the trainer's, rounded as the engine holds them. A probe of log-probs cannot tell the weights
of one small update from those of the next, above all in bfloat16; checksums of bits can. What
cannot be read from weights, such as the scale of an adapter or a cache of prompts, is asked by a
probe where engine and trainer compute alike (``Twin``). What the model computes with beside its
weights, such as the frequencies of a rotation or an epsilon, no sync sends: it is compared from the
start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rlvr_core.api import Engine, EngineTraits, FingerprintsWeights, Metric, traits_of
from rlvr_core.api.services import model_state, weight_checksums
from rlvr_core.builtin.invariants.check import Invariant, Trainer, compute_dtype
from rlvr_core.builtin.invariants.expected import Form, expected
from rlvr_core.builtin.invariants.fingerprints import is_sharded
from rlvr_core.builtin.invariants.twin import Twin

if TYPE_CHECKING:
    from torch import nn

    from rlvr_core.api import GroupsScored, RunStarted, WeightSource
    from rlvr_core.api.services import RunConfig

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Parts of tensors that engines put together, in their names."""

ULPS = 4
"""Units in the last place by which a buffer may differ from the trainer's in each element: another
device may have computed it."""


class Sync(Invariant):
    """Weights are where they were sent.

    Args:
        config: The run's configuration.
        engine: The engine of this process.
        trainer: The policy's trainer.
    """

    id, phase = "sync", "after each sync"
    reports = (
        Metric(
            "sync/read_back",
            "Share of the policy's tensors that the last read-back of the engine compared.",
            "share",
        ),
    )

    def __init__(self, config: RunConfig, engine: Engine, trainer: Trainer) -> None:
        self._engine = engine if isinstance(engine, FingerprintsWeights) else None
        traits = traits_of(engine, EngineTraits)
        self._own = traits.own_weights or traits.separate
        self._form: Form = "beside" if traits.takes_adapter else "whole"
        self._separate = traits.separate
        self._trainer, self._lora = trainer, config.model.lora
        self._left_out = frozenset[str]()
        self._moved = frozenset[str]()
        self._found: dict[str, float] = {}
        generates = isinstance(self._engine, Engine) and traits.seeded
        self._twin = Twin(engine, trainer) if generates and not self._own else None

    def run_started(self, event: RunStarted) -> None:
        """Learn in what form an engine of own weights holds those that both begin with."""
        compared = self._compared(event.step)
        # a server may hold any weights before its first sync
        if compared is None or self._separate:
            return
        if self._own:
            # weights that vLLM scales, or puts into another order, when it loads them
            # an adapter comes with the first sync
            loaded = [name for name in compared.other if ".lora_" not in name]
            self._left_out, self._moved = frozenset(loaded), frozenset(compared.moved)
        self._report(compared)

    def on_groups(self, event: GroupsScored) -> None:
        """Take prompts of the step for the probe."""
        if self._twin is not None:
            self._twin.prepare(event)

    def weights_loaded(self, step: int, version: int, source: WeightSource) -> None:
        """Compare the engine's weights with the trainer's; raises ``RunError``."""
        compared = self._compared(step)
        if compared is not None:
            self._report(compared)
            self._judge(step, version, compared)
        if self._twin is not None and (wrong := self._twin.judged(version)):
            raise self.fault(step, *wrong)

    def end(self, view: object) -> Mapping[str, float]:
        """Return how much was read back."""
        return self._found

    def _compared(self, step: int) -> Comparison | None:
        """The engine's weights beside the trainer's; None where they cannot be read."""
        model = self._trainer.model
        # a sharded policy would have to be gathered once more
        if self._engine is None or any(is_sharded(one) for one in model.parameters()):
            return None
        held = self._engine.fingerprint()
        if not held:
            return None
        if different := other_state(model, held):
            raise self.fault(
                step,
                f"the engine's model differs from the trainer's in {len(different)} of what they "
                f"compute with beside weights: {different[0]} (band {ULPS} units in the last "
                "place)",
                "it was made from another config, or its buffers were cast with its weights: keep "
                "buffers in the precision that the model's class gives them",
            )
        dtype = compute_dtype(self._trainer) if self._own else None
        sent = expected(model, self._form, dtype, self._lora)
        if not any(".lora_" in name for name in held):
            # one that takes the adapter and merges it by arithmetic of its own
            sent = {name: one for name, one in sent.items() if _adapter_of(name) not in sent}
        return compare(sent, held, self._left_out)

    def _report(self, compared: Comparison) -> None:
        self._found = {"sync/read_back": compared.share}

    def _judge(self, step: int, version: int, compared: Comparison) -> None:
        moved = [] if self._separate else sorted(set(compared.moved) - self._moved)
        differing = compared.other or moved
        if not differing:
            return
        what = (
            f"after the sync to version {version} the engine holds other weights than the trainer "
            f"in {len(differing)} of {compared.n} tensors: {differing[0]} (band: none)"
        )
        if not compared.other:
            cause = (
                "it has the trainer's numbers in other places: tensors, heads or rows were "
                "exchanged, or a matrix transposed, when the weights were loaded"
            )
        elif self._lora is not None:
            cause = (
                "the adapter that the engine adds, or has merged, is an older one, lacks layers, "
                "or is not multiplied by its alpha / rank"
            )
        elif len(differing) == compared.n:
            cause = "the engine kept its old weights: they were not sent, or not loaded"
        else:
            cause = (
                "part of the weights did not arrive, or was merged or rounded wrongly: look at the "
                "names that the engine's loading leaves out"
            )
        raise self.fault(step, what, cause)


def _adapter_of(name: str) -> str:
    """Name of the first matrix of a layer's adapter."""
    return f"{name.rpartition('.')[0]}.lora_A.weight"


def other_state(module: nn.Module, held: Mapping[str, int]) -> list[str]:
    """Return the names of buffers and numbers of layers that an engine's model has otherwise.

    Args:
        module: The policy, not sharded.
        held: The engine's checksums; what is not among them is not compared.
    """
    state = {name: one for name, one in model_state(module) if name in held}
    # the sum of bits is in front, and moves by as many as its elements together
    return [
        name
        for name, due in weight_checksums(state.items()).items()
        if abs((held[name] >> 64) - (due >> 64)) > ULPS * state[name].numel()
    ]


class Comparison:
    """What a comparison by name found.

    Attributes:
        n: Tensors of the engine that have a counterpart.
        share: Share of the trainer's tensors that are in them; those of one checksum, as the two
            names of a tied tensor have, are one.
        other: Names of those that hold other numbers.
        moved: Names of those that hold the same numbers in other places.
    """

    def __init__(self) -> None:
        self.n, self.share = 0, 0.0
        self.other: list[str] = []
        self.moved: list[str] = []


def compare(
    sent: Mapping[str, int], held: Mapping[str, int], left_out: Collection[str] = ()
) -> Comparison:
    """Compare checksums by name, of fused tensors by the sums of their parts.

    Args:
        sent: The trainer's.
        held: The engine's.
        left_out: Names that are not compared.
    """
    found, covered = Comparison(), set[int]()
    # a moving reference beside the adapter in the trainer's module is no part of the policy
    for name, value in held.items():
        if ".reference." in name or name in left_out:
            continue
        parts = [name]
        for fused, single in FUSED.items():
            if fused in name and name not in sent:
                parts = [name.replace(fused, one) for one in single]
        if all(part in sent for part in parts):
            found.n += 1
            covered.update(sent[part] for part in parts)
            # the sum of bits is in front, and behind it what depends on their order
            if sum(sent[part] >> 64 for part in parts) != value >> 64:
                found.other.append(name)
            elif len(parts) == 1 and sent[name] != value:
                found.moved.append(name)
        elif ".lora_" in name and value:  # an adapter where the trainer has none
            found.n += 1
            found.other.append(name)
    found.share = len(covered) / max(len(set(sent.values())), 1)
    return found
