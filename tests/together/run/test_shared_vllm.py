"""``rlvr launch`` with one vLLM engine for two processes: the run of one process, and refusals."""

import importlib.util
import json

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
    options = {"kv_cache_mb": 32, "tensor_parallel_size": size}
    return {"use": "servers/vllm-shared", "with": options}


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


GAME = """
from rlvr_core.api import Done, Message, NoConfig, Observation, Verdict


class Game:
    Config = NoConfig

    def __init__(self, config):
        pass

    def start(self, problem, seed):
        return {"turns": 1 + int(problem.id), "text": ""}

    def step(self, state, reply):
        state["text"] += reply.text
        if reply.turn + 1 < state["turns"]:
            return Observation((Message("user", "\\nmore: "),))
        low = sum(c < "n" for c in state["text"]) / max(1, len(state["text"]))
        return Done(Verdict(low, passed=low > 0.7))
"""


def test_conversations_of_different_lengths(shared):
    """Of one, two and three turns: no process plays as many rounds as the other."""
    (shared.folder / "game.py").write_text(GAME)
    rows = [json.dumps({"id": str(i), "question": f"Say {i}."}) for i in range(3)]
    (shared.folder / "three.jsonl").write_text("\n".join(rows))
    (source,) = shared.config["data"]["sources"]
    options = source["with"] | {"verifier": "env/environment", "path": "three.jsonl"}
    sections = {
        "data": {"sources": [source | {"with": options}]},
        "environment": {"use": "./game.py:Game", "max_turns": 3},
        # a turn ends with a letter
        "sampling": {"n": 4, "max_tokens": 90, "stop": [*"abcdefghijklmnopqrstuvwxyz"]},
        "train": TRAIN | {"steps": 1},
        "checkpoint": {"every": 0},
    }
    found = []
    for size, command in ((1, ["run"]), (2, ["launch", "--processes", "2"])):
        shared.write(engine=engine(size), **sections)
        shared.rlvr(*command, "config.yaml", "--display", "none")
        found.append(completions(shared.runs()[-1]))
    assert found[0] == found[1]
    played = [
        sum(turn["role"] == "assistant" for turn in one["transcript"]["turns"])
        for group in lines(shared.runs()[-1] / "traces" / "rollouts.jsonl")
        for one in group["completions"]
    ]
    assert set(played) == {1, 2, 3}


def test_a_shared_engine_does_not_generate_while_training_runs(shared):
    shared.write(engine=engine(2))
    words = ["--processes", "2", "--display", "none", "--set", "train.max_staleness=1"]
    done = shared.rlvr("launch", "config.yaml", *words, check=2)
    assert "so it cannot generate while training" in done.stderr
    assert "(train.max_staleness)" in done.stderr  # with file and line: before the engine starts
    assert "Traceback" not in done.stderr
