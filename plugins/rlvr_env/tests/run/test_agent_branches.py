"""A run that trains an agent program which branches, with every guard on."""

import json
import shutil
from pathlib import Path

import pytest

from rlvr_core.record.jsonl import read_jsonl

AGENT = Path(__file__).with_name("branching_agent.py")
SECTIONS = {
    "environment": {
        "use": "env/agent",
        "with": {"function": f"./{AGENT.name}:run"},
        "max_turns": 8,
        "timeout": 300,
    },
    "rewards": [{"use": f"./{AGENT.name}:short"}],
    # letters enough to end a turn of a model of random weights after a dozen tokens
    "sampling": {"n": 4, "max_tokens": 200, "stop": list("aeioustnrlm0123456789")},
}


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "more"), [("grpo", {}), ("dapo", {"max_staleness": 1})])
def test_every_branch_of_an_agent_is_trained(loss, more, lab):
    pytest.importorskip("openai")
    shutil.copy(AGENT, lab.folder)
    train = {"steps": 2, "lr": 1e-4, "warmup_steps": 0, **more}
    run = lab.run(loss={"use": loss}, train=train, **SECTIONS)
    shown = json.loads(lab.rlvr("show", run.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [step["tokens/missing"] for step in steps] == [0, 0]
    # token in, token out: the trainer's log-probs are the engine's, until rows are stale
    fresh = steps[:1] if more else steps
    assert max(step["mismatch/abs_max"] for step in fresh) < 1e-3
    groups = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
    for step, line in enumerate(steps):
        done = [one for g in groups if g["step"] == step for one in g["completions"]]
        done = [one for one in done if one["fate"] == "trained"]
        assert done
        assert line["rows"] == len(done)  # completions, not branches
        rows = [row for one in done for row in (one, *one.get("branches", ()))]
        assert line["tokens/loss"] == sum(sum(row["loss_mask"]) for row in rows)
        whole = [one for one in done if one["transcript"]["ended"] == "done"]
        assert whole
        for one in whole:
            assert one["transcript"]["counts"]["sampled_turns"] == 5
            # the shortened history is judged; the first try, the helper and the second try
            assert len(one["branches"]) == 3
