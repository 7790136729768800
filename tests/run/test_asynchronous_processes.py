"""``train.max_staleness`` above 0 in two processes: the run of one, and one end for all."""

import importlib.util
import json
import os
import shutil
import signal
import time

import psutil
import pytest

from tests.support.run_records import (
    balanced,
    completions,
    launch,
    lines,
    same_metrics,
    same_weights,
)

pytestmark = pytest.mark.slow

ALL = pytest.mark.skipif(
    os.environ.get("RLVR_TEST_ALL") != "1", reason="long: make test-all runs it"
)
SAMPLER = {"use": "shuffle", "with": {"refill": 1.0}}
TRAIN = {
    "steps": 4,
    "prompts_per_step": 3,
    "lr": 1e-3,
    "warmup_steps": 1,
    "tokens_per_micro_batch": 60,
    "max_staleness": 1,
}


def accounted(lab, run):
    shown = balanced(lab, run)
    steps = {line["step"] for line in lines(run / "metrics.jsonl")}
    groups = lines(run / "traces" / "rollouts.jsonl")
    # a step that was broken off may have groups without a line of its ledger
    written = sum(len(group["completions"]) for group in groups if group["step"] in steps)
    assert shown["ledger"]["drawn"] == written + shown["ledger"]["in_flight"]
    return shown


def same(lab, found, expected):
    """The same completions, the same numbers up to rounding, a ledger that balances."""
    assert completions(found, "version") == completions(expected, "version")
    same_metrics(found, expected)
    same_weights(found, expected, "step000004")
    return accounted(lab, found)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, make_lab):
    lab = make_lab(tmp_path_factory.mktemp("shared"))
    lab.write(sampler=SAMPLER, train=TRAIN, checkpoint={"every": 2, "keep": 9})
    return lab


@pytest.fixture(scope="module")
def alone(shared):
    shared.rlvr("run", "config.yaml", "--display", "none")
    return shared.runs()[-1]


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=ALL)])
def test_t18_two_processes_that_generate_ahead_do_the_run_of_one(shared, alone, strategy):
    """Under the weights of the same versions: every engine got them at every sync."""
    run = launch(shared, "config.yaml", "--set", f"train.parallel={strategy}")
    shown = same(shared, run, alone)
    metrics = lines(run / "metrics.jsonl")
    assert [line["staleness/max"] for line in metrics] == [0, 1, 1, 1]
    trained = [line["ledger/trained"] for line in metrics]
    assert shown["staleness"] == {"0": trained[0], "1": sum(trained[1:])}
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["processes"]) == ("finished", 2)


@ALL
@pytest.mark.vllm
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_vllm_generates_ahead_beside_each_of_two_processes(shared, wide_model, strategy):
    """Each sync is probed, so weights arrive; vLLM starts where it is no rank of the run."""
    settings = {
        "model.path": wide_model,
        "engine": "{use: vllm, with: {kv_cache_mb: 64}}",
        "train.parallel": strategy,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    run = launch(shared, "config.yaml", *words)
    metrics = lines(run / "metrics.jsonl")
    assert len(metrics) == 4
    assert metrics[0]["parity/k3"] < 1e-6
    assert [line["staleness/max"] for line in metrics] == [0, 1, 1, 1]
    accounted(shared, run)


@ALL
def test_a_run_that_generates_ahead_goes_on_with_more_processes(shared, alone):
    stopped = shared.folder / "runs" / "stopped"
    shutil.copytree(alone, stopped, symlinks=True)
    shutil.rmtree(stopped / "checkpoints" / "step000004")
    launch(shared, "--resume", str(stopped))
    same(shared, stopped, alone)


@ALL
@pytest.mark.parametrize("in_flight", ["abort", "keep"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_t23_abort_and_keep_lose_nothing_in_two_processes(shared, in_flight, strategy):
    options = {"parallel": strategy, "in_flight": in_flight, "max_staleness": 2, "steps": 8}
    words = [word for k, v in options.items() for word in ("--set", f"train.{k}={v}")]
    run = launch(shared, "config.yaml", *words)
    metrics = lines(run / "metrics.jsonl")
    assert len(metrics) == 8
    assert all(line["staleness/max"] <= 2 for line in metrics)
    accounted(shared, run)


class Launched:
    """A long run of two processes that has taken some steps and has written a checkpoint."""

    def __init__(self, lab, deadline=3600):
        train, run = TRAIN | {"steps": 5000}, lab.config["run"] | {"timeout": deadline}
        lab.write(run=run, sampler=SAMPLER, train=train, checkpoint={"every": 3})
        self.process = lab.started("launch", "config.yaml", "--processes", "2", "--display", "none")
        until = time.monotonic() + 200
        while not any(list(run.glob("checkpoints/step*/COMPLETE")) for run in lab.runs()):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        (self.run,) = lab.runs()
        self.ranks = {
            int(child.environ()["RANK"]): child
            for child in psutil.Process(self.process.pid).children()
        }
        self.everyone = psutil.Process(self.process.pid).children(recursive=True)

    def end(self):
        """Exit code, what was told and how it ended, once no process is left."""
        _, told = self.process.communicate(timeout=200)
        _, alive = psutil.wait_procs(self.everyone, timeout=60)
        assert not alive
        assert "Traceback" not in told
        return self.process.returncode, told, json.loads((self.run / "run.json").read_text())


def test_t32_when_a_process_is_killed_all_end_and_the_run_goes_on_with_one(lab):
    launched = Launched(lab)
    launched.ranks[1].send_signal(signal.SIGKILL)
    code, told, record = launched.end()
    assert code == 1
    assert (
        told.count("process 1 was ended by SIGKILL")
        == told.count("ended without reporting an error")
        == 1
    )
    assert "ended without reporting an error" in record["error"]
    accounted(lab, launched.run)
    newest = max(
        int(one.parent.name[4:]) for one in launched.run.glob("checkpoints/step*/COMPLETE")
    )
    more = ["--set", f"train.steps={newest + 2}", "--display", "none"]
    lab.rlvr("run", "--resume", launched.run.name, *more)
    accounted(lab, launched.run)
    metrics = lines(launched.run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(newest + 2))
    drawn = [line["draw_index"] for line in lines(launched.run / "traces" / "rollouts.jsonl")]
    assert len(drawn) == len(set(drawn))


@ALL
@pytest.mark.parametrize("rank", [0, 1])
def test_t29_a_process_that_is_stopped_ends_all_within_the_deadline(lab, rank):
    launched = Launched(lab, deadline=10)
    launched.ranks[rank].suspend()
    try:
        code, told, _ = launched.end()
    finally:
        if launched.ranks[rank].is_running():
            launched.ranks[rank].kill()
    assert code == 1
    assert "error: " in told
    accounted(lab, launched.run)


@ALL
def test_a_signal_lets_the_step_finish_and_writes_a_checkpoint(lab):
    launched = Launched(lab)
    launched.process.send_signal(signal.SIGTERM)
    code, _, record = launched.end()
    assert (code, record["outcome"]) == (130, "interrupted")
    steps = record["steps"]
    assert (launched.run / "checkpoints" / f"step{steps:06d}" / "COMPLETE").is_file()
    accounted(lab, launched.run)
