"""Runs and evaluations of conversations: one path, exact resumption, failures accounted for."""

import json
import os
import subprocess

import pytest

from tests.support.run_records import lines

ALL = pytest.mark.skipif(
    os.environ.get("RLVR_TEST_ALL") != "1", reason="long: make test-all runs it"
)

TOYS = """
import time
from dataclasses import replace
from rlvr_core.api import Done, Message, NoConfig, Observation, Problem, Verdict, hookimpl


@hookimpl
def register_datasets(registrar):
    registrar.add("games", "rlvr_turns_toy:Games", summary="Problems for the environment.")


@hookimpl
def register_environments(registrar):
    registrar.add("echo", "rlvr_turns_toy:Echo", summary="Two turns; p3 fails.")


class Games:
    def __init__(self, config: NoConfig) -> None:
        pass

    def load(self):
        for i in range(12):
            spec = {"fails": i == 3}
            yield Problem(
                f"p{i}",
                f"Say {i}.",
                "env/environment",
                spec,
                "toy",
                environment="turns/echo",
                stop=tuple("abcdefghijklmnopqrstuvwxyz"),
            )


class Echo:
    def __init__(self, config: NoConfig) -> None:
        pass

    def start(self, problem, seed):
        return {"fails": problem.spec["fails"], "text": ""}

    def step(self, state, reply):
        if state["fails"]:
            raise RuntimeError("broken on purpose")
        state["text"] += reply.text
        if reply.turn == 1:
            low = sum(c < "n" for c in state["text"]) / max(1, len(state["text"]))
            return Done(Verdict(low, passed=low > 0.7))
        return Observation((Message("user", "\\nmore: "),), {"asked": 1})
"""


@pytest.fixture(scope="module")
def turns_site(tmp_path_factory):
    site = tmp_path_factory.mktemp("turns-site")
    (site / "rlvr_turns_toy.py").write_text(TOYS)
    info = site / "rlvr_turns_toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlvr-turns-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlvr]\nturns = rlvr_turns_toy\n")
    return site


@pytest.fixture
def turns_lab(lab, turns_site, monkeypatch):
    monkeypatch.setattr(lab, "site", f"{lab.site}:{turns_site}")
    lab.config["data"]["sources"] = [{"use": "turns/games"}]
    lab.config["environment"] = {"workers": 1, "max_turn_tokens": 16}
    lab.config["sampling"]["max_tokens"] = 40
    lab.config["sampler"]["with"] = {"refill": 0}
    lab.config["train"]["prompts_per_step"] = 12
    lab.config["verify"] = {**lab.config.get("verify", {}), "max_error_rate": 0.5}
    return lab


EXACT = ("metrics.jsonl", "traces/rollouts.jsonl")


@pytest.mark.slow
def test_a_run_of_conversations_is_exact_resumes_exactly_and_accounts_for_failures(turns_lab):
    lab = turns_lab
    train = {"steps": 4, "lr": 1e-3, "warmup_steps": 1}
    straight = lab.run(train=train, checkpoint={"every": 2, "keep": 9})
    resumed = lab.run(train=train | {"steps": 2}, checkpoint={"every": 2, "keep": 9})
    lab.rlvr("run", "--resume", str(resumed), "--set", "train.steps=4", "--display", "none")
    for name in EXACT:
        assert (straight / name).read_bytes() == (resumed / name).read_bytes(), name
    weights = "checkpoints/step000004/model.safetensors"
    assert (straight / weights).read_bytes() == (resumed / weights).read_bytes()

    shown = json.loads(lab.rlvr("show", straight.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    assert shown["ledger"]["drawn"] == 4 * 12 * 4
    assert shown["parity"]["k3"] < 1e-7

    groups = lines(straight / "traces" / "rollouts.jsonl")
    rows = [
        {**row, **row["transcript"], "step": group["step"], "problem": group["problem_id"]}
        for group in groups
        for row in group["completions"]
    ]
    assert len(rows) == 4 * 12 * 4
    failed = [row for row in rows if row["ended"] == "error"]
    assert {row["problem"] for row in failed} == {"p3"}
    assert all(row["reward"] is None and row["passed"] is None for row in failed)
    assert all("broken on purpose" in row["detail"] for row in failed)
    assert shown["ledger"]["error"] == len(failed) > 0
    ends = {row["ended"] for row in rows}
    assert {"done", "turn_length", "error"} <= ends
    metrics = lines(straight / "metrics.jsonl")
    for step, line in enumerate(metrics):
        mine = [row for row in rows if row["step"] == step]
        assert line["ended/done"] == sum(row["ended"] == "done" for row in mine)
        assert line["environment/asked"] == sum(row["counts"].get("asked", 0) for row in mine)
        assert line["grad_norm"] > 0
    theirs = sum(row["loss_mask"].count(0) for g in groups for row in g["completions"])
    assert theirs == sum(line["tokens/environment"] for line in metrics) > 0


@pytest.mark.slow
def test_eval_and_passk_play_the_same_conversations(turns_lab):
    lab = turns_lab
    lab.run(train={"steps": 1, "lr": 1e-3, "warmup_steps": 0})
    task = ["--task", "dataset", "--with", "data=turns/games", "--with", "max_tokens=40"]
    allow = ["--allow-truncation", "--allow-contamination", "--set", "verify.max_error_rate=0.5"]
    lab.rlvr("eval", "last", *task, *allow, "--out", "evaluated")
    lab.rlvr("passk", "last", *task, *allow, "--n", "2", "--k", "1", "--out", "sampled")
    (spec,) = lab.folder.glob("evaluated/*/spec.json")
    environment = json.loads(spec.read_text())["spec"]["environment"]
    assert environment["max_turn_tokens"] == 16  # the run's own section
    assert "turns/echo" in environment["use"]
    (first,) = lab.folder.glob("evaluated/*/completions.jsonl")
    (both,) = lab.folder.glob("sampled/*/completions.jsonl")
    once = {(row["problem_id"], row["sample"]): row for row in lines(first)}
    twice = {(row["problem_id"], row["sample"]): row for row in lines(both)}
    assert len(twice) == 2 * len(once) == 24
    for key, row in once.items():
        assert row["transcript"] == twice[key]["transcript"]
        assert sum(turn["n_tokens"] for turn in row["transcript"]["turns"]) == len(row["token_ids"])
    (results,) = lab.folder.glob("evaluated/*/results.jsonl")
    scores = {row["problem_id"]: row for row in lines(results)}
    assert scores["p3"]["verdicts"]["env/environment"]["status"] in ("error", "ok")


@pytest.mark.slow
def test_t22_conversations_beside_training_do_not_depend_on_timing(turns_lab):
    """With one update ahead nothing depends on timing."""
    lab = turns_lab
    train = {"steps": 3, "lr": 1e-3, "warmup_steps": 1}
    ahead = train | {"max_staleness": 1}
    straight = lab.run(train=ahead, checkpoint={"every": 2, "keep": 9})
    again = lab.folder / "runs" / "again"
    subprocess.run(["cp", "-a", str(straight), str(again)], check=True)
    subprocess.run(["rm", "-r", str(again / "checkpoints" / "step000003")], check=True)
    lab.rlvr("run", "--resume", str(again), "--display", "none")
    for name in EXACT:
        assert (straight / name).read_bytes() == (again / name).read_bytes(), name
    shown = json.loads(lab.rlvr("show", straight.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    metrics = lines(straight / "metrics.jsonl")
    assert [line["staleness/max"] for line in metrics] == [0, 1, 1]
    groups = lines(straight / "traces" / "rollouts.jsonl")
    assert all(group["sampled_version"] == max(0, group["step"] - 1) for group in groups)
    ended = [c["transcript"]["ended"] for group in groups for c in group["completions"]]
    assert {"done", "error"} <= {*ended}


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [pytest.param("abort", marks=ALL), "keep"])
def test_t23_conversations_that_a_sync_meets_unfinished_lose_nothing(turns_lab, in_flight):
    lab = turns_lab
    train = {"steps": 5, "lr": 1e-3, "warmup_steps": 1, "max_staleness": 2, "in_flight": in_flight}
    run = lab.run(train=train | {"prompts_per_step": 4}, sampler="shuffle")
    metrics = lines(run / "metrics.jsonl")
    assert len(metrics) == 5
    assert all(line["staleness/max"] <= 2 for line in metrics)
    shown = json.loads(lab.rlvr("show", run.name, "--json").stdout)
    assert shown["ledger"]["balanced"] is True
    groups = lines(run / "traces" / "rollouts.jsonl")
    written = sum(len(group["completions"]) for group in groups)
    assert shown["ledger"]["drawn"] == written + shown["ledger"]["in_flight"]
    for group in groups:
        versions = [one["version"] for one in group["completions"]]
        assert group["sampled_version"] == min(versions)
        for one in group["completions"]:
            each = one.get("token_versions", [])
            assert each == sorted(each)  # turns only ever meet newer weights
            assert not each or (len(each) == len(one["token_ids"]) and each[0] == one["version"])
