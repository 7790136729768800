"""The ``ModelAdapter`` for LoRA, built from the functions of this folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlvr_core.api import Adapter, ModelAdapter
from rlvr_core.lora import adapter, lora


class LoraAdapter:
    """Trains LoRA adapters; see ``ModelAdapter``."""

    keeps_base = True

    def check_installed(self) -> None:
        """See ``ModelAdapter``."""
        lora.check_installed()

    def lines(self, section: Any) -> list[str]:
        """Describe rank, factor and layers."""
        targets = section.target_modules
        named = targets if isinstance(targets, str) else ", ".join(targets)
        return [
            f"lora: rank {section.rank}, alpha {section.alpha}, dropout {section.dropout:g}, "
            f"on {named}"
        ]

    def install(
        self,
        model: Any,
        section: Any,
        *,
        seed: int,
        compute: torch.dtype,
        path: str,
        revision: str | None,
        where: str,
    ) -> None:
        """See ``ModelAdapter``."""
        lora.attach(
            model, section, seed=seed, compute=compute, path=path, revision=revision, where=where
        )

    def trained_tensors(self, model: Any) -> dict[str, Tensor]:
        """Return the matrices of the policy's adapter."""
        return {name: matrix.detach() for name, matrix in adapter.matrices(model).items()}

    def merged_tensors(self, model: Any) -> Iterator[tuple[str, Tensor]]:
        """See ``ModelAdapter``."""
        return adapter.merged_tensors(model)

    def adapter(self, model: Any) -> Adapter:
        """See ``ModelAdapter``."""
        return adapter.adapter_of(model)

    def save(
        self, folder: Path, model: Any, tensors: dict[str, Tensor], dtype: torch.dtype
    ) -> None:
        """Write the adapter as peft loads it, always in float32."""
        lora.write(folder, model, tensors)

    def load(self, folder: Path, model: Any) -> dict[str, Tensor]:
        """See ``ModelAdapter``."""
        return lora.read(folder, model)

    def dropout(self, model: Any, *key: int) -> contextlib.AbstractContextManager[None]:
        """See ``ModelAdapter``."""
        return lora.dropout(model, *key)

    def add_reference(self, model: Any) -> None:
        """Add a second adapter, equal to the first."""
        lora.attach_reference(model)

    def as_reference(self, model: Any, *, moving: bool) -> contextlib.AbstractContextManager[None]:
        """Use the second adapter if the reference moves; else disable the adapters."""
        return lora.reference(model) if moving else lora.base(model)

    def reference_pairs(self, model: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
        """See ``ModelAdapter``."""
        return lora.pairs(model)

    def is_linear(self, module: nn.Module) -> bool:
        """See ``ModelAdapter``."""
        return adapter.is_plain_linear(module)

    def weight_of(self, module: Any) -> Tensor:
        """See ``ModelAdapter``."""
        return adapter.weight_of(module)


LORA: ModelAdapter = LoraAdapter()
