"""Generation that goes on while training runs: ``train.max_staleness`` above 0."""

import importlib.util
import json
import os
import signal
import time

import psutil
import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host
from rlvr_core.rollout.ahead.ahead import Ahead
from tests.support.run_fixtures import run_beside_with_nothing_ahead
from tests.support.run_records import balanced, digest, killed_and_resumed, lines, steps_of

FREE = {"steps": 6, "lr": 1e-3, "warmup_steps": 1}
TRAIN = FREE | {"max_staleness": 1}
THREE = {"prompts_per_step": 3}
SAMPLER = {"use": "shuffle", "with": {"refill": 1.0}}
TWICE = {"use": "shuffle", "with": {"refill": 1.0, "max_reads": 2}}


def records(run, *, but=()):
    """What must be the same in two runs, byte by byte but for the metrics left out."""
    metrics = [
        {name: value for name, value in line.items() if not name.startswith(tuple(but))}
        for line in lines(run / "metrics.jsonl")
    ]
    return metrics, {name: value for name, value in digest(run).items() if name != "metrics.jsonl"}


ALL = pytest.mark.skipif(
    not os.environ.get("RLVR_TEST_ALL"), reason="takes long: make test-all runs it"
)


@pytest.mark.slow
@pytest.mark.essential
def test_t22_at_staleness_0_the_machinery_does_the_synchronous_run_bit_for_bit(lab):
    """Producer, buffer and the engine's own process, with nothing allowed ahead."""
    lab.write(sampler=TWICE, train=FREE | THREE)
    lab.rlvr("run", "config.yaml", "--display", "none")
    in_turns = lab.runs()[-1]
    forced = run_beside_with_nothing_ahead(lab)
    assert forced != in_turns
    found, expected = records(forced, but=["staleness/", "engine/"]), records(in_turns)
    assert found == expected
    metrics = lines(forced / "metrics.jsonl")
    again = [bool(line["groups/replayed"]) for line in metrics]
    assert again.count(True) >= 2
    assert [line["staleness/max"] for line in metrics] == again


@pytest.fixture(scope="module")
def shared(tmp_path_factory, make_lab):
    lab = make_lab(tmp_path_factory.mktemp("shared"))
    lab.write(sampler=SAMPLER, train=TRAIN | THREE, checkpoint={"every": 2, "keep": 9})
    return lab


@pytest.fixture(scope="module")
def ahead(shared):
    shared.rlvr("run", "config.yaml", "--display", "none")
    return shared.runs()[-1]


@pytest.mark.slow
def test_t23_staleness_is_counted_bounded_and_shown(shared, ahead):
    metrics = lines(ahead / "metrics.jsonl")
    assert [line["staleness/max"] for line in metrics] == [0, 1, 1, 1, 1, 1]
    for line in metrics:
        age = min(line["step"], 1)
        assert line[f"staleness/trained/{age}"] == line["ledger/trained"]
        assert line["version"] == line["step"]
        assert ("parity/k3" in line) == (line["step"] == 0)  # later ones are of older weights
    groups = lines(ahead / "traces" / "rollouts.jsonl")
    assert all(max(0, group["step"] - 1) == group["sampled_version"] for group in groups)
    assert all(
        completion["version"] == group["sampled_version"]
        for group in groups
        for completion in group["completions"]
    )
    shown = balanced(shared, ahead)
    trained = [line["ledger/trained"] for line in metrics]
    assert shown["staleness"] == {"0": trained[0], "1": sum(trained[1:])}
    by_version = {int(v): fates["trained"] for v, fates in shown["ledger_by_version"].items()}
    assert by_version == {0: sum(trained[:2]), **{v: trained[v + 1] for v in range(1, 5)}}
    report = shared.rlvr("show", ahead.name).stdout
    assert "staleness" in report
    assert "1 update" in report


@pytest.mark.slow
def test_t94_with_drain_and_one_update_nothing_depends_on_timing(shared, ahead):
    """The same run again, killed at a step and resumed: the same bytes."""
    run = killed_and_resumed(shared)
    assert run != ahead
    assert records(run) == records(ahead)
    balanced(shared, run)


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [pytest.param("abort", marks=ALL), "keep"])
def test_abort_and_keep_lose_nothing_and_stay_within_the_bound(shared, in_flight):
    shared.rlvr(
        *("run", "config.yaml", "--display", "none", "--set", f"train.in_flight={in_flight}"),
        *("--set", "train.max_staleness=2"),
    )
    run = shared.runs()[-1]
    metrics = lines(run / "metrics.jsonl")
    assert len(metrics) == 6
    assert all(line["staleness/max"] <= 2 for line in metrics)
    assert all(line["groups/kept"] <= 3 for line in metrics)
    shown = balanced(shared, run)
    groups = lines(run / "traces" / "rollouts.jsonl")
    written = sum(len(group["completions"]) for group in groups)
    assert shown["ledger"]["drawn"] == written + shown["ledger"]["in_flight"]
    trained = [
        group["draw_index"] for group in groups if group.get("fate") in ("trained", "truncated")
    ]
    assert len(trained) == len(set(trained))
    # resumed from the middle: whole again
    for folder in sorted((run / "checkpoints").glob("step*"))[1:]:
        for file in sorted(folder.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        folder.rmdir()
    shared.rlvr("run", "--resume", run.name, "--display", "none")
    assert len(lines(run / "metrics.jsonl")) == 6
    balanced(shared, run)


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGTERM, "engine"])
def test_t32_a_run_ends_cleanly_by_signal_and_by_the_death_of_its_engine(lab, blow):
    lab.write(train=TRAIN | {"steps": 5000}, checkpoint={"every": 0})
    process = lab.started("run", "config.yaml", "--display", "none")
    until = time.monotonic() + 200
    while not any(steps_of(run) for run in lab.runs()):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    (engine,) = lab.descendants(process, "child_host")
    if blow == "engine":
        engine.kill()
    else:
        process.send_signal(blow)
    _, told = process.communicate(timeout=120)
    outcome = json.loads((lab.runs()[-1] / "run.json").read_text())["outcome"]
    if blow == "engine":
        assert (process.returncode, outcome) == (1, "failed")
        assert "the engine's process is gone: SIGKILL" in told
        assert "rlvr run --resume" in told
    else:
        assert (process.returncode, outcome) == (130, "interrupted")
    assert "Traceback" not in told
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    balanced(lab, lab.runs()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"train": FREE | {"in_flight": "keep"}}, ["has no effect with max_staleness: 0"]),
        (
            {
                "train": TRAIN | {"in_flight": "abort"},
                "engine": {"use": "scripted", "with": {"answers": {"": ["a", "z"]}}},
            },
            ["cannot abort unfinished requests"],
        ),
        ({"train": TRAIN, "sampler": TWICE}, ["set max_staleness to 2 or more"]),
    ],
    ids=["no effect", "engine", "reads"],
)
def test_what_does_not_go_with_it_is_refused(lab, sections, told):
    lab.write(**({"train": TRAIN} | sections))
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=2)
    assert all(one in done.stderr for one in told)
    assert "config.yaml:" in done.stderr
    assert lab.runs() == []


def test_every_reason_against_it_is_told_at_once(lab):
    lab.config["data"]["sources"][0]["with"]["verifier"] = "exact"
    resolved = resolve_file(lab.write(train=TRAIN, sampler=TWICE), (), load_host())
    with pytest.raises(ConfigError) as error:
        Ahead(resolved).check(learns=False, max_reads=2)
    told = str(error.value)
    assert "trained on in 2 steps" in told
    assert "is 2 updates old in the last of them" in told
    assert "set max_staleness to 2 or more" in told
    assert "no loss learns from completions" in told
    assert "config.yaml:" in told


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllm_generates_while_training_runs(shared, wide_model):
    """Each sync is probed; a step's groups are no older than they may be."""
    settings = {
        "model.path": wide_model,
        "engine": "{use: vllm, with: {kv_cache_mb: 64}}",
        "train.max_staleness": 2,
        "train.in_flight": "keep",
        "train.steps": 4,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    shared.rlvr("run", "config.yaml", "--display", "none", *words)
    run = shared.runs()[-1]
    metrics = lines(run / "metrics.jsonl")
    assert len(metrics) == 4
    assert all(line["staleness/max"] <= 2 for line in metrics)
    assert metrics[0]["parity/k3"] < 1e-6
    assert any(line["staleness/max"] > 0 for line in metrics)
    balanced(shared, run)
