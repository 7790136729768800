"""A frozen model whose layers wait in host memory, and come to the device one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rlvr_core.api import Complaint, ConfigError, MachineError
from rlvr_core.parallel import ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.config.resolve import Resolved


class OnHost:
    """One layer's weights in host memory, copied to the device while the layer computes.

    The copies go into the stream that computes, so the memory of one layer is taken by the next
    without a wait; from pinned memory they need no help of the CPU.

    Args:
        layer: The layer; its parameters need no gradient.
        device: Where it computes.

    Attributes:
        fetched: How often the layer was brought to the device.
    """

    def __init__(self, layer: nn.Module, device: torch.device) -> None:
        self.fetched = 0
        self._device = device
        pin = device.type == "cuda"
        self._held: list[tuple[nn.Parameter, Tensor]] = []
        for parameter in layer.parameters():
            host = parameter.data.cpu()
            self._held.append((parameter, host.pin_memory() if pin else host))
        self._release()
        layer.register_forward_pre_hook(lambda *_: self._fetch())
        # also after an error, so that a layer is never left on the device
        layer.register_forward_hook(lambda *_: self._release(), always_call=True)

    def _fetch(self) -> None:
        self.fetched += 1
        for parameter, host in self._held:
            parameter.data = host.to(self._device, non_blocking=True, copy=True)

    def _release(self) -> None:
        for parameter, host in self._held:
            parameter.data = host


def offload(model: PreTrainedModel, device: torch.device) -> list[OnHost]:
    """Leave the layers of a frozen model in host memory, and bring all else to the device.

    Embeddings, the last norm and the LM head stay there: they are used outside of their own
    forward, and may be one tensor.

    Args:
        model: The model, in host memory.
        device: Where it computes.

    Returns:
        The layers, in the order of ``modules()``.

    Raises:
        MachineError: If the model does not say what its layers are.
    """
    names = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    if not layers:
        raise MachineError(
            f"{type(model).__name__} does not say what its layers are, so they cannot be brought "
            f"to the device one at a time",
            where="train.reference.offload",
            remedy="set it to false",
        )
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    for module in model.modules():
        tensors: Any = module
        for parameter in tensors.parameters(recurse=False):
            if id(parameter) not in inside:
                parameter.data = parameter.data.to(device)
        for name, buffer in list(tensors.named_buffers(recurse=False)):
            tensors._buffers[name] = buffer.to(device)
    return [OnHost(layer, device) for layer in layers]


def check_offload(resolved: Resolved) -> None:
    """Refuse to keep a reference in host memory where that saves nothing, or cannot be.

    Args:
        resolved: The configuration.

    Raises:
        ConfigError: Naming each reason.
    """
    config, faults = resolved.config, []
    if config.model.lora is not None:
        faults.append(
            "under LoRA the reference is the policy without its adapter, and takes no memory"
        )
    if ranks.count() > 1 and config.train.parallel == "fsdp":
        faults.append("with train.parallel: fsdp each process has but a part of every layer")
    if not torch.cuda.is_available():
        faults.append("this run computes on the CPU, so its weights are in host memory already")
    if faults:
        where = resolved.where(("train", "reference", "offload"))
        raise ConfigError.collect(
            [Complaint(fault, where, ("set offload: false",)) for fault in faults]
        )
