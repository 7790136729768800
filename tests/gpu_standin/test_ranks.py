"""A step of two ranks that split the policy by FSDP2, each with a stand-in for its GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from test_step import WAITS_AN_UPDATE, run  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++"),
]

CASES = {
    "flash, micro-batches": {"layers": 4, "budget": 60},
    "flash, checkpointing, mini-batches": {"layers": 4, "checkpointing": True, "mini_batches": 2},
    "grids, checkpointing, reference": {
        "layers": 4, "checkpointing": True, "flash": False, "beta": 0.01,
    },
    "flash, split rows": {"layers": 4, "budget": 60, "split": 2},
    "grids, checkpointing, reference, split rows": {
        "layers": 4, "checkpointing": True, "flash": False, "beta": 0.01, "split": 2,
    },
}  # fmt: skip

# bfloat16: q and o of 32 x 32, k and v of 16 x 32, three of 48 x 32, two norms of 32, two of 8
LAYER = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32 + 2 * 32 + 2 * 8)
# embedding and head of 64 x 32, and the last norm
OUTER = 2 * (2 * 64 * 32 + 32)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each of two ranks finds, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *torchrun, HERE / "ranks.py", json.dumps([*CASES.values()]), folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    return [dict(zip(CASES, one, strict=True)) for one in found]


@pytest.fixture(scope="module")
def cpu():
    """The same steps on the CPU by one process, by case."""
    plain = {"device": "cpu", "checkpointing": False, "forward_paths": False, "flash": True}
    plain |= {"split": 1}
    return dict(zip(CASES, run([case | plain for case in CASES.values()]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_step_is_that_of_one_process_on_the_cpu(name, ranks, cpu):
    for rank in ranks:
        assert (rank[name]["device"], rank[name]["held"]) == ("cuda:0", 0.5)
        for ours, theirs in zip(rank[name]["metrics"], cpu[name]["metrics"], strict=True):
            for metric in ("loss", "grad_norm", "entropy/mean", "mismatch/abs_mean"):
                assert ours[metric] == pytest.approx(theirs[metric], rel=5e-3, abs=5e-4), metric


@pytest.mark.parametrize("name", CASES)
def test_a_rank_waits_for_its_device_no_more_often_than_one_process_does(name, ranks):
    for rank in ranks:
        waits = sum(n for _, _, n in rank[name]["waits"])
        assert waits <= WAITS_AN_UPDATE * rank[name]["updates"], rank[name]["waits"]
        assert rank[name]["wide"] == [], "products in float32"


@pytest.mark.parametrize("name", CASES)
def test_one_layer_is_whole_at_a_time_and_none_outlives_its_pass(name, ranks):
    """Beside what is in no layer, which stays to the backward pass."""
    for rank in ranks:
        assert rank[name]["alive"]  # after each layer's pass forward
        assert {*rank[name]["alive"]} == {OUTER}
        assert rank[name]["gathered"] <= LAYER + OUTER
        assert rank[name]["at_rest"] == 0


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_copies_a_rank_s_shard_to_the_host_and_back(name, ranks):
    weights = (4 * LAYER + OUTER) // 2
    n_tensors = 4 * 11 + 3
    for rank, found in enumerate(ranks):
        assert found[name]["places"] == ["cpu"]
        steps = n_tensors if rank == 0 else 0  # AdamW counts its steps once a tensor
        assert found[name]["copied"] == 3 * weights // 2 + steps
        assert found[name]["restored"] == [n_tensors, 3 * n_tensors]
