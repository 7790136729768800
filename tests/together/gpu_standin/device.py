"""A CUDA device for a machine without one: tensors that say ``cuda:0`` and are held on the CPU.

Integers and booleans hold data, floating-point tensors data or, for models of real size, shapes
alone. Everything that torch does with such tensors comes by ``StandIn``, which refuses to mix
devices and counts what a GPU would wait for and work on. Load the library (``build.load``) first.
"""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode

from tests.together.gpu_standin import attention, shapes_of_results

DEVICE = torch.device("cuda", 0)
HALF = (torch.float16, torch.bfloat16)
ALLOCATION = 512
"""Bytes that an allocation is rounded up to, as by CUDA's caching allocator."""

_INDEXING = {
    *("index", "index_put_", "index_put", "_index_put_impl_"),
    *("_unsafe_index", "_unsafe_index_put"),
}
_DATA_DEPENDENT = {
    *("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
    *("equal", "allclose"),
}
"""Operations whose result has a size that only the device knows; the host waits for it."""
_NO_KERNEL = {
    *("empty", "empty_like", "new_empty", "empty_strided", "empty_permuted", "new_empty_strided"),
    *("detach", "alias", "lift_fresh", "_unsafe_view", "set_", "resize_"),
}
_WITHOUT_TENSORS = {"empty", "zeros", "ones", "rand", "randn", "full", "empty_strided"}
_TOGETHER = 150
"""Tensors that one launch of a ``_foreach`` or fused operation works on, about."""


_KERNELS = torch.library.Library("aten", "IMPL")


def pretend() -> None:
    """Let torch's Python side believe that it was built for CUDA."""
    # without a kernel of its own torch would put it together of six others, with their results
    _KERNELS.impl("silu_backward", _unreached, "CUDA")
    torch.cuda._lazy_init = lambda: None
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.Event = Event  # type: ignore[assignment, misc]
    torch.cuda.mem_get_info = lambda *_: (
        _current().capacity - _current().live,
        _current().capacity,
    )
    torch.cuda.max_memory_allocated = lambda *_: _current().peak
    torch.cuda.memory_allocated = lambda *_: _current().live
    torch.cuda.reset_peak_memory_stats = lambda *_: _current().forget_peak()
    torch.cuda.empty_cache = lambda: None
    torch.cuda.get_device_properties = lambda *_: Properties(_current().name, _current().capacity)
    # no random numbers come from the device: dropout is off, and LoRA's draws on the CPU here
    torch.cuda.get_rng_state = lambda *_: torch.zeros(16, dtype=torch.uint8)
    torch.cuda.set_rng_state = lambda *_: None
    Tensor.tolist = _tolist  # type: ignore[method-assign]
    Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]
    torch.nn.functional.scaled_dot_product_attention = attention.scaled_dot_product_attention
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.nn.Parameter.data = property(_DATA.__get__, _set_data)  # type: ignore[assignment]
    OnDevice.data = property(_DATA.__get__, _set_data)  # type: ignore[assignment]
    # tensors of a GPU are clipped and updated together
    _foreach_utils._foreach_supported_types.append(OnDevice)
    optimizer._foreach_supported_types.append(OnDevice)


class Event:
    """A CUDA event: when it was recorded, by the host's clock; to read it the host waits."""

    def __init__(self, *, enable_timing: bool = False) -> None:
        assert enable_timing, "an event without times"
        self._at = 0.0

    def record(self, *_: Any) -> None:
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        _current()._wait("an event")

    def elapsed_time(self, other: Event) -> float:
        assert 0 < self._at <= other._at, "an event that was not recorded"
        return 1e3 * (other._at - self._at)


@dataclass(frozen=True)
class Properties:
    """What a driver says of a GPU."""

    name: str
    total_memory: int


def _current() -> StandIn:
    assert StandIn.current is not None, "asked outside of the stand-in"
    return StandIn.current


def _unreached(*_: Any) -> None:
    raise AssertionError("StandIn takes what would come here")


_DATA: Any = torch._C.TensorBase.data


def _set_data(self: Tensor, value: Tensor) -> None:
    """``parameter.data = value``; to the other device as well, where torch wants the same class."""
    if isinstance(self, OnDevice) == isinstance(value, OnDevice):
        _DATA.__set__(self, value)
        if isinstance(self, OnDevice):
            self.held = value.held  # type: ignore[attr-defined]
    else:
        needed = self.requires_grad
        torch.utils.swap_tensors(self, torch.nn.Parameter(value, requires_grad=needed))


_PLAIN_TOLIST = Tensor.tolist


def _tolist(self: Tensor) -> Any:
    """torch has none of a subclass."""
    return _PLAIN_TOLIST(self.cpu() if isinstance(self, OnDevice) else self)


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of both devices."""


class OnDevice(Tensor):
    """A tensor of the stand-in.

    Attributes:
        held: The data, on the CPU; on torch's meta device where there is but a shape.
    """

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> OnDevice:
        """Wrap a tensor that is held elsewhere."""
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({tuple(self.shape)}, {self.dtype})"

    def data_ptr(self) -> int:
        """Where it lies: tensors that share memory share it here, and others do not."""
        held = self.held
        return held.untyped_storage()._cdata if held.is_meta else held.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what happens where no stand-in is entered."""
        if StandIn.current is None:
            raise RuntimeError(f"{func} outside of the stand-in")
        return StandIn.current.run(func, args, kwargs or {})


class StandIn(TorchDispatchMode):
    """The device, while it is entered.

    Args:
        shapes_only: Whether floating-point tensors are shapes without data.
        capacity: Bytes of its memory; an allocation beyond it is an error, as on a GPU.
        name: What its driver calls it.

    Attributes:
        waits: How often the host waited for the device, by what for and the line that did.
        launches: Kernels, by operation.
        flops: Floating-point operations of matrix products and attention, by dtype.
        wide: Lines that made float32 products, with their FLOPs.
        live: Bytes that are allocated.
        peak: The most there were.
    """

    current: StandIn | None = None

    def __init__(
        self, *, shapes_only: bool = False, capacity: int = 1 << 50, name: str = "stand-in"
    ) -> None:
        super().__init__()
        self.shapes_only, self.capacity, self.name = shapes_only, capacity, name
        self.live = self.peak = 0
        self._storages: dict[int, int] = {}  # bytes
        self._outer: StandIn | None = None
        self.forget()

    def forget(self) -> None:
        """Begin to count anew; the peak begins at what is allocated."""
        self.waits: Counter[tuple[str, str]] = Counter()
        self.launches: Counter[str] = Counter()
        self.flops: Counter[torch.dtype] = Counter()
        self.wide: Counter[str] = Counter()
        self.forget_peak()

    def forget_peak(self) -> None:
        """The peak begins at what is allocated."""
        self.peak = self.live

    def __enter__(self) -> StandIn:
        self._outer, StandIn.current = StandIn.current, self
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        StandIn.current = self._outer
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See ``run``."""
        return self.run(func, args, kwargs or {})

    # -- tensors and memory ----------------------------------------------------------------------

    def put(self, tensor: Tensor) -> Tensor:
        """A tensor of the CPU on the device, without counting a copy."""
        tensor = tensor.detach()
        if self.shapes_only and tensor.is_floating_point():
            tensor = _shape_of(tensor)
        return self._wrap(tensor)

    def put_model(self, model: torch.nn.Module) -> None:
        """Put the parameters and buffers of a model on the device; tied ones stay tied."""
        moved: dict[int, Tensor] = {}
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is None:
                    continue
                if id(parameter) not in moved:
                    there = self.put(parameter)
                    needed = parameter.requires_grad
                    moved[id(parameter)] = torch.nn.Parameter(there, requires_grad=needed)
                module._parameters[name] = moved[id(parameter)]  # type: ignore[assignment]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = self.put(buffer)

    def _wrap(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, OnDevice):
            return value
        storage = value.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            self._storages[key] = 0
            weakref.finalize(storage, self._freed, key)
            self.resized(storage)
        return OnDevice(value)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Count a storage that was made, or that torch has given another size since.

        Raises:
            torch.OutOfMemoryError: There is no room for it.
        """
        key, size = storage._cdata, -(-storage.nbytes() // ALLOCATION) * ALLOCATION
        live = self.live + size - self._storages[key]
        if live > self.capacity:
            gib = (size / 2**30, self.capacity / 2**30, (self.capacity - self.live) / 2**30)
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate {:.2f} GiB. GPU 0 has a total capacity "
                "of {:.2f} GiB of which {:.2f} GiB is free.".format(*gib)
            )
        self._storages[key], self.live = size, live
        self.peak = max(self.peak, live)

    def _freed(self, key: int) -> None:
        self.live -= self._storages.pop(key)

    # -- operations ------------------------------------------------------------------------------

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Do what torch asks for, and count it.

        Raises:
            MixedDevicesError: Tensors of both devices; one of the CPU without dimensions may come.
        """
        space, name = func._schema.name.split("::")
        flat = [*_leaves((args, kwargs))]
        ours = [one for one in flat if isinstance(one, OnDevice)]
        device = kwargs.get("device")
        to_us = device is not None and torch.device(device).type == "cuda"
        if not ours and not to_us:
            # a shape in host memory stays there
            same = name == "_to_copy" and kwargs.get("dtype") in (None, args[0].dtype)
            return args[0] if same and args[0].is_meta else func(*args, **kwargs)
        if name == "_to_copy" and device is not None and to_us != bool(ours):
            return self._moved(func, args[0], kwargs, to_us)
        if name == "copy_" and isinstance(args[0], OnDevice) != isinstance(args[1], OnDevice):
            return self._copied(*args[:2])
        if name == "_local_scalar_dense":
            return self._item(args[0].held)
        if name in _DATA_DEPENDENT:
            self._wait(name)
        if name in ("allclose", "equal") and any(one.held.is_meta for one in ours):
            return True  # of shapes
        if name in _INDEXING:
            args = (args[0], self._places(name, args[1]), *args[2:])
        else:
            self._check_devices(func, flat)
        if space == "torch_attn" or "_efficient_attention" in name:
            if space == "torch_attn":
                found, flops = attention.run(name, func._schema, args, kwargs)
            else:
                found, flops = attention.run_efficient(name, args, kwargs)
            out = _mapped(self._wrap, found)
            self._count(func, name, ours, out, flops)
            return out
        out = self._computed(func, name, args, kwargs, to_us=to_us)
        self._count(func, name, ours, out, _product_flops(name, args))
        return out

    def _computed(
        self, func: Any, name: str, args: Any, kwargs: dict[str, Any], *, to_us: bool
    ) -> Any:
        """Run an operation on what is held; results that are inputs stay the same tensors."""
        flat = [*_leaves((args, kwargs))]
        held = [one.held if isinstance(one, OnDevice) else one for one in flat]
        shapes = any(isinstance(one, Tensor) and one.is_meta for one in held)
        if shapes:
            known = self._known_size(name, held)
            if known is not None:
                return self._wrap(known)
            held = [_shape_of(one) if isinstance(one, Tensor) else one for one in held]
        inputs = {id(new): old for new, old in zip(held, flat, strict=True) if new is not old}
        in_order = iter(held)
        new_args, new_kwargs = _mapped(lambda _: next(in_order), (args, kwargs))
        if to_us or (shapes and new_kwargs.get("device") is not None):
            default = torch.get_default_dtype() if name in _WITHOUT_TENSORS else None
            dtype = new_kwargs.get("dtype") or default
            bare = shapes or (self.shapes_only and dtype is not None and dtype.is_floating_point)
            new_kwargs = new_kwargs | {"device": "meta" if bare else "cpu"}
            new_kwargs.pop("pin_memory", None)
        compute = shapes_of_results.known if shapes else _called
        found = compute(func, new_args, new_kwargs, held)
        return _mapped(lambda one: inputs[id(one)] if id(one) in inputs else self._wrap(one), found)

    @staticmethod
    def _known_size(name: str, held: list[Any]) -> Tensor | None:
        """The result of an operation on a shape whose size a mask with data decides."""
        if name == "masked_select":
            shape = torch.broadcast_shapes(held[0].shape, held[1].shape)
            n = int(held[1].expand(shape).sum())
            return torch.empty(n, dtype=held[0].dtype, device="meta")
        return None

    def _moved(self, func: Any, source: Tensor, kwargs: dict[str, Any], to_us: bool) -> Any:
        """Copy a tensor to the other device."""
        kwargs = kwargs | {"device": "cpu"}
        kwargs.pop("non_blocking", None)
        if to_us:
            if source.is_meta:  # of a model by its shapes alone, in host memory
                return self._wrap(torch.empty_like(source, dtype=kwargs.get("dtype")))
            found = func(source, **kwargs)
            if self.shapes_only and found.is_floating_point():
                found = _shape_of(found)
            return self._wrap(found)
        self._wait("a copy to the host")
        held = source.held  # type: ignore[attr-defined]
        if held.is_meta:
            return torch.zeros(held.shape, dtype=kwargs.get("dtype") or held.dtype)
        return func(held, **kwargs)

    def _copied(self, target: Tensor, source: Tensor) -> Tensor:
        """Copy into a tensor of the other device."""
        if isinstance(target, OnDevice):
            if not target.held.is_meta:
                target.held.copy_(source)
        else:
            self._wait("a copy to the host")
            held = source.held  # type: ignore[attr-defined]
            if not held.is_meta:
                target.copy_(held)
        return target

    def _item(self, held: Tensor) -> Any:
        """One number; of a shape it is 1."""
        self._wait("item")
        if held.is_meta:
            return torch.ones((), dtype=held.dtype, device="cpu").item()
        return held.item()

    def _places(self, name: str, indices: Iterable[Tensor | None]) -> list[Tensor | None]:
        """Indices as integers; those of a mask have to be counted first, and the host waits."""
        found: list[Tensor | None] = []
        for index in indices:
            if index is None:
                found.append(None)
                continue
            if not isinstance(index, OnDevice):
                self._wait(f"{name} by indices of the CPU")
            held = index.held if isinstance(index, OnDevice) else index
            if held.dtype in (torch.bool, torch.uint8):
                self._wait(f"{name} by a mask")
                found.extend(held.nonzero(as_tuple=True))
            else:
                found.append(held)
        return found

    def _check_devices(self, func: Any, flat: list[Any]) -> None:
        plain = [one for one in flat if isinstance(one, Tensor) and not isinstance(one, OnDevice)]
        wrong = [one for one in plain if one.dim() > 0]
        if wrong and len(plain) < sum(isinstance(one, Tensor) for one in flat):
            raise MixedDevicesError(
                f"{func} of the GPU and the CPU {tuple(wrong[0].shape)}: {_line()}"
            )

    # -- counts ----------------------------------------------------------------------------------

    def _wait(self, what: str) -> None:
        self.waits[what, _line()] += 1

    def _count(self, func: Any, name: str, ours: list[OnDevice], out: Any, flops: int) -> None:
        made = [one for one in _leaves(out) if isinstance(one, OnDevice)]
        storages = {one.held.untyped_storage()._cdata for one in ours}
        views = bool(made) and all(o.held.untyped_storage()._cdata in storages for o in made)
        changes = func._schema.is_mutable
        if name in _NO_KERNEL or func.is_view or (views and not changes):
            return
        if not made and not changes:
            return
        together = name.startswith(("_foreach", "_fused"))
        self.launches[name] += max(1, len(ours) // _TOGETHER) if together else 1
        if flops:
            dtype = next((one.dtype for one in ours if one.dtype in HALF), torch.float32)
            self.flops[dtype] += flops
            if dtype == torch.float32:
                self.wide[_line()] += flops


def _called(func: Any, args: Any, kwargs: Any, _: Any) -> Any:
    return func(*args, **kwargs)


def _leaves(tree: Any) -> Iterator[Any]:
    """What an operation is given, or gives; torch's own functions for trees are slow."""
    if isinstance(tree, dict):
        tree = tree.values()
    elif type(tree) not in (tuple, list):
        yield tree
        return
    for one in tree:
        yield from _leaves(one)


def _mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same with each leaf changed, in their order."""
    kind = type(tree)
    if kind is dict:
        return {key: _mapped(change, one) for key, one in tree.items()}
    if kind in (tuple, list):
        return kind([_mapped(change, one) for one in tree])
    return change(tree)


def _shape_of(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        return tensor
    size, stride = tensor.size(), tensor.stride()
    return torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")


def _product_flops(name: str, args: Any) -> int:
    """Two per multiplication of a matrix product; 0 of anything else."""
    first = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1}.get(name)
    if first is None:
        return 0
    left, right = args[first], args[first + 1]
    return int(2 * left.numel() * right.shape[-1])


def _line() -> str:
    """The innermost line of rlvr_core that is being run, or else the innermost of all."""
    frame = sys._getframe(1)
    frames = itertools.takewhile(bool, _frames(frame))
    listed = [one for one in frames if one.f_code.co_filename != __file__]
    for one in listed:
        _, found, path = one.f_code.co_filename.rpartition("/rlvr_core/")
        if found:
            return f"{path}:{one.f_lineno}"
    return f"{listed[0].f_code.co_filename}:{listed[0].f_lineno}" if listed else "?"


def _frames(frame: Any) -> Any:
    while frame is not None:
        yield frame
        frame = frame.f_back
