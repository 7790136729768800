"""``rlvr export --gguf``: read back by the gguf package, and by transformers' own reader."""

from __future__ import annotations

import json
import random

import pytest
import torch
from click.testing import CliRunner
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlvr_core.api import ConfigError
from rlvr_lab.export.command import export_
from tests.support.tables import table

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def save_tokenizer(folder, pattern=WORDS):
    inner = Tokenizer(models.BPE())
    steps = [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    inner.pre_tokenizer = pre_tokenizers.Sequence(steps)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<|end|>", "<|pad|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(["the sum of seven and three is ten, not 12"] * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|end|>", pad_token="<|pad|>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_model(folder, family="qwen3", **changes):
    shape = {
        "vocab_size": 300,  # ten more than the tokenizer has
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 0,
    }
    config, model = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    }[family]
    if family == "qwen3":
        shape["head_dim"] = 128  # transformers does not read it from the file
    torch.manual_seed(7)
    made = model(config(**shape | changes))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(
                    0.5, 1.5
                )  # so that norms and biases are seen to be the right ones
    made.save_pretrained(folder)
    save_tokenizer(folder)
    return made.eval()


def export(*arguments):
    found = CliRunner().invoke(export_, [str(argument) for argument in arguments])
    if found.exception is not None:
        raise found.exception
    return found.output


@pytest.mark.parametrize(
    ("family", "tied"), [("qwen3", False), ("llama", False), ("llama", True), ("qwen2", False)]
)
def test_transformers_computes_the_same_from_the_file(tmp_path, family, tied):
    model = save_model(tmp_path / "model", family, tie_word_embeddings=tied)
    out = tmp_path / "model.gguf"
    assert export(tmp_path / "model", out, "--gguf") == f"GGUF (float32): {out}\n"
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf").eval()
    ids = torch.tensor([random.Random(1).choices(range(290), k=40)])
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, model(ids).logits, rtol=1e-5, atol=1e-5)
    text = "The sum is 12345,\n\n  not that's it!"
    ours = AutoTokenizer.from_pretrained(tmp_path / "model")(text).input_ids
    if family != "llama":  # transformers splits as Qwen does only where the file says Qwen
        assert (
            AutoTokenizer.from_pretrained(tmp_path, gguf_file="model.gguf")(text).input_ids == ours
        )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp")] == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_the_file_says_and_half_precision(tmp_path, dtype):
    from gguf import GGUFReader, dequantize

    model = save_model(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "half.gguf", "--gguf", "--dtype", dtype)
    read = GGUFReader(tmp_path / "half.gguf")
    said = {name: field.contents() for name, field in read.fields.items()}
    assert said["general.architecture"] == "qwen3"
    assert said["qwen3.attention.key_length"] == 128
    assert said["qwen3.attention.head_count_kv"] == 2
    assert said["qwen3.rope.freq_base"] == 10_000.0
    assert said["tokenizer.ggml.pre"] == "qwen2"
    assert said["tokenizer.ggml.eos_token_id"] == 0
    assert said["tokenizer.chat_template"] == TEMPLATE
    tokens, types = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    assert (tokens[0], types[0]) == ("<|end|>", 3)
    assert (tokens[299], types[299]) == ("[PAD299]", 5)
    assert len(tokens) == 300
    tensors = {tensor.name: tensor for tensor in read.tensors}
    assert len(tensors) == 2 * 11 + 3
    state = dict(model.state_dict())
    up = tensors["blk.1.ffn_up.weight"]
    assert up.tensor_type.name == {"float16": "F16", "bfloat16": "BF16"}[dtype]
    expected = state["model.layers.1.mlp.up_proj.weight"].to(getattr(torch, dtype)).float()
    assert torch.equal(torch.tensor(dequantize(up.data, up.tensor_type)), expected)
    norm = tensors["blk.0.attn_q_norm.weight"]
    assert norm.tensor_type.name == "F32"
    assert torch.equal(torch.tensor(norm.data), state["model.layers.0.self_attn.q_norm.weight"])


def changed(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("name", "changes", "words"), table(__file__, "refused"))
def test_what_llama_cpp_would_compute_otherwise_is_refused(tmp_path, name, changes, words):
    save_model(tmp_path / "model")
    changed(tmp_path / "model", name, **changes)
    with pytest.raises(ConfigError, match=words):
        export(tmp_path / "model", tmp_path / "out.gguf", "--gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_adapter_is_merged_and_a_file_is_not_overwritten(tmp_path):
    import peft

    base = save_model(tmp_path / "model")
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"]))
    torch.manual_seed(3)
    for name, one in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(one)
    adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "model")
    adapted.save_pretrained(tmp_path / "adapter")
    export(tmp_path / "adapter", tmp_path / "merged.gguf", "--gguf")
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="merged.gguf").eval()
    ids = torch.arange(40)[None] * 7
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, adapted(ids).logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match=r"merged.gguf' exists"):
        export(tmp_path / "adapter", tmp_path / "merged.gguf", "--gguf")
