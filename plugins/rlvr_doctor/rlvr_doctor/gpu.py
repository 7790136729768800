"""``rlvr doctor --gpu``: what the GPUs of this machine are, and what they can do, in a minute.

It makes the quick half of the checks of ``make gpu``, with the installed package alone. An error of
a check is a finding too, and the next check runs.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlvr_core.api import Finding, one_line
from rlvr_core.step.timing import elapsed, moment

GIB = 2**30
_SIDE = 8192
"""Side of the square matrices whose product is timed."""
_COPIED = GIB
"""Bytes that are copied on the device."""
_LEAST = 0.5
"""Share of the public figure below which a card is too slow."""
_SHARED_MEMORY = Path("/dev/shm")
_SMALL = GIB


def _finding(id_: str, text: str, ok: bool = True, remedy: str = "") -> Finding:
    """Return what was measured; it fails where a run would fail or be slow."""
    return Finding(id_, "ok", text) if ok else Finding(id_, "fail", text, remedy)


def check_gpus() -> list[Finding]:
    """Examine every GPU that this process sees."""
    findings = [_finding("torch", f"{torch.__version__}, {_build()}")]
    if not torch.cuda.is_available():
        what, remedy = why_none()
        return [*findings, _finding("GPU", f"none: {what}", False, remedy), *_tried(machine)]
    count = torch.cuda.device_count()
    findings += _tried(driver)
    for index in range(count):
        findings += of_gpu(index)
    if count > 1:
        findings += _tried(peers)
    return [*findings, *_tried(machine)]


def why_none() -> tuple[str, str]:
    """Return why torch sees no GPU, and what to do."""
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


def driver() -> Iterator[Finding]:
    """Report the number of GPUs and the version of NCCL."""
    count = torch.cuda.device_count()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    beside = "" if shown is None else f", CUDA_VISIBLE_DEVICES={shown}"
    yield _finding("GPUs", f"{count} visible{beside}")
    nccl = _nccl()
    yield _finding(
        "NCCL",
        nccl or "not in this build of torch",
        nccl is not None or count == 1,
        "runs on several GPUs need it: install a CUDA build of torch",
    )


def of_gpu(index: int) -> list[Finding]:
    """Check memory, precision, kernels and speed of one GPU."""
    device = torch.device("cuda", index)
    checks = (memory, bfloat16, attention, bandwidth, product)
    return [finding for check in checks for finding in _tried(partial(check, device))]


def memory(device: torch.device) -> Iterator[Finding]:
    """Report the card, and how much of its memory is free."""
    card = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    free_enough = free > 0.9 * total
    yield _finding(
        f"{device}",
        f"{card.name}, {free / GIB:.1f} of {total / GIB:.1f} GiB are free",
        free_enough,
        "another process holds the rest (nvidia-smi): end it, or choose another GPU",
    )


def bfloat16(device: torch.device) -> Iterator[Finding]:
    """Check that the hardware computes in bfloat16."""
    major, minor = torch.cuda.get_device_capability(device)
    yield _finding(
        f"{device}: bfloat16",
        f"compute capability {major}.{minor}" + (", by hardware" if major >= 8 else ", emulated"),
        major >= 8,
        "set model.dtype: float16",
    )


def attention(device: torch.device) -> Iterator[Finding]:
    """Report which attention a run uses, and which of torch's kernels work."""
    from rlvr_core.packing.attention_mask import flash_on

    works = flash_on(device)
    yield _finding(
        f"{device}: attention",
        "torch's flash kernel for packed rows" if works else "padded grids: no flash kernel works",
        works,
        "training is slower and takes more memory; it needs compute capability 8.0 and a torch "
        "with varlen_attn (2.10 or newer)",
    )
    usable = list(_sdpa_kernels(device))
    yield _finding(f"{device}: sdpa kernels", ", ".join(usable) or "none", bool(usable))


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


def bandwidth(device: torch.device) -> Iterator[Finding]:
    """Measure the bytes that a copy on the device reads and writes in a second."""
    from rlvr_doctor.cards import card_named

    there = torch.zeros(_COPIED // 4, device=device)
    other = torch.empty_like(there)
    rate = 2 * _COPIED / seconds(lambda: other.copy_(there), device)
    card = card_named(torch.cuda.get_device_properties(device).name)
    public = None if card is None else card.bandwidth / 1e12
    yield _beside(f"{device}: bandwidth", rate / 1e12, "TB/s", public)


def product(device: torch.device) -> Iterator[Finding]:
    """Measure the FLOP/s of a product in bfloat16."""
    from rlvr_doctor.cards import card_named

    left, right = (torch.randn(_SIDE, _SIDE, device=device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * _SIDE**3 / seconds(lambda: torch.mm(left, right), device)
    card = card_named(torch.cuda.get_device_properties(device).name)
    name = f"{device}: bfloat16 product"
    public = None if card is None else card.peak / 1e12
    yield _beside(name, rate / 1e12, "TFLOP/s", public)


def _beside(what: str, figure: float, unit: str, public: float | None) -> Finding:
    """Compare a figure with the public one, where that is known."""
    if public is None:
        return _finding(what, f"{figure:.3g} {unit}; no public figure of this card is known here")
    share = figure / public
    return _finding(
        what,
        f"{figure:.3g} {unit}, {share:.0%} of the public {public:.3g}",
        share >= _LEAST,
        "nvidia-smi -q -d PERFORMANCE,CLOCK: another process, a power limit or heat slows it down",
    )


def seconds(act: Callable[[], object], device: torch.device, often: int = 5) -> float:
    """Return the median seconds of a call, after three calls to warm up."""
    with torch.cuda.device(device):
        for _ in range(3):
            act()
        times = []
        for _ in range(often):
            begun = moment(device)
            act()
            times.append(elapsed(begun, moment(device)))
    return float(statistics.median(times))


def peers() -> Iterator[Finding]:
    """Check that the GPUs reach each other's memory."""
    count = torch.cuda.device_count()
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    apart = [pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)]
    yield _finding(
        "between GPUs",
        f"{len(pairs) - len(apart)} of {len(pairs)} pairs reach each other's memory directly",
        not apart,
        "the others go through host memory, which is slower: nvidia-smi topo -m",
    )


def machine() -> Iterator[Finding]:
    """Check the shared memory, which NCCL and engines in other processes use."""
    if not _SHARED_MEMORY.is_dir():
        yield _finding(str(_SHARED_MEMORY), "not there: weights of an engine go through TMPDIR")
        return
    usage = shutil.disk_usage(_SHARED_MEMORY)
    yield _finding(
        str(_SHARED_MEMORY),
        f"{usage.free / GIB:.3g} of {usage.total / GIB:.3g} GiB are free",
        usage.free >= _SMALL,
        "NCCL may need more: docker: --shm-size 8g or --ipc=host",
    )


def _tried(check: Callable[[], Iterator[Finding]]) -> Sequence[Finding]:
    """Return what a check finds, and the error that ends it, if there is one."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as error:
        function: Any = check.func if isinstance(check, partial) else check
        text = f"broke: {one_line(error)}"
        findings.append(_finding(function.__name__, text, False, "see rlvr docs speed"))
    return findings


def _build() -> str:
    return "built for CPUs" if torch.version.cuda is None else f"CUDA {torch.version.cuda}"


def _nccl() -> str | None:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
