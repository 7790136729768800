"""Two processes try the largest micro-batch before the first rollout, under DDP and under FSDP2."""

import os
import subprocess
import sys

import pytest
import torch

WORKER = "rehearsal_worker"
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("strategy", "exact"), [("ddp", False), ("fsdp", True)])
def test_a_rehearsal_of_two_processes_leaves_nothing_behind(together, strategy, exact):
    """DDP builds its buckets anew after its first pass, and so may sum in another order."""
    for rank in together:
        without, rehearsed = rank[strategy]["without"], rank[strategy]["rehearsed"]
        assert without["metrics"][0] != without["metrics"][1], "nothing was trained"
        assert rehearsed["errors"] == ["", ""]
        assert all(rehearsed["left"])
        if exact:
            assert rehearsed["metrics"] == without["metrics"]
        for ours, theirs in zip(rehearsed["metrics"], without["metrics"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6, nan_ok=True)
        close = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(rehearsed["weights"], without["weights"], **close)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_each_process_tries_a_full_micro_batch(together, strategy):
    """40 tokens hold 4 of the prompt, and 8 of each of 4 completions: the last is not fed."""
    for rank in together:
        assert rank[strategy]["rehearsed"]["tokens"] == [36, 36]


def test_what_fits_is_said_and_what_does_not_is_the_error_of_a_machine(together):
    for rank in together:
        said, awake = rank["fits"]
        assert said == "the largest micro-batch (36 tokens) fits: 0.0 of 2.0 GiB"
        assert awake == "awake"
        both = rank["both"]
        assert both["told"] == []
        check_error(both)
        assert both["where"] == "train.tokens_per_micro_batch"


def check_error(found):
    assert found["code"] == 4
    what, remedy, split, *_ = found["said"]
    assert "does not fit on the GPU: 40 tokens, prompts of 4 and completions of 8" in what
    assert "Tried to allocate 1.00 GiB" in what
    assert remedy == "lower train.tokens_per_micro_batch, to 20 for example"
    assert split == "train.context_parallel: 2 splits each row over 2 GPUs"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_the_others_name_the_process_that_has_too_little_memory(folder, tmp_path, worker, strategy):
    """They wait for its part of a gradient, which never comes, and say nothing of their own."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *torchrun, "-m", worker, strategy, folder, tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"alone{rank}.pt") for rank in (0, 1))
    assert second["told"] == []
    assert second["said"]["where"] == "train.tokens_per_micro_batch"
    assert first["told"] == []  # not that it could not be tried
    assert first["said"]["where"] == "train.tokens_per_micro_batch, process 1"
    for found in (first, second):
        check_error(found["said"])
