"""Two gloo processes train the adapters that one does, with DDP and with FSDP2."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr_core.ranks import Ranks

WORKER = Path(__file__).with_name("lora_ranks.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lora-ranks")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    spec = importlib.util.spec_from_file_location("rlvr_lora_ranks", WORKER)
    worker = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = worker
    spec.loader.exec_module(worker)
    return worker.everything(folder, Ranks())


@pytest.fixture(scope="module")
def together(folder):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *torchrun, WORKER, folder, folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in (0, 1)]


CASES = ["ddp-follows", "fsdp-follows", "fsdp-bf16"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_the_adapters_of_one(alone, together, case):
    one, two = alone[case], together[0][case]
    close = {"rtol": 1e-3, "atol": 1e-5} if case != "fsdp-bf16" else {"rtol": 0.2, "atol": 0.02}
    for ours, theirs in zip(one["metrics"], two["metrics"], strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("loss", "kl/mean", "grad_norm"):
            assert ours[name] == pytest.approx(theirs[name], rel=close["rtol"], abs=close["atol"])
    assert one["metrics"][1]["kl/mean"] > 1e-4
    for kind in ("adapter", "reference", "merged"):
        assert one[kind].keys() == two[kind].keys()
        torch.testing.assert_close(one[kind], two[kind], **close)
    assert bool(two["reference"]) == ("follows" in case)
    assert len(two["adapter"]) == 28
    assert two["moments"].keys() == one["moments"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_both_processes_hold_and_hand_on_the_same(together, case):
    first, second = (rank[case] for rank in together)
    for kind in ("adapter", "reference", "merged", "replica"):
        assert all(torch.equal(first[kind][name], second[kind][name]) for name in first[kind])
    assert all(torch.equal(first["merged"][n], first["replica"][n]) for n in first["merged"])
