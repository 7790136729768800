"""Reads the sizes of a model from its config.json and the meta device, without weights."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, MachineError, one_line
from rlvr_core.toolkit import ModelSection, check_model_path

if TYPE_CHECKING:
    from rlvr_core.config.model import LoraSection

_REMEDY = "it knows dense decoders such as Llama, Qwen2, Qwen3, by folder or hub id (filled cache)"
_LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
"""Names of the linear layers in the models that the formulas describe."""
_BESIDE = {"", "self_attn", "mlp", "act_fn", "q_norm", "k_norm"}
_BESIDE |= {"input_layernorm", "post_attention_layernorm"}
"""Names of the other modules that such a layer may have."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a dense decoder.

    Attributes:
        layers: Number of layers.
        hidden: Width of the residual stream.
        inner: Width of the MLP.
        heads: Query heads.
        kv_heads: Key heads.
        head_dim: Width of a head.
        vocab: Entries of the vocabulary.
        tied: Whether embedding and LM head are the same tensor.
        normed: Whether queries and keys are normalised.
        layer_params: Parameters of one layer.
        params: All parameters; tied ones count once.
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


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter.

    Attributes:
        rank: Rank of the matrices.
        matrices: Number of pairs of matrices in a layer.
        inputs: Sum of the widths of their inputs.
        layer_params: Parameters of the adapter in one layer.
        params: All parameters of the adapter.
    """

    rank: int
    matrices: int
    inputs: int
    layer_params: int
    params: int


def read_model(path: str, section: ModelSection) -> tuple[Shape, Adapter | None]:
    """Return the sizes of a model, and of the adapter that a run trains.

    Args:
        path: The model's folder, or its id on the Hub.
        section: Revision, trust and adapter.

    Raises:
        MachineError: If config.json cannot be read, or the model cannot be built or is of another
            kind.
        ConfigError: If an adapter fits none of its layers.
    """
    check_model_path(path)
    model = _skeleton(path, section.revision, section.trust_remote_code)
    adapter = None if section.lora is None else _adapter(model, section.lora)
    return shape_of(model), adapter


@functools.lru_cache(maxsize=4)
def _skeleton(path: str, revision: str | None, trust: bool) -> Any:
    """Return the model on the meta device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    try:
        config = AutoConfig.from_pretrained(path, revision=revision, trust_remote_code=trust)
        with torch.device("meta"):
            return auto.from_config(config, trust_remote_code=trust)
    except Exception as error:
        raise MachineError(
            f"the model of '{path}' cannot be built from its config.json: {one_line(error)}",
            where="model.path",
            remedy=_REMEDY,
        ) from error


def shape_of(model: Any) -> Shape:
    """Return the sizes of a model.

    Raises:
        MachineError: If it is not a decoder whose layers the formulas are of.
    """
    inner, layers = model.config.get_text_config(), _layers(model)
    names = ("hidden_size", "intermediate_size", "num_attention_heads")
    leaves = {name.rpartition(".")[2] for name, _ in layers[0].named_modules()} if layers else set()
    known = _LINEAR <= leaves <= _LINEAR | _BESIDE
    if not (known and all(getattr(inner, name, None) for name in names)):
        raise MachineError(
            f"{type(model).__name__} is not a model whose memory rlvr plan can compute",
            where="model.path",
            remedy=_REMEDY,
        )
    heads = inner.num_attention_heads
    embedded, head = model.get_input_embeddings(), model.get_output_embeddings()
    return Shape(
        layers=len(layers),
        hidden=inner.hidden_size,
        inner=inner.intermediate_size,
        heads=heads,
        kv_heads=getattr(inner, "num_key_value_heads", None) or heads,
        head_dim=getattr(inner, "head_dim", None) or inner.hidden_size // heads,
        vocab=inner.vocab_size,
        tied=head is not None and head.weight is embedded.weight,
        normed="q_norm" in leaves,
        layer_params=sum(parameter.numel() for parameter in layers[0].parameters()),
        params=sum(parameter.numel() for parameter in model.parameters()),
    )


def _layers(model: Any) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _adapter(model: Any, lora: LoraSection) -> Adapter:
    """Return the adapter that peft would add: rank x (inputs + outputs) for each chosen layer."""
    import torch

    head, targets = model.get_output_embeddings(), lora.target_modules
    chosen = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module is not head
        and (
            targets == "all-linear"
            or any(name == target or name.endswith(f".{target}") for target in targets)
        )
    }
    first = _layers(model)[0]
    inside = [
        module for module in chosen.values() if any(module is other for other in first.modules())
    ]
    if not inside:
        raise ConfigError(
            f"no linear layer is named {', '.join(targets)}",
            where="model.lora.target_modules",
            remedy=f"choose of {', '.join(sorted(_LINEAR))}, or all-linear",
        )

    def params(some: Iterable[Any]) -> int:
        return sum(lora.rank * (module.in_features + module.out_features) for module in some)

    return Adapter(
        rank=lora.rank,
        matrices=len(inside),
        inputs=sum(module.in_features for module in inside),
        layer_params=params(inside),
        params=params(chosen.values()),
    )
