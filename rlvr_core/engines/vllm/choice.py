"""Engine ``auto``: chooses the engine of a run that names none."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from rlvr_core.api import MachineError

TINY = 5_000_000
"""Parameters below which the transformers engine is chosen.

Here the two engines are within a fifth of each other on a CPU, one ahead with short prompts and
the other with long ones (``benchmarks/engines.py``). Below, vLLM only costs its start; above, long
shared prompts and every GPU are for vLLM.
"""


def choose_engine(model_path: str, *, n_parameters: int | None = None) -> tuple[str, str]:
    """Return the name of the engine to use, and the reason.

    Args:
        model_path: The run's model, for the message.
        n_parameters: Its size; None to read it from the model's files.

    Returns:
        Full component name, ``core/vllm`` or ``core/transformers``, and one clause with the reason.
    """
    if n_parameters is None:
        n_parameters = parameter_count(model_path)
    size = _in_words(n_parameters)
    if n_parameters < TINY:
        return "core/transformers", f"{model_path} is tiny ({size} parameters)"
    if importlib.util.find_spec("vllm") is None:
        return "core/transformers", "vLLM is not installed; rlvr docs installation has the commands"

    try:
        from rlvr_core.engines.vllm.process import import_vllm

        import_vllm()
    except MachineError as error:
        return "core/transformers", error.complaints[0].what
    return "core/vllm", f"vLLM is installed and {model_path} has {size} parameters"


def parameter_count(model_path: str) -> int:
    """Count a model's parameters from file headers, without reading weights; tied ones once.

    Args:
        model_path: A model folder, or a hub id whose files are cached or can be fetched.

    Raises:
        MachineError: If the model has no safetensors files, or they are damaged, or the hub cannot
            be reached.
    """
    from huggingface_hub import get_local_safetensors_metadata, get_safetensors_metadata

    folder = Path(model_path).expanduser()
    try:
        if not folder.is_dir():
            cached = _cached(model_path)
            if cached is None:
                return sum(get_safetensors_metadata(model_path).parameter_count.values())
            folder = cached
        files = get_local_safetensors_metadata(folder).files_metadata.values()
        sizes = {name: t.parameter_count for file in files for name, t in file.tensors.items()}
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except Exception as error:  # the hub's client has many errors, also those of its HTTP library
        raise MachineError(
            f"the size of '{model_path}' cannot be determined: {type(error).__name__}: {error}",
            where="model.path",
            remedy=(
                f"a folder has config.json and *.safetensors files; looked in {folder.absolute()}",
                "a hub id that is not in the cache needs the network: check HF_ENDPOINT",
                "or name the engine in the config, as in engine: vllm",
            ),
        ) from error
    if config.get("tie_word_embeddings") and len(sizes) > 1:
        sizes.pop("lm_head.weight", None)  # some exporters write it even if tied
    return sum(sizes.values())


def _cached(model_id: str) -> Path | None:
    """Return the folder of a hub model in the cache; None if it has not all that is needed."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(model_id, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    whole = (folder / "config.json").exists() and list(folder.glob("*.safetensors"))
    return folder if whole else None


def _in_words(n_parameters: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n_parameters >= unit:
            return f"{n_parameters / unit:.3g}{name}"
    return str(n_parameters)
