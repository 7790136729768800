"""``rlvr launch`` with one vLLM engine for two processes: the run of one process, and refusals."""

import importlib.util

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.support.run_records import completions, lines

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

TRAIN = {"steps": 2, "lr": 1e-3, "warmup_steps": 1, "prompts_per_step": 3}


def weights(run):
    model = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step000002")
    return dict(model.named_parameters())


def engine(size):
    return {"use": "vllm", "with": {"kv_cache_mb": 32, "tensor_parallel_size": size}}


@pytest.fixture(scope="module")
def shared(tmp_path_factory, make_lab, wide_model):
    lab = make_lab(tmp_path_factory.mktemp("shared"))
    lab.config |= {"model": {"path": str(wide_model)}, "train": TRAIN, "checkpoint": {"every": 2}}
    return lab


@pytest.fixture(scope="module")
def alone(shared):
    shared.write(engine=engine(1))
    shared.rlvr("run", "config.yaml", "--display", "none")
    return shared.runs()[-1]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_with_one_engine_do_the_run_of_one(shared, alone, strategy):
    """Three prompts for two processes: one generates for two, the other for one."""
    shared.write(engine=engine(2), train=TRAIN | {"parallel": strategy})
    shared.rlvr("launch", "config.yaml", "--processes", "2", "--display", "none")
    run = shared.runs()[-1]
    assert completions(run) == completions(alone)
    torch.testing.assert_close(weights(run), weights(alone), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(
        lines(run / "metrics.jsonl"), lines(alone / "metrics.jsonl"), strict=True
    ):
        for name in ("loss", "reward/mean", "parity/k3"):
            if name in theirs:
                assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5), name
        # a sharded policy would have to be gathered once more
        assert ours.get("sync/read_back") == (1.0 if strategy == "ddp" else None)


def test_a_shared_engine_does_not_generate_while_training_runs(shared):
    shared.write(engine=engine(2))
    words = ["--processes", "2", "--display", "none", "--set", "train.max_staleness=1"]
    done = shared.rlvr("launch", "config.yaml", *words, check=2)
    assert "is shared by the processes that train: it generates and trains in turns" in done.stderr
    assert "(train.max_staleness)" in done.stderr  # with file and line: before the engine starts
    assert "Traceback" not in done.stderr
