"""Writes the model that an adapter stands for, as a folder that is complete or absent."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError

from rlvr_core.api import ConfigError
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import CONFIG
from rlvr_core.parallel.model_adapter import WHOLE_MODEL, export_weights
from rlvr_core.record.files import sync_file, sync_folder, write_failed
from rlvr_core.record.provenance.lineage import write_lineage


def is_adapter(path: str | Path) -> bool:
    """Whether a folder contains an adapter and no model."""
    folder = Path(path).expanduser()
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def write_merged(
    adapter: Path, out: Path, dtype: torch.dtype, *, trust_remote_code: bool = False
) -> None:
    """Write the merged model of an adapter and its base, for transformers and vLLM.

    Args:
        adapter: The adapter's folder, with a tokenizer if it has its own.
        out: The new folder.
        dtype: Dtype of the written weights; they are merged in float32.
        trust_remote_code: Whether code that comes with the base model may run.

    Raises:
        ConfigError: If ``out`` exists and is not empty.
        MachineError: If the adapter or its base model cannot be loaded.
        RunError: If it cannot be written.
    """
    from transformers import AutoTokenizer

    with new_folder(out) as folder:
        model = lora.merged(adapter, trust_remote_code=trust_remote_code)
        has_tokenizer = (adapter / "tokenizer_config.json").is_file()
        tokenizer = AutoTokenizer.from_pretrained(
            adapter if has_tokenizer else model.name_or_path, trust_remote_code=trust_remote_code
        )
        export_weights(folder, WHOLE_MODEL.trained_tensors(model), model, dtype)
        tokenizer.save_pretrained(folder)
        write_lineage(adapter, folder, str(dtype).removeprefix("torch."))


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder, under a temporary name, that becomes ``out`` if the block succeeds.

    Raises:
        ConfigError: If ``out`` exists and is not empty.
        RunError: If it cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"'{out}' exists", where="OUT", remedy="name a folder that is not there yet"
        )
    temporary = out.absolute().with_name(f".tmp-{out.absolute().name}-{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.iterdir():
            sync_file(file)
        sync_folder(temporary)
        temporary.replace(out.absolute())
        sync_folder(out.absolute().parent)
    except (OSError, SafetensorError) as error:
        raise write_failed(error, out) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
