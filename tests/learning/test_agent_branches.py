"""A run that trains an agent program which branches, with every guard on."""

import json
import shutil
from pathlib import Path

import pytest

from rlvr_core.record.jsonl import read_jsonl

HERE = Path(__file__).parent
CONFIG = """
run: {{name: branching, seed: 3}}
model: {{path: "tiny:core/lookup"}}
data:
  sources:
    - {{use: core/lookup, with: {{split: train}}}}
environment:
  use: core/agent
  with: {{function: "./branching_agent.py:run"}}
  max_turns: 8
  timeout: 300
rewards: [{{use: ./branching_agent.py:short}}]
sampler: {{use: core/shuffle, with: {{refill: 0}}}}
sampling: {{n: 4, max_tokens: 120}}
engine: core/transformers
loss: core/{loss}
train: {{steps: 2, prompts_per_step: 3, lr: 1.0e-4, warmup_steps: 0{more}}}
guards: {{preflight: false}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "more"), [("grpo", ""), ("dapo", ", max_staleness: 1")])
def test_every_branch_of_an_agent_is_trained(loss, more, rlvr, tmp_path, cache_dir):
    shutil.copy(HERE / "branching_agent.py", tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG.format(loss=loss, more=more))
    rlvr("run", "config.yaml", "--display", "none", cwd=tmp_path, cache=cache_dir)
    shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache_dir))
    assert shown["ledger"]["balanced"] is True
    (run,) = (tmp_path / "runs").iterdir()
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [step["tokens/missing"] for step in steps] == [0, 0]
    # token in, token out: the trainer's log-probs are the engine's, until rows are stale
    fresh = steps[:1] if "max_staleness" in more else steps
    assert max(step["mismatch/abs_max"] for step in fresh) < 1e-3
    groups = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
    for step, line in enumerate(steps):
        done = [one for g in groups if g["step"] == step for one in g["completions"]]
        done = [one for one in done if one["fate"] == "trained"]
        assert done
        assert line["rows"] == len(done)  # completions, not branches
        rows = [row for one in done for row in (one, *one["branches"])]
        assert line["tokens/loss"] == sum(sum(row["loss_mask"]) for row in rows)
        whole = [one for one in done if one["transcript"]["ended"] == "done"]
        assert whole
        for one in whole:
            assert one["transcript"]["counts"]["sampled_turns"] == 5
            # the shortened history is judged; the first try, the helper and the second try
            assert len(one["branches"]) == 3
    row = next(one for g in groups for one in g["completions"] if len(one["branches"]) == 3)
    said = rlvr(
        "show", "last", "--conversation", row["conversation"], cwd=tmp_path, cache=cache_dir
    )
    assert "branch 3 of 3, with the same reward" in said
