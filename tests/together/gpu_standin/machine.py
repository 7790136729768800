"""A machine that has the stand-in as its one GPU: what whole runs ask for, beyond a step.

To be imported before torch is.
"""
# ruff: noqa: E402  # the stand-in's library is loaded before torch

from __future__ import annotations

import threading
from typing import Any

from tests.together.gpu_standin import build

build.load()

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.together.gpu_standin import device as standin

NAME = "NVIDIA H100 80GB HBM3"


class _InThread(TorchDispatchMode):
    """The stand-in in another thread: torch's modes are of one thread."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return standin._current().run(func, args, kwargs or {})


_PLAIN_RUN = threading.Thread.run


def _run(self: threading.Thread) -> None:
    with _InThread():
        _PLAIN_RUN(self)


def pretend() -> None:
    """Let torch see one GPU, in every thread that starts from now on."""
    standin.pretend()
    # torch.tensor([...], device="cuda") makes its data on the CPU, and then asks for the copy
    torch._C._set_only_lift_cpu_tensors(True)
    threading.Thread.run = _run  # type: ignore[method-assign]
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    torch._C._cuda_getCurrentRawStream = lambda *_: 0  # type: ignore[attr-defined]
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda *_: standin._current()._wait("synchronize")
    # no random numbers come from the device
    cuda.get_rng_state_all = lambda: [cuda.get_rng_state()]
    cuda.set_rng_state_all = lambda *_: None
    cuda.manual_seed = cuda.manual_seed_all = lambda *_: None
