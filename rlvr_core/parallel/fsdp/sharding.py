"""Splits a model over the processes of a run, layer by layer (FSDP2).

In bfloat16, shards are rounded before they are gathered and the module computes in that dtype:
half the bytes between the GPUs of float32 masters, and no copy of a layer's weights that outlives
the layer. Gradients are summed in float32. float16 keeps autocast instead: its range is too small
for what adds up over layers outside of matrix products.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlvr_core.parallel.fsdp.loading import probe


def shard(
    module: nn.Module, model: Any, autocast_dtype: torch.dtype | None, size: int
) -> torch.dtype | None:
    """Shard each layer, and what is in no layer as one more part.

    Parameters come from the CPU to this process's device on the way, whole but one layer at a time.
    Those that are trained become float32 there: what is whole may be a view of a file.

    Args:
        module: What computes the model, whose forward the outermost part belongs to.
        model: The model, whose class names its layers.
        autocast_dtype: Compute dtype of the run; None for that of the parameters.
        size: Processes in a row that share one copy. Where they are not all, weights are gathered
            among them alone, and gradients then summed over the copies (HSDP).

    Returns:
        The dtype that still needs autocast; None where the shards bring theirs with them.
    """
    probe(model)  # a sharded model cannot be asked
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = "cuda" if torch.cuda.is_available() else "cpu"
    copies = torch.distributed.get_world_size() // size
    names = ("replicate", "shard") if copies > 1 else ("shard",)
    shape = (copies, size)[-len(names) :]
    options: dict[str, Any] = {"mesh": init_device_mesh(device, shape, mesh_dim_names=names)}
    if autocast_dtype == torch.bfloat16:
        # a function's arguments are cast by the layer that takes them: labels and masks never
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
        autocast_dtype = None
    layers = set(getattr(model, "_no_split_modules", None) or ())
    for child in list(module.modules()):
        if type(child).__name__ in layers:
            fully_shard(child, **options)._apply(_master)
    # the outermost part stays whole until the backward pass, which needs it first
    fully_shard(module, reshard_after_forward=False, **options)._apply(_master)
    return autocast_dtype


def _master(tensor: torch.Tensor) -> torch.Tensor:
    trained = tensor.requires_grad and tensor.is_floating_point()
    return tensor.float() if trained and tensor.dtype.itemsize < 4 else tensor
