"""Environment variables that may change results, and never one that may be a secret."""

from __future__ import annotations

import os
import re

from rlvr_core.api import Json
from rlvr_core.record.provenance.code import THREAD_VARIABLES
from rlvr_core.record.text import Redactor

VARIABLES = (
    "OMP_", "MKL_", "KMP_", "OPENBLAS_", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_",
    "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "TRITON_", "VLLM_", "HF_",
    "TRANSFORMERS_", "TOKENIZERS_", "RLVR_PLUGINS", "RLVR_DATA", "PYTHONHASHSEED", "TF32_",
    "NO_TF32", "FLASH_ATTENTION_",
)  # fmt: skip
"""How the names of environment variables begin that may change results."""
ELSEWHERE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""What says where or for whom a run is, not what it computes."""
_PLACES = ("_HOME", "_CACHE", "_PATH", "_DIR")
_SECRET = re.compile(r"TOKEN(?!IZERS_)|KEY|SECRET|PASS(?:WORD|WD|PHRASE)|AUTH|CREDENTIAL", re.I)


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
