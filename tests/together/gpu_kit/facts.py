"""A: what the machine is, and its ceilings: copy bandwidth, products, launches, host memory."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from rlvr_core.packing.attention_mask import HeadSizes, flash_works
from tests.together.gpu_kit.record import Record

GIB = 2**30


def facts(record: Record) -> None:
    """Write down versions and room, then measure."""
    import transformers

    gpu = torch.cuda.get_device_properties(0)
    free, _ = torch.cuda.mem_get_info()
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    words = f"{gpu.name}, torch {torch.__version__}, transformers {transformers.__version__}"
    record.add("A", "memory free", free / GIB, "GiB", note=f"{words}, NCCL {nccl}")
    record.add("A", "/dev/shm free", shutil.disk_usage("/dev/shm").free / GIB, "GiB")
    record.add("A", "disk free", shutil.disk_usage(Path.cwd()).free / GIB, "GiB")
    for dtype in (torch.bfloat16, torch.float16):
        for heads in (HeadSizes(4, 2, 64, 64), HeadSizes(16, 8, 128, 128), HeadSizes(8, 8, 8, 8)):
            works = flash_works(torch.device("cuda", 0), dtype, heads)
            name = f"flash, {str(dtype)[6:]}, {heads.queries}/{heads.keys} heads of {heads.dim}"
            record.add("A", name, float(works), ok=works)
    for check, act in (("copy", copy), ("products", products), ("launch", launch), ("host", host)):
        record.attempt("A", check, partial(act, record))


def seconds(act: Callable[[], object], often: int = 10) -> float:
    """Median seconds of a call on the device, by events, after three to warm up."""
    for _ in range(3):
        act()
    found = []
    for _ in range(often):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        act()
        ended.record()
        ended.synchronize()
        found.append(begun.elapsed_time(ended) / 1e3)
    return statistics.median(found)


def copy(record: Record) -> None:
    """Bytes read and written by a copy within device memory."""
    there = torch.randn(GIB, device="cuda")
    other = torch.empty_like(there)
    taken = seconds(lambda: other.copy_(there))
    record.add("A", "copy on the device", 8 * GIB / taken / 1e12, "TB/s", n=10)


def products(record: Record) -> None:
    """Products of random square matrices; float32 without TF32, which rlvr does not turn on."""
    for dtype, size in ((torch.bfloat16, 8192), (torch.float32, 8192)):
        left, right = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        taken = seconds(partial(torch.mm, left, right))
        name = f"product in {str(dtype)[6:]}"
        record.add("A", name, 2 * size**3 / taken / 1e12, "TFLOP/s", n=10)


def launch(record: Record) -> None:
    """Time from one small kernel to the next, as a host that does nothing else launches them."""
    small = torch.zeros(16, device="cuda")

    def thousand() -> None:
        for _ in range(1000):
            small.add_(1.0)

    record.add("A", "launch of a small kernel", seconds(thousand) * 1e3, "us", n=10)


def host(record: Record) -> None:
    """Copies between the device and host memory, pinned or not."""
    there = torch.randn(GIB // 4, device="cuda")
    for pinned in (True, False):
        here = torch.empty(there.shape, pin_memory=pinned)
        name = "pinned" if pinned else "pageable"
        taken = seconds(partial(there.copy_, here, non_blocking=True), 5)
        record.add("A", f"{name} memory to the device", GIB / taken / 1e9, "GB/s", n=5)
