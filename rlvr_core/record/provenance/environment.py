"""Surroundings that may change a run's results: threads and environment variables."""

from __future__ import annotations

import os
import re
import sys

from rlvr_core.api import Json
from rlvr_core.record.text import Redactor

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG")
"""Environment variables that decide in what order numbers are added up."""

VARIABLES = (
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_",
    "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "TRITON_", "VLLM_", "HF_",
    "TRANSFORMERS_", "TOKENIZERS_", "RLVR_PLUGINS", "RLVR_DATA", "PYTHONHASHSEED", "TF32_",
    "NO_TF32", "FLASH_ATTENTION_",
)  # fmt: skip
"""Prefixes of environment variables that may change results."""
ELSEWHERE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables that name a place or a user, and do not affect results."""
_PLACES = ("_HOME", "_CACHE", "_PATH", "_DIR")
_SECRET = re.compile(r"TOKEN(?!IZERS_)|KEY|SECRET|PASS(?:WORD|WD|PHRASE)|AUTH|CREDENTIAL", re.I)


def threads() -> dict[str, Json]:
    """Return the numbers of threads of this process, and the variables that set them."""
    numbers: dict[str, Json] = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    torch = sys.modules.get("torch")
    if torch is not None:
        numbers |= {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    return numbers


def environment() -> dict[str, Json]:
    """Return the environment variables that may change results; never one that may be a secret.

    Those of ``threads`` are left out.
    """
    variables: dict[str, Json] = {"PYTHONHASHSEED": None}
    return variables | {
        name: Redactor().text(value)
        for name, value in sorted(os.environ.items())
        if name.upper().startswith(VARIABLES)
        and name not in (*ELSEWHERE, *THREAD_VARIABLES)
        and not name.endswith(_PLACES)
        and not _SECRET.search(name)
    }
