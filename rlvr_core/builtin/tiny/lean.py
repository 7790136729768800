"""Dense Llama-like models (Llama, Qwen2, Qwen3) recognised, and run with fewer, larger operations.

On CPU a tiny model spends most of its time between matrix products. Here the products of one kind
are one, norm weights are folded into the weights that follow, rotary embedding is one complex
product, and the key-value cache is written in place. Anything that is not certain to be such a
model is left to its own forward.

Dimensions: N tokens, B rows, H hidden size, h heads, D head dimension, I MLP size, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rlvr_core.api import ModelAdapter

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FAMILIES = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
_ROPES = {"default", "linear", "llama3"}  # frequencies that do not depend on the length

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""(query, key, value) of (B, h, T, D) -> (output, log-sum-exp); keys may have fewer heads."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer, ready to use: fused, permuted, norm weights folded in (see ``unit``).

    Attributes:
        qkv_QH: Query, key and value projections; rotary pairs are neighbours.
        qkv_bias_Q: Their bias, or None.
        qk_norm_hD: Norm weights of query and key heads, or None.
        out_HA: Output projection of attention.
        gate_up_IH: Gate and up projections, 2 I outputs.
        down_HI: Down projection.
    """

    qkv_QH: Tensor
    qkv_bias_Q: Tensor | None
    qk_norm_hD: Tensor | None
    out_HA: Tensor
    gate_up_IH: Tensor
    down_HI: Tensor


@dataclass(frozen=True, slots=True)
class LeanModel:
    """A recognised model: its sizes, and its own parameters by way of ``weights``.

    Attributes:
        model: The Hugging Face model.
        adapter: Gives the weights of its linear layers.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: D.
        eps: Of every norm.
    """

    model: Any
    adapter: ModelAdapter
    heads: int
    kv_heads: int
    head_dim: int
    eps: float

    @property
    def embedding(self) -> Tensor:
        """Token embeddings, (V, H)."""
        weight: Tensor = self.model.model.embed_tokens.weight
        return weight

    @property
    def padding_id(self) -> int | None:
        """The token whose embedding transformers gives no gradient."""
        index: int | None = self.model.model.embed_tokens.padding_idx
        return index

    @property
    def final_norm(self) -> Tensor:
        """Weight of the norm before the LM head, (H,)."""
        weight: Tensor = self.model.model.norm.weight
        return weight

    @property
    def lm_head(self) -> Tensor:
        """LM head, (V, H)."""
        weight: Tensor = self.model.lm_head.weight
        return weight

    def weights(self) -> list[LayerWeights]:
        """The layers' weights as they are now; differentiable."""
        return [self._layer(layer) for layer in self.model.model.layers]

    def rotation(self, position_N: Tensor) -> Tensor:
        """Complex rotary factors (N, 1, D/2), made in float32 as transformers does."""
        rotary = self.model.model.rotary_emb
        angle_ND = position_N[:, None, None].float() * rotary.inv_freq.float()
        scale = rotary.attention_scaling
        dtype = self.embedding.dtype
        return torch.complex((angle_ND.cos() * scale).to(dtype), (angle_ND.sin() * scale).to(dtype))

    def _layer(self, layer: Any) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        weight_of = self.adapter.weight_of
        root = math.sqrt(self.embedding.shape[1])
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        qkv_QH = torch.cat([self._paired(weight_of(q)), self._paired(weight_of(k)), weight_of(v)])
        bias_Q = None
        if q.bias is not None:
            bias_Q = torch.cat([self._paired(q.bias), self._paired(k.bias), v.bias])
        norm_hD = None
        if hasattr(attention, "q_norm"):
            norm_hD = math.sqrt(self.head_dim) * torch.cat(
                [
                    self._paired(attention.q_norm.weight)[None].expand(self.heads, -1),
                    self._paired(attention.k_norm.weight)[None].expand(self.kv_heads, -1),
                ]
            )
        return LayerWeights(
            qkv_QH=qkv_QH * (root * layer.input_layernorm.weight),
            qkv_bias_Q=bias_Q,
            qk_norm_hD=norm_hD,
            out_HA=weight_of(attention.o_proj),
            gate_up_IH=torch.cat([weight_of(mlp.gate_proj), weight_of(mlp.up_proj)])
            * (root * layer.post_attention_layernorm.weight),
            down_HI=weight_of(mlp.down_proj),
        )

    def _paired(self, weight: Tensor) -> Tensor:
        """Reorder outputs so that the two halves transformers rotates together are neighbours.

        Scores are dot products of queries and keys: the same order in both changes nothing.
        """
        halves = weight.reshape(-1, 2, self.head_dim // 2, *weight.shape[1:])
        return halves.transpose(1, 2).reshape(weight.shape)


_PROVEN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def recognise(model: PreTrainedModel, adapter: ModelAdapter) -> LeanModel | None:
    """The model as a lean one, or None if it has to run through its own forward.

    A model that looks right is compared with its own forward once.
    """
    if not _looks_right(model, adapter):
        return None
    inner: Any = model.model
    attention = inner.layers[0].self_attn
    lean = LeanModel(
        model=model,
        adapter=adapter,
        heads=attention.q_proj.out_features // attention.head_dim,
        kv_heads=attention.k_proj.out_features // attention.head_dim,
        head_dim=attention.head_dim,
        eps=inner.norm.variance_epsilon,
    )
    if model not in _PROVEN:
        _PROVEN[model] = _agrees(lean)
    return lean if _PROVEN[model] else None


def _looks_right(model: Any, adapter: ModelAdapter) -> bool:
    kind = type(model)
    if kind.__name__ not in _FAMILIES or not kind.__module__.startswith("transformers.models."):
        return False
    inner, config = model.model, model.config
    full = set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    sliding = getattr(config, "use_sliding_window", False)
    dropout = model.training and getattr(config, "attention_dropout", 0.0) > 0
    rotary = inner.rotary_emb
    whole = 2 * rotary.inv_freq.numel() == inner.layers[0].self_attn.head_dim
    if not (
        full
        and not sliding
        and not dropout
        and whole
        and config.hidden_act == "silu"
        and rotary.rope_type in _ROPES
        and type(inner.embed_tokens) is nn.Embedding
    ):
        return False
    plain = all(
        type(p) is nn.Parameter and p.dtype == torch.float32 and p.device.type == "cpu"
        for p in model.parameters()
    )
    unhooked = not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    head = type(model.lm_head) is nn.Linear and model.lm_head.bias is None
    return (
        plain and unhooked and head and all(_plain_layer(layer, adapter) for layer in inner.layers)
    )


def _plain_layer(layer: Any, adapter: ModelAdapter) -> bool:
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    others = (attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    return (
        all(map(adapter.is_linear, (*projections, *others)))
        and len({projection.bias is None for projection in projections}) == 1
        and all(module.bias is None for module in others)
    )


@torch.no_grad()
def _agrees(lean: LeanModel) -> bool:
    """Compare the lean prefill and step with the model's own forward on two short texts."""
    from rlvr_core.builtin.tiny.lean_decode import LeanDecoder  # which needs this module

    vocabulary = len(lean.embedding)
    ids_BT = torch.arange(2 * 9).view(2, 9) * 31 % vocabulary
    decoder = LeanDecoder(lean)
    decoder.prefill([tuple(ids_BT[0, :8].tolist()), tuple(ids_BT[1, :5].tolist())], [1, 1], 1)
    ours_BV = decoder.step(torch.stack([ids_BT[0, 8], ids_BT[1, 5]]))
    modules = [module for module in lean.model.modules() if module.training]
    lean.model.eval()
    try:
        theirs_BTV = lean.model(input_ids=ids_BT, use_cache=False).logits
    finally:
        for module in modules:
            module.training = True
    theirs_BV = torch.stack([theirs_BTV[0, 8], theirs_BTV[1, 5]])
    scale = theirs_BV.abs().max().clamp(min=1.0)
    return bool((ours_BV - theirs_BV).abs().max() <= 1e-4 * scale)


def unit(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMS norm along the last axis, save for the factor sqrt(n), which the weights hold.

    Returns:
        x / length and the length sqrt(sum x^2 + n eps), (..., 1).
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    length = torch.hypot(length, length.new_tensor(math.sqrt(x.shape[-1] * eps)))
    return x / length, length


def rotate(x_NhD: Tensor, rotation_N1d: Tensor) -> Tensor:
    """Rotary embedding of heads whose pairs are neighbours."""
    pairs = torch.view_as_complex(x_NhD.view(*x_NhD.shape[:2], -1, 2))
    return torch.view_as_real(pairs * rotation_N1d).flatten(2)
