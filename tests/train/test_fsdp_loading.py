"""No process holds a whole model while it is loaded to be sharded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr_core.config.model import ModelSection
from rlvr_core.parallel.fsdp.loading import probe, stored_dtype
from rlvr_core.step.forward_paths import forward_paths
from rlvr_core.step.model import load_policy

CPU = torch.device("cpu")
MIB = 2**20


def made(folder, **changes):
    torch.manual_seed(1)
    shape = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.2}
    config = LlamaConfig(**{**shape, **heads, "tie_word_embeddings": True, **changes})
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return str(folder)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no such count here")
def test_memory_at_load_is_a_shard_and_one_layer(tmp_path):
    """Of 12 layers over 4 processes; as it was before beside it, for the same numbers."""
    folder = made(
        tmp_path, hidden_size=512, intermediate_size=1536, num_hidden_layers=12, vocab_size=2048,
        num_attention_heads=8, num_key_value_heads=8,
    )  # fmt: skip
    made(tmp_path / "small")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4",
         "-m", "tests.support.train.loading_worker", folder, tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    layer = 4 * (4 * 512 * 512 + 3 * 512 * 1536 + 2 * 512)  # bytes in float32
    whole = 12 * layer + 4 * (2048 * 512 + 512)
    assert whole > 150 * MIB
    noise = 24 * MIB  # allocator, buffers of gloo
    for rank in range(4):
        shards, before = (
            torch.load(tmp_path / f"{way}{rank}.pt", weights_only=False)
            for way in ("shards", "whole")
        )
        assert before["peaks"]["policy"]["RssAnon"] > whole
        assert shards["peaks"]["policy"]["RssAnon"] < whole / 4 + layer + noise
        assert shards["peaks"]["reference"]["RssAnon"] < whole / 8 + layer / 2 + noise
        assert shards["dtypes"] == {"torch.float32"}
        assert shards["frozen"] == {"torch.bfloat16"}
        assert shards["tied"]
        for name in ("policy", "reference"):
            assert torch.equal(shards[name], before[name])
        assert shards["weights"] == before["weights"]


def test_the_dtype_of_files_is_that_of_every_weight(tmp_path):
    folder = made(tmp_path)
    assert stored_dtype(folder, ModelSection(path=folder)) == torch.bfloat16
    file = tmp_path / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    # one in float32 among them would lose bits in bfloat16
    mixed = tensors | {"model.norm.weight": tensors["model.norm.weight"].float()}
    save_file(mixed, file, metadata={"format": "pt"})
    assert stored_dtype(folder, ModelSection(path=folder)) == torch.float32
    file.write_bytes(b"not a safetensors file")
    assert stored_dtype(folder, ModelSection(path=folder)) == torch.float32
    file.unlink()
    assert stored_dtype(folder, ModelSection(path=folder)) == torch.float32


def test_the_dtype_of_files_in_parts(tmp_path):
    folder = made(tmp_path)
    model = LlamaForCausalLM.from_pretrained(folder)
    model.to(torch.float16).save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    path = str(tmp_path / "parts")
    assert stored_dtype(path, ModelSection(path=path)) == torch.float16


def test_a_few_layers_tell_what_all_of_them_do(tmp_path):
    folder = made(tmp_path)
    section = ModelSection(path=folder)
    asked, few = (load_policy(folder, section, CPU, torch.bfloat16) for _ in range(2))
    calls = []
    for layer in few.model.layers:
        layer.register_forward_hook(lambda module, *_: calls.append(module))
    probe(few)
    assert set(calls) == {few.model.layers[0]}
    assert len(few.model.layers) == 3
    names = [type(path).__name__ for path in forward_paths(asked)]
    assert names == [type(path).__name__ for path in forward_paths(few)]
    assert names == ["PackedPath"]
