"""What one process trains and what two do, by a program beside this."""

import importlib
import os
import subprocess
import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr_core.parallel.ranks import Ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small model."""
    folder = tmp_path_factory.mktemp("ranks")
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
def worker(request):
    """The program that the module names: ``everything(folder, ranks)``, and alone as one rank."""
    return f"tests.support.train.{request.module.WORKER}"


@pytest.fixture(scope="module")
def alone(folder, worker):
    """What one process finds."""
    return importlib.import_module(worker).everything(folder, Ranks())


@pytest.fixture(scope="module")
def started(folder, worker):
    """Starts so many processes; what each of them finds."""

    def start(processes):
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        done = subprocess.run(
            [sys.executable, *torchrun, "-m", worker, folder, folder],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        files = [folder / f"rank{rank}.pt" for rank in range(processes)]
        return [torch.load(file, weights_only=False) for file in files]

    return start


@pytest.fixture(scope="module")
def together(started):
    """What each of two processes finds."""
    return started(2)
