"""The ``ModelAdapter`` for LoRA, built from the functions of this folder."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import Adapter
from rlvr_core.api.forward import ModelAdapter
from rlvr_core.lora import adapter, lora


class LoraAdapter:
    """Trains LoRA adapters; see ``ModelAdapter``."""

    keeps_base = True

    check_installed = staticmethod(lora.check_installed)
    install = staticmethod(lora.attach)
    merged_tensors = staticmethod(adapter.merged_tensors)
    load = staticmethod(lora.read)
    dropout = staticmethod(lora.dropout)
    add_reference = staticmethod(lora.attach_reference)
    reference_pairs = staticmethod(lora.pairs)

    def lines(self, section: Any) -> list[str]:
        """Describe rank, factor and layers."""
        targets = section.target_modules
        named = targets if isinstance(targets, str) else ", ".join(targets)
        return [
            f"lora: rank {section.rank}, alpha {section.alpha}, dropout {section.dropout:g}, "
            f"on {named}"
        ]

    def trained_tensors(self, model: Any) -> dict[str, Tensor]:
        """Return the matrices of the policy's adapter."""
        return {name: matrix.detach() for name, matrix in adapter.matrices(model).items()}

    def adapter(self, model: Any) -> Adapter:
        """See ``ModelAdapter``."""
        return adapter.adapter_of(model)

    def save(
        self, folder: Path, model: Any, tensors: dict[str, Tensor], dtype: torch.dtype
    ) -> None:
        """Write the adapter as peft loads it, always in float32."""
        lora.write(folder, model, tensors)

    def as_reference(self, model: Any, *, moving: bool) -> contextlib.AbstractContextManager[None]:
        """Use the second adapter if the reference moves; else disable the adapters."""
        return lora.reference(model) if moving else lora.base(model)


LORA: ModelAdapter = LoraAdapter()
