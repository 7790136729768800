"""A random model with one token per byte."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM


def write_model(folder):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*letters, "<eos>", "<pad>"])}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    ends = {"eos_token_id": vocab["<eos>"], "pad_token_id": vocab["<pad>"], "bos_token_id": None}
    Qwen3ForCausalLM(
        Qwen3Config(vocab_size=len(vocab), initializer_range=0.1, **shape, **heads, **ends)
    ).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(folder)
