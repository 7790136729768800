"""A model of random weights with one token per byte: whole runs of it take seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def save_random_model(folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a Qwen3 that has learned nothing, and its tokenizer, as a Hugging Face folder.

    Args:
        folder: Where to.
        seed: Of the weights.
        changes: To the model's ``Qwen3Config``.

    Returns:
        The folder.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*letters, "<eos>", "<pad>"])}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    config = {
        "vocab_size": len(vocab),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "initializer_range": 0.1,
        "eos_token_id": vocab["<eos>"],
        "pad_token_id": vocab["<pad>"],
        "bos_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**config | changes))  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.save_pretrained(folder)
    return folder
