"""Writes a model as GGUF, the file that llama.cpp and what is built on it load.

Names of tensors and keys are those of the ``gguf`` package. What llama.cpp would compute
differently, or would split into other tokens, is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.record.files import sync_file, sync_folder, write_failed

_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_FILE_TYPES = {"float32": "ALL_F32", "float16": "MOSTLY_F16", "bfloat16": "MOSTLY_BF16"}
_STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {_WORDS.replace("DIGITS", ""): "qwen2", _WORDS.replace("DIGITS", "{1,3}"): "llama-bpe"}
"""llama.cpp's names of pre-tokenizers, by the expression they split by."""


def check_gguf() -> None:
    """Raise early if the package is not there.

    Raises:
        MachineError: If it cannot be imported.
    """
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise MachineError(
            f"GGUF files need the package gguf, which does not import: {error}",
            where="--gguf",
            remedy="pip install 'rlvr-lab[gguf]'",
        ) from error


def write_gguf(folder: Path, out: Path, dtype: str, name: str) -> None:
    """Write a whole model's folder as one file.

    Args:
        folder: Weights as safetensors, ``config.json`` and tokenizer.
        out: The new file; written under a temporary name and renamed.
        dtype: Dtype of its matrices: ``float32``, ``float16`` or ``bfloat16``. Norms and biases
            are float32, as llama.cpp wants them.
        name: What the file says that the model is called.

    Raises:
        ConfigError: If ``out`` exists, or the model is none that can be written.
        RunError: If it cannot be written.
    """
    import gguf

    if out.exists():
        raise ConfigError(f"'{out}' exists", where="OUT", remedy="name a file that is not there")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    architecture = _architecture(config)
    split = _split(folder)
    temporary = out.absolute().with_name(f".tmp-{out.absolute().name}-{os.getpid()}")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(temporary, architecture)
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[dtype]])
        _add_shape(writer, config, architecture)
        _add_tokens(writer, folder, split, int(config["vocab_size"]))
        _write_tensors(writer, folder, config, architecture, dtype)
        sync_file(temporary)
        temporary.replace(out.absolute())
        sync_folder(out.absolute().parent)
    except (OSError, SafetensorError) as error:
        raise write_failed(error, out) from error
    finally:
        temporary.unlink(missing_ok=True)


def _refuse(what: str, remedy: str = "export it without --gguf") -> ConfigError:
    message = f"this model cannot be written as GGUF: {what}"
    return ConfigError(message, where="--gguf", remedy=remedy)


def _architecture(config: dict[str, Any]) -> str:
    """Return llama.cpp's name of the model, if it supports all of it.

    Raises:
        ConfigError: If not.
    """
    names = config.get("architectures") or ["unnamed"]
    if names[0] not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise _refuse(f"it is a {names[0]}, and these are written: {known}")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise _refuse(f"its positions are of type '{kind}' (rope), not 'default'")
    odd = ("attention_bias", "mlp_bias", "use_sliding_window", "quantization_config")
    set_keys = [key for key in odd if config.get(key)]
    if set_keys:
        raise _refuse(f"'{set_keys[0]}' is set in its config.json")
    return _ARCHITECTURES[names[0]]


def _add_shape(writer: Any, config: dict[str, Any], architecture: str) -> None:
    heads = int(config["num_attention_heads"])
    head = int(config.get("head_dim") or config["hidden_size"] // heads)
    rope = config.get("rope_parameters") or {}
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))))
    if architecture == "llama":
        writer.add_rope_dimension_count(head)
        writer.add_vocab_size(int(config["vocab_size"]))


def _split(folder: Path) -> str:
    """Return llama.cpp's name of the tokenizer's pre-tokenizer.

    Raises:
        ConfigError: If it has no name for it that is known here.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise _refuse("it has no tokenizer.json")
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    model, before = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise _refuse(f"its tokenizer is no byte-level BPE but {model.get('type')}")
    if not model.get("merges"):
        raise _refuse("its tokenizer merges nothing, and llama.cpp wants merges")
    steps = before.get("pretokenizers", [before])
    bytewise = [step for step in steps if step.get("type") == "ByteLevel"]
    if len(bytewise) == 1 and not bytewise[0].get("add_prefix_space"):
        rest = [step for step in steps if step.get("type") != "ByteLevel"]
        if not rest and bytewise[0].get("use_regex", True):
            return "gpt-2"
        patterns = [(step.get("pattern") or {}).get("Regex") for step in rest]
        if len(patterns) == 1 and patterns[0] in _SPLITS and not bytewise[0].get("use_regex"):
            return _SPLITS[patterns[0]]
    raise _refuse(
        "its tokenizer splits text as none of those that llama.cpp has a name for here "
        "(gpt-2, llama-bpe, qwen2)"
    )


def _add_tokens(writer: Any, folder: Path, split: str, size: int) -> None:
    import gguf
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = tokenizer.get_added_tokens_decoder()
    texts: dict[int, str] = {id_: text for text, id_ in tokenizer.get_vocab(True).items()}
    if len(texts) and max(texts) >= size:
        raise _refuse(f"its tokenizer has a token {max(texts)}, and the model {size} of them")
    kinds = gguf.TokenType
    tokens, types = [], []
    for id_ in range(size):
        tokens.append(texts.get(id_, f"[PAD{id_}]"))
        if id_ in added:
            types.append(kinds.CONTROL if added[id_].special else kinds.USER_DEFINED)
        else:
            types.append(kinds.NORMAL if id_ in texts else kinds.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    gguf.SpecialVocab(folder, load_merges=True, n_vocab=size).add_to_gguf(writer, quiet=True)


def _write_tensors(
    writer: Any, folder: Path, config: dict[str, Any], architecture: str, dtype: str
) -> None:
    """Announce all tensors, then write them one by one: no more than one is in memory."""
    import gguf

    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, int(config["num_hidden_layers"]))
    tied = bool(config.get("tie_word_embeddings"))
    sources = [
        (source, at) for source, at in _stored(folder) if not (tied and source == "lm_head.weight")
    ]
    for source, at in sources:
        named = names.get_name(source, try_suffixes=(".weight", ".bias"))
        if named is None:
            raise _refuse(f"GGUF has no name for its tensor {source}")
        with safe_open(at, framework="pt") as file:
            shape = file.get_slice(source).get_shape()
        kind = dtype if len(shape) > 1 else "float32"
        stored = gguf.GGMLQuantizationType[_STORED[kind]]
        element = getattr(torch, kind)
        length = torch.Size(shape).numel() * element.itemsize
        writer.add_tensor_info(named, shape, np.dtype("float32"), length, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for source, at in sources:
        with safe_open(at, framework="pt") as file:
            tensor = _ordered(file.get_tensor(source), source, config, architecture)
        kind = dtype if tensor.ndim > 1 else "float32"
        writer.write_tensor_data(_numpy(tensor.to(getattr(torch, kind))))
    writer.close()


def _stored(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names of the tensors, each with its file."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise _refuse("its folder has no weights as model*.safetensors")
    for path in files:
        with safe_open(path, framework="pt") as file:
            yield from ((name, path) for name in file.keys())  # noqa: SIM118 - no mapping


def _ordered(tensor: Tensor, name: str, config: dict[str, Any], architecture: str) -> Tensor:
    """Llama's queries and keys in the order that llama.cpp rotates them in.

    transformers rotates the first half of a head's dimensions with the second one, llama.cpp
    neighbours.
    """
    projection = re.search(r"\.([qk])_proj\.weight$", name)
    if architecture != "llama" or not projection:
        return tensor
    heads = int(config["num_attention_heads"])
    if projection[1] == "k":
        heads = int(config.get("num_key_value_heads") or heads)
    halves_H2DI = tensor.reshape(heads, 2, -1, tensor.shape[1])
    return halves_H2DI.swapaxes(1, 2).reshape(tensor.shape)


def _numpy(tensor: Tensor) -> Any:
    """The tensor's memory; of bfloat16, which NumPy has not got, as whole numbers."""
    whole = tensor.contiguous()
    return (whole.view(torch.int16) if whole.dtype == torch.bfloat16 else whole).numpy()
