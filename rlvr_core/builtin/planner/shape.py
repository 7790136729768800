"""Sizes of a model, from its config.json and the meta device: no weight is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import MachineError
from rlvr_core.api.services import check_model_path

if TYPE_CHECKING:
    from rlvr_core.api.services import LoraSection, ModelSection

_REMEDY = "rlvr plan knows dense decoders with gated MLPs, such as Llama, Qwen2 and Qwen3"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a dense decoder.

    Attributes:
        layers: Number of them.
        hidden: Width of the residual stream.
        inner: Width of the MLP.
        heads: Query heads.
        kv_heads: Key heads.
        head_dim: Width of a head.
        vocab: Entries of the vocabulary.
        tied: Whether embedding and LM head are the same tensor.
        normed: Whether queries and keys are normalised.
        layer_params: Parameters of one layer.
        params: Parameters in all; a tied one once.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    normed: bool
    layer_params: int
    params: int

    @property
    def queries(self) -> int:
        """Width of all queries of a token."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all keys of a token; values are as wide."""
        return self.kv_heads * self.head_dim

    @property
    def head_params(self) -> int:
        """Parameters of the LM head."""
        return self.vocab * self.hidden

    @property
    def outer_params(self) -> int:
        """Parameters in no layer."""
        return self.params - self.layers * self.layer_params


def read_model(path: str, section: ModelSection) -> tuple[Shape, int]:
    """Return the sizes of a model, and how many parameters a run trains of it.

    Args:
        path: Its folder, or an id of the Hub that is in its cache.
        section: Revision, trust and adapter.

    Raises:
        MachineError: If it is not there, cannot be built or is of another kind.
    """
    check_model_path(path)
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            path,
            revision=section.revision,
            trust_remote_code=section.trust_remote_code,
            local_files_only=True,
        )
    except Exception as error:
        missing = not Path(path).expanduser().is_dir()
        raise MachineError(
            f"there is no config.json of '{path}' on this machine"
            if missing
            else f"config.json of '{path}' cannot be read: {_first(error)}",
            where="model.path",
            remedy="fetch it (hf download MODEL config.json) or name a model folder: rlvr plan "
            "reads nothing from the Hub"
            if missing
            else "name a folder that transformers can load",
        ) from error
    return measure(config, section.trust_remote_code, section.lora)


def measure(config: Any, trust: bool, lora: LoraSection | None) -> tuple[Shape, int]:
    """Build the model of a transformers configuration on the meta device and count; see above."""
    import torch
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            model = auto.from_config(config, trust_remote_code=trust)
    except Exception as error:
        raise MachineError(
            f"the model cannot be built: {_first(error)}", where="model.path", remedy=_REMEDY
        ) from error
    inner = config.get_text_config()
    found = _layers(model)
    names = ("hidden_size", "intermediate_size", "num_attention_heads")
    if not found or any(getattr(inner, name, None) is None for name in names) or _experts(found[0]):
        raise MachineError(
            f"{type(model).__name__} is not a model whose memory rlvr plan can compute",
            where="model.path",
            remedy=_REMEDY,
        )
    heads = inner.num_attention_heads
    embedded, head = model.get_input_embeddings(), model.get_output_embeddings()
    shape = Shape(
        layers=len(found),
        hidden=inner.hidden_size,
        inner=inner.intermediate_size,
        heads=heads,
        kv_heads=getattr(inner, "num_key_value_heads", None) or heads,
        head_dim=getattr(inner, "head_dim", None) or inner.hidden_size // heads,
        vocab=inner.vocab_size,
        tied=head is not None and head.weight is embedded.weight,
        normed=any(name.endswith("q_norm") for name, _ in found[0].named_modules()),
        layer_params=sum(one.numel() for one in found[0].parameters()),
        params=sum(one.numel() for one in model.parameters()),
    )
    return shape, shape.params if lora is None else _adapter(model, head, lora)


def _layers(model: Any) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]


def _experts(layer: Any) -> bool:
    return any("expert" in name or name.endswith("router") for name, _ in layer.named_modules())


def _adapter(model: Any, head: Any, lora: LoraSection) -> int:
    """Parameters of the adapter: rank x (inputs + outputs) of each layer that gets one."""
    import torch

    targets = lora.target_modules
    chosen = [
        one
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Linear)
        and (
            one is not head
            if targets == "all-linear"
            else any(name == target or name.endswith(f".{target}") for target in targets)
        )
    ]
    if not chosen:
        raise MachineError(
            f"no layer is named {', '.join(targets)}",
            where="model.lora.target_modules",
            remedy="name linear layers of the model, or all-linear",
        )
    return sum(lora.rank * (one.in_features + one.out_features) for one in chosen)


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
