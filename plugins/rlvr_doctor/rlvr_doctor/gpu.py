"""``rlvr doctor --gpu``: what the GPUs of this machine are, and what they can do, in a minute.

The quick half of the checks that ``make gpu`` makes, from the installed package alone. A check that
breaks is a finding too, and the next goes on.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlvr_core.step.timing import elapsed, moment

GIB = 2**30
_SIDE = 8192
"""Of the square matrices whose product is timed."""
_COPIED = GIB
"""Bytes that are copied on the device."""
_LEAST = 0.5
"""Share of the public figure below which a card is slower than it should be."""
_SHARED_MEMORY = Path("/dev/shm")
_SMALL = GIB


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """One line of the report.

    Attributes:
        what: What was looked for.
        found: What was found.
        ok: False where a run would fail or be slow.
        remedy: What to do about it.
    """

    what: str
    found: str
    ok: bool = True
    remedy: str = ""


def check_gpus() -> list[GpuCheck]:
    """Examine every GPU that this process sees."""
    found = [GpuCheck("torch", f"{torch.__version__}, {_build()}")]
    if not torch.cuda.is_available():
        what, remedy = why_none()
        return [*found, GpuCheck("GPU", f"none: {what}", False, remedy), *_tried(machine)]
    count = torch.cuda.device_count()
    found += _tried(driver)
    for index in range(count):
        found += of_gpu(index)
    if count > 1:
        found += _tried(peers)
    return [*found, *_tried(machine)]


def why_none() -> tuple[str, str]:
    """Why torch sees no GPU, and what to do."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            "this torch is built for CPUs",
            "if there is a GPU, install a CUDA build of torch: pytorch.org has the command",
        )
    if shown is not None and shown.split(",")[0].strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={shown!r} hides all of them", "unset it"
    if not Path("/dev/nvidia0").exists() and not shutil.which("nvidia-smi"):
        return (
            "no NVIDIA driver is installed, or this container was given no GPU",
            "docker: --gpus all; Kubernetes: limits of nvidia.com/gpu; else install the driver",
        )
    return (
        f"the driver is there, but torch (CUDA {torch.version.cuda}) cannot use it",
        "nvidia-smi says which CUDA version the driver knows: it must not be older than torch's",
    )


def driver() -> Iterator[GpuCheck]:
    """The number of GPUs and the versions below torch."""
    count = torch.cuda.device_count()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    beside = "" if shown is None else f", CUDA_VISIBLE_DEVICES={shown}"
    yield GpuCheck("GPUs", f"{count} to be used{beside}")
    nccl = _nccl()
    yield GpuCheck(
        "NCCL",
        nccl or "not in this build of torch",
        nccl is not None or count == 1,
        "runs on several GPUs need it: install a CUDA build of torch",
    )


def of_gpu(index: int) -> list[GpuCheck]:
    """Name, memory, precision, kernels and ceilings of one GPU."""
    device = torch.device("cuda", index)
    checks = (memory, bfloat16, attention, bandwidth, product)
    return [one for check in checks for one in _tried(partial(check, device))]


def memory(device: torch.device) -> Iterator[GpuCheck]:
    """The card, and how much of it is free."""
    card = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    free_enough = free > 0.9 * total
    yield GpuCheck(
        f"{device}",
        f"{card.name}, {free / GIB:.1f} of {total / GIB:.1f} GiB are free",
        free_enough,
        "another process holds the rest (nvidia-smi): end it, or choose another GPU",
    )


def bfloat16(device: torch.device) -> Iterator[GpuCheck]:
    """Whether products in bfloat16 are done by the hardware."""
    major, minor = torch.cuda.get_device_capability(device)
    yield GpuCheck(
        f"{device}: bfloat16",
        f"compute capability {major}.{minor}" + (", by hardware" if major >= 8 else ", emulated"),
        major >= 8,
        "set model.dtype: float16",
    )


def attention(device: torch.device) -> Iterator[GpuCheck]:
    """Which attention a run takes, and which of torch's kernels work."""
    from rlvr_core.packing.attention_mask import flash_on

    works = flash_on(device)
    yield GpuCheck(
        f"{device}: attention",
        "torch's flash kernel for packed rows" if works else "padded grids: no flash kernel works",
        works,
        "training is slower and takes more memory; it needs compute capability 8.0 and a torch "
        "with varlen_attn (2.10 or newer)",
    )
    usable = list(_sdpa_kernels(device))
    yield GpuCheck(f"{device}: sdpa kernels", ", ".join(usable) or "none", bool(usable))


def _sdpa_kernels(device: torch.device) -> Iterator[str]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    heads = torch.zeros(1, 2, 16, 64, device=device, dtype=torch.bfloat16)
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        try:
            with sdpa_kernel(SDPBackend.__members__[name]):
                torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        except (RuntimeError, KeyError):
            continue
        yield name.lower().removesuffix("_attention")


def bandwidth(device: torch.device) -> Iterator[GpuCheck]:
    """Bytes read and written a second by a copy on the device."""
    from rlvr_core.parallel.cards import card_named

    there = torch.zeros(_COPIED // 4, device=device)
    other = torch.empty_like(there)
    rate = 2 * _COPIED / seconds(lambda: other.copy_(there), device)
    card = card_named(torch.cuda.get_device_properties(device).name)
    public = None if card is None else card.bandwidth / 1e12
    yield _beside(f"{device}: bandwidth", rate / 1e12, "TB/s", public)


def product(device: torch.device) -> Iterator[GpuCheck]:
    """FLOP/s of a product in bfloat16."""
    from rlvr_core.parallel.cards import card_named

    left, right = (torch.randn(_SIDE, _SIDE, device=device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * _SIDE**3 / seconds(lambda: torch.mm(left, right), device)
    card = card_named(torch.cuda.get_device_properties(device).name)
    name = f"{device}: bfloat16 product"
    public = None if card is None else card.peak / 1e12
    yield _beside(name, rate / 1e12, "TFLOP/s", public)


def _beside(what: str, figure: float, unit: str, public: float | None) -> GpuCheck:
    """A figure beside the public one, where that is known."""
    if public is None:
        return GpuCheck(what, f"{figure:.3g} {unit}; no public figure of this card is known here")
    share = figure / public
    return GpuCheck(
        what,
        f"{figure:.3g} {unit}, {share:.0%} of the public {public:.3g}",
        share >= _LEAST,
        "nvidia-smi -q -d PERFORMANCE,CLOCK: another process, a power limit or heat slows it down",
    )


def seconds(act: Callable[[], object], device: torch.device, often: int = 5) -> float:
    """Median seconds of a call by events, after three to warm up."""
    with torch.cuda.device(device):
        for _ in range(3):
            act()
        found = []
        for _ in range(often):
            begun = moment(device)
            act()
            found.append(elapsed(begun, moment(device)))
    return float(statistics.median(found))


def peers() -> Iterator[GpuCheck]:
    """Whether the GPUs reach each other's memory."""
    count = torch.cuda.device_count()
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    apart = [pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)]
    yield GpuCheck(
        "between GPUs",
        f"{len(pairs) - len(apart)} of {len(pairs)} pairs reach each other's memory directly",
        not apart,
        "the rest go through host memory, which is slower: nvidia-smi topo -m",
    )


def machine() -> Iterator[GpuCheck]:
    """Shared memory, which NCCL and engines beside training use."""
    if not _SHARED_MEMORY.is_dir():
        yield GpuCheck(str(_SHARED_MEMORY), "not there: weights of an engine go through TMPDIR")
        return
    usage = shutil.disk_usage(_SHARED_MEMORY)
    yield GpuCheck(
        str(_SHARED_MEMORY),
        f"{usage.free / GIB:.3g} of {usage.total / GIB:.3g} GiB are free",
        usage.free >= _SMALL,
        "NCCL may fail for want of it: docker: --shm-size 8g or --ipc=host",
    )


def _tried(check: Callable[[], Iterator[GpuCheck]]) -> Sequence[GpuCheck]:
    """What a check finds; what breaks it, if it breaks."""
    found: list[GpuCheck] = []
    try:
        found.extend(check())
    except Exception as error:
        lines = str(error).strip().splitlines()
        words = f"{type(error).__name__}: {lines[0] if lines else ''}"
        asked: Any = check.func if isinstance(check, partial) else check
        found.append(GpuCheck(asked.__name__, f"broke: {words}", False, "see rlvr docs speed"))
    return found


def _build() -> str:
    return "built for CPUs" if torch.version.cuda is None else f"CUDA {torch.version.cuda}"


def _nccl() -> str | None:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
