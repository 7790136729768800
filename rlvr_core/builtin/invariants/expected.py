"""The checksums that an engine's weights must have, from the trainer's parameters alone.

What an engine is sent is made by code that may be wrong itself, so it is not asked: adapters are
added here by the formula and the numbers of the config.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch

from rlvr_core.api.services import weight_checksums

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rlvr_core.api.services import LoraSection

Form = Literal["whole", "beside"]
"""Of weights in an engine: a plain model with adapters merged, or the base model and the matrices
of the adapter beside it."""


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
