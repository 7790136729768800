"""A run of several processes, each with a vLLM of its own."""

import importlib.util
import json
import os

import pytest

from tests.support.run_records import lines

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]


@pytest.mark.skipif(not os.environ.get("RLVR_TEST_ALL"), reason="two engines: make test-all")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_each_process_has_a_vllm_and_gives_it_the_weights(lab, wide_model, strategy):
    """Every sync is held against the trainer, whole or sharded, and so is every token."""
    lab.write(
        model={"path": str(wide_model)},
        engine={"use": "vllm", "with": {"kv_cache_mb": 64}},
        train={"steps": 3, "lr": 1e-2, "warmup_steps": 1, "parallel": strategy},
    )
    lab.rlvr("launch", "config.yaml", "--processes", "2", "--display", "none")
    (run,) = lab.runs()
    assert json.loads(lab.rlvr("show", run.name, "--json").stdout)["ledger"]["balanced"] is True
    steps = lines(run / "metrics.jsonl")
    assert len(steps) == 3
    for step in steps:
        assert step["grad_norm"] > 1e-3
        assert step["mismatch/abs_max"] < 1e-3
