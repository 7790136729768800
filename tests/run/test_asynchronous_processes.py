"""``train.max_staleness`` above 0 in two processes: the run of one, and one end for all."""

import json
import os
import signal

import pytest

from tests.support.run_records import (
    Launched,
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


def test_t18_two_processes_that_generate_ahead_do_the_run_of_one(shared, alone):
    """Under the weights of the same versions: every engine got them at every sync."""
    run = launch(shared, "config.yaml")
    shown = same(shared, run, alone)
    metrics = lines(run / "metrics.jsonl")
    assert [line["staleness/max"] for line in metrics] == [0, 1, 1, 1]
    trained = [line["ledger/trained"] for line in metrics]
    assert shown["staleness"] == {"0": trained[0], "1": sum(trained[1:])}
    record = json.loads((run / "run.json").read_text())
    assert (record["outcome"], record["processes"]) == ("finished", 2)


def launched_ahead(lab, deadline=3600):
    train, run = TRAIN | {"steps": 5000}, lab.config["run"] | {"timeout": deadline}
    return Launched(lab, run=run, sampler=SAMPLER, train=train, checkpoint={"every": 3})


def test_t32_when_a_process_is_killed_all_end_and_the_run_goes_on_with_one(lab):
    launched = launched_ahead(lab)
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
def test_t29_a_process_that_is_stopped_ends_all_within_the_deadline(lab):
    launched = launched_ahead(lab, deadline=10)
    launched.ranks[1].suspend()
    try:
        code, told, _ = launched.end()
    finally:
        if launched.ranks[1].is_running():
            launched.ranks[1].kill()
    assert code == 1
    assert "error: " in told
    accounted(lab, launched.run)
