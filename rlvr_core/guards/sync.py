"""Guard ``core/sync``: the engine computes with the trainer's weights (T2, T30).

After each sync the engine's weights are read back as checksums and compared with those that the
trainer's parameters must have, tensor by tensor. What an engine is sent is made by code that may be
wrong itself, so adapters are added here by the formula and the numbers of the config.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch

from rlvr_core.api import EngineTraits, FingerprintsWeights, Metric, NoConfig, traits_of
from rlvr_core.api.guards import BaseGuard
from rlvr_core.engines.sync import weight_checksums
from rlvr_core.guards.tensors import is_sharded

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rlvr_core.api import GuardContext, RunStarted, WeightSource
    from rlvr_core.config.model import LoraSection

Form = Literal["whole", "beside"]
"""Of weights in an engine: a plain model with adapters merged, or the base model and the matrices
of the adapter beside it."""

OFTEN, EVERY = 3, 20
"""First syncs of a process that are read back each; later one of so many, as it is a pass over all
weights on both sides."""

FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""Parts of tensors that engines put together, in their names."""


class Sync(BaseGuard):
    """Weights are where they were sent."""

    name = "core/sync"
    reports = (
        Metric(
            "sync/read_back",
            "Share of the policy's tensors that the last read-back of the engine compared.",
            "share",
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._left_out = frozenset[str]()
        self._moved = frozenset[str]()
        self._syncs = 0

    def bind(self, context: GuardContext) -> None:
        """Learn in what form the engine holds the weights."""
        super().bind(context)
        engine = context.engine
        self._engine = engine if isinstance(engine, FingerprintsWeights) else None
        traits = traits_of(engine, EngineTraits)
        self._own = traits.own_weights or traits.separate
        self._form: Form = "beside" if traits.takes_adapter else "whole"
        self._separate = traits.separate
        self._lora = context.config.model.lora

    def run_started(self, event: RunStarted) -> None:
        """Note which weights the engine holds otherwise from the beginning."""
        # a server may hold any weights before its first sync
        if self._separate or (compared := self._compared()) is None:
            return
        if self._own:
            # weights that vLLM scales, quantises or puts into another order when it loads them; an
            # adapter comes with the first sync
            loaded = [name for name in compared.other if ".lora_" not in name]
            self._left_out, self._moved = frozenset(loaded), frozenset(compared.moved)
            if loaded:
                self.say_once(
                    f"does not look at {len(loaded)} of {compared.n} tensors, which the engine "
                    f"holds in a form of its own, such as {loaded[0]}"
                )
        self.numbers = {"sync/read_back": compared.share}

    def weights_loaded(self, version: int, source: WeightSource) -> None:
        """Compare the engine's weights with the trainer's."""
        self._syncs += 1
        if self._syncs > OFTEN and self._syncs % EVERY:
            return
        if (compared := self._compared()) is not None:
            self.numbers = {"sync/read_back": compared.share}
            self._judge(version, compared)

    def _compared(self) -> Comparison | None:
        """The engine's weights beside the trainer's; None where they cannot be read."""
        model = self.context.trainer.model
        # a sharded policy would have to be gathered once more
        if self._engine is None or any(is_sharded(tensor) for tensor in model.parameters()):
            return None
        try:
            held = self._engine.fingerprint()
        except (AttributeError, KeyError, NotImplementedError, TypeError) as error:
            # a layer that the engine's reading of weights does not know
            self.say_once(f"does not look: the engine cannot read its weights back ({error})")
            self._engine = None
            return None
        if not held:
            return None
        dtype = self.compute_dtype if self._own else None
        sent = expected(model, self._form, dtype, self._lora)
        if not any(".lora_" in name for name in held):
            # one that takes the adapter and merges it by arithmetic of its own
            sent = {name: one for name, one in sent.items() if _adapter_of(name) not in sent}
        return compare(sent, held, self._left_out)

    def _judge(self, version: int, compared: Comparison) -> None:
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
        elif len(differing) == compared.n:
            cause = "the engine kept its old weights: they were not sent, or not loaded"
        else:
            cause = (
                "part of the weights did not arrive, or was merged or rounded wrongly, such as an "
                "adapter without its alpha / rank: look at what the engine's loading leaves out"
            )
        raise self.fault(self.view.step, what, cause)


def _adapter_of(name: str) -> str:
    """Name of the first matrix of a layer's adapter."""
    return f"{name.rpartition('.')[0]}.lora_A.weight"


@dataclass(slots=True)
class Comparison:
    """What a comparison by name found.

    Attributes:
        n: Tensors of the engine that have a counterpart.
        share: Share of the trainer's tensors that are in them; those of one checksum, as the two
            names of a tied tensor have, are one.
        other: Names of those that hold other numbers.
        moved: Names of those that hold the same numbers in other places.
    """

    n: int = 0
    share: float = 0.0
    other: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)


def compare(
    sent: Mapping[str, int], held: Mapping[str, int], left_out: Collection[str] = ()
) -> Comparison:
    """Compare checksums by name, of fused tensors by the sums of their parts.

    Args:
        sent: The trainer's.
        held: The engine's.
        left_out: Names that are not compared.
    """
    result, covered = Comparison(), set[int]()
    # a moving reference beside the adapter in the trainer's module is no part of the policy
    for name, value in held.items():
        if ".reference." in name or name in left_out:
            continue
        parts = [name]
        for fused, single in FUSED.items():
            if fused in name and name not in sent:
                parts = [name.replace(fused, part) for part in single]
        if all(part in sent for part in parts):
            result.n += 1
            covered.update(sent[part] for part in parts)
            # the sum of bits is in front, and behind it what depends on their order
            if sum(sent[part] >> 64 for part in parts) != value >> 64:
                result.other.append(name)
            elif len(parts) == 1 and sent[name] != value:
                result.moved.append(name)
        elif ".lora_" in name and value:  # an adapter where the trainer has none
            result.n += 1
            result.other.append(name)
    result.share = len(covered) / max(len(set(sent.values())), 1)
    return result


@torch.no_grad()
def expected(
    module: nn.Module, form: Form, dtype: torch.dtype | None, lora: LoraSection | None
) -> dict[str, int]:
    """Return checksums by the names that engines report; see ``FingerprintsWeights``.

    Args:
        module: The policy, not sharded.
        form: How the engine holds it.
        dtype: Precision that an engine of own weights rounds to; None for the trainer's own.
        lora: The config's adapter; None where all weights are trained.
    """
    scale = 1.0 if lora is None else lora.alpha / lora.rank
    return weight_checksums(_named(module, form, dtype, scale), dtype)


def _named(
    module: nn.Module, form: Form, dtype: torch.dtype | None, scale: float
) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in module.named_parameters(remove_duplicate=False):
        owner, base, leaf = name.rpartition(".base_layer.")
        layer: Any = module.get_submodule(owner) if base else None
        if base:
            merged = form == "whole" and leaf == "weight"
            yield f"{owner}.{leaf}", _merged(layer, parameter, scale) if merged else parameter
        elif ".lora_" not in name:
            yield name, parameter
        elif form == "beside" and name.endswith(".default.weight"):
            matrix = parameter.to(dtype or parameter.dtype)
            matrix = matrix * scale if ".lora_B." in name else matrix
            yield name.replace(".default.", "."), matrix


def _merged(layer: Any, weight: Tensor, scale: float) -> Tensor:
    """W + alpha / rank * B A, in the adapter's precision (Hu et al. 2021, section 4.1)."""
    product_OI: Tensor = scale * (layer.lora_B["default"].weight @ layer.lora_A["default"].weight)
    product_OI = product_OI.T if layer.fan_in_fan_out else product_OI
    wide = torch.promote_types(weight.dtype, product_OI.dtype)
    merged: Tensor = weight.to(wide) + product_OI
    return merged
