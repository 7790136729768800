import json
import shutil
import signal
import subprocess
import time

import pytest
from safetensors.torch import load_file

from tests.support.run_records import digest, lines


def test_a_run_records_everything(lab):
    run = lab.run()
    metrics = lines(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2, 3]
    assert [line["version"] for line in metrics] == [0, 1, 2, 3]
    assert all(line["grad_norm"] > 0 for line in metrics)

    groups = lines(run / "traces" / "rollouts.jsonl")
    assert len(groups) == 16
    for group in groups:
        rewards = [one["reward"] for one in group["completions"]]
        mean = sum(rewards) / len(rewards)
        std = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5
        for one in group["completions"]:
            text = one["text"]
            assert one["reward"] == pytest.approx(sum(c < "n" for c in text) / max(1, len(text)))
            assert one["advantage"] == pytest.approx((one["reward"] - mean) / std, rel=1e-5)
            assert len(one["token_ids"]) == len(one["logprobs"]) == len(one["loss_mask"])
            assert one["version"] == group["version"]
    assert json.loads((run / "run.json").read_text())["outcome"] == "finished"
    assert (run / "RESULTS.md").is_file()
    assert (run / "checkpoints" / "step000004" / "model.safetensors").is_file()


def test_t85_the_page_of_results_has_its_settings_from_the_record(lab):
    run = lab.run(sampling={**lab.config["sampling"], "n": 3})
    page = (run / "RESULTS.md").read_text()
    train = lab.config["train"]
    assert f"4 prompts x 3, max\\_tokens {lab.config['sampling']['max_tokens']}" in page
    assert f"lr {train['lr']}, seed {lab.config['run']['seed']} |" in page
    settings = json.loads(lab.rlvr("show", "last", "--json").stdout)["settings"]
    assert (settings["n"], settings["lr"], settings["data"]) == (3, train["lr"], ["core/jsonl"])


def test_t62_what_ended_the_completions_is_counted(lab):
    run = lab.run()
    for line, step in zip(lines(run / "metrics.jsonl"), range(4), strict=True):
        ended = [
            one["finish_reason"]
            for group in lines(run / "traces" / "rollouts.jsonl")
            if group["step"] == step
            for one in group["completions"]
        ]
        told = {key: value for key, value in line.items() if key.startswith("stop/")}
        assert told == {f"stop/{reason}": ended.count(reason) for reason in set(ended)}
        assert line["truncated_rate"] == ended.count("length") / len(ended)


def test_the_weights_in_a_checkpoint_are_the_trained_ones(lab, model_dir):
    run = lab.run()
    before = load_file(model_dir / "model.safetensors")
    after = load_file(run / "checkpoints" / "step000004" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(not before[name].equal(after[name]) for name in before)


def test_reward_rises(lab):
    run = lab.run("--set", "train.steps=40", train={"steps": 40, "lr": 5e-3, "warmup_steps": 2})
    rewards = [line["reward/mean"] for line in lines(run / "metrics.jsonl")]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.2


def test_show_json_of_a_run(lab):
    lab.run()
    shown = json.loads(lab.rlvr("show", "last", "--json").stdout)
    assert shown["outcome"] == "finished"
    assert shown["steps"] == 4
    assert shown["parity"]["k3"] < 1e-7
    assert shown["ledger"]["balanced"] is True
    assert shown["ledger"]["drawn"] == 64


def test_two_runs_with_one_seed_write_the_same_lines(lab):
    first, second = lab.run(), lab.run()
    assert first != second
    for name in ("metrics.jsonl", "traces/rollouts.jsonl"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    other = lab.run("--set", "run.seed=2")
    assert (first / "metrics.jsonl").read_bytes() != (other / "metrics.jsonl").read_bytes()


EIGHT = {"steps": 8, "lr": 1e-3, "warmup_steps": 1}


@pytest.fixture
def straight(lab):
    """What a run that was never killed leaves."""
    return digest(lab.run(train=EIGHT, checkpoint={"every": 2, "keep": 9}))


def _kill_when(lab, condition, *arguments):
    """Start a run and kill -9 it at the first moment the condition holds."""
    process = subprocess.Popen(
        lab.command("run", *arguments, "--display", "none"),
        cwd=lab.folder,
        env=lab.env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None and not condition():
            time.sleep(0.001)
    finally:
        alive = process.poll() is None
        process.kill()
        process.wait()
    return alive


@pytest.mark.slow
def test_t94_killed_anywhere_a_run_resumes_bit_for_bit(lab, straight):
    """Killed at four kinds of moments, the third while a checkpoint is being written."""
    before = len(lab.runs())

    def run():
        return lab.runs()[-1] if len(lab.runs()) > before else None

    def steps():
        path = run() / "metrics.jsonl" if run() else None
        return len(path.read_bytes().splitlines()) if path and path.exists() else 0

    moments = [
        lambda: run() is not None and (run() / "run.json").exists(),
        lambda: steps() >= 3,
        lambda: run() is not None and any((run() / "checkpoints").glob(".tmp*step000006*")),
        lambda: steps() >= 7,
    ]
    killed = 0
    for number, moment in enumerate(moments):
        start = ["config.yaml"] if number == 0 else ["config.yaml", "--resume", "last"]
        killed += _kill_when(lab, moment, *start)
    assert killed >= 3
    lab.rlvr("run", "--resume", "last", "--display", "none")
    assert digest(run()) == straight
    assert json.loads(lab.rlvr("show", "last", "--json").stdout)["ledger"]["balanced"] is True


@pytest.mark.slow
def test_resume_skips_a_damaged_checkpoint_with_a_word(lab, straight):
    run = lab.runs()[-1]
    newest = run / "checkpoints" / "step000008"
    weights = bytearray((newest / "model.safetensors").read_bytes())
    weights[len(weights) // 2] ^= 1
    (newest / "model.safetensors").write_bytes(weights)
    (run / "checkpoints" / "step000006" / "trainer" / "state.json").unlink()
    done = lab.rlvr("run", "--resume", "last", "--display", "plain")
    assert "step000008" in done.stderr
    assert "step000006" in done.stderr
    assert "step000004" in done.stderr
    assert digest(run) == straight


def test_records_are_kept_aside_when_every_checkpoint_is_bad(lab):
    run = lab.run(train=EIGHT | {"steps": 2}, checkpoint={"every": 1, "keep": 9})
    before = (run / "metrics.jsonl").read_bytes()
    rollouts = (run / "traces" / "rollouts.jsonl").read_bytes()
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(manifest | {"outcome": "interrupted"}))
    for one in (run / "checkpoints").glob("step*"):
        (one / "model.safetensors").write_bytes(b"broken")
    for number in (1, 2):
        done = lab.rlvr("run", "--resume", "last", "--display", "plain")
        kept = run / f"before-restart-{number}"
        assert f"are kept in {kept.relative_to(run.parents[1])}" in done.stderr
        assert (kept / "metrics.jsonl").read_bytes() == before
        assert (kept / "traces" / "rollouts.jsonl").read_bytes() == rollouts
        assert (run / "metrics.jsonl").read_bytes() == before  # the same steps, taken anew
        for one in (run / "checkpoints").glob("step*"):
            (one / "COMPLETE").unlink()
        manifest = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(manifest | {"outcome": "interrupted"}))


@pytest.mark.slow
def test_a_finished_run_can_be_lengthened(lab):
    long = lab.run(train=EIGHT, checkpoint={"every": 2, "keep": 9})
    expected = digest(long)
    short = lab.run(train=EIGHT | {"steps": 4}, checkpoint={"every": 2, "keep": 9})
    lab.rlvr("run", "--resume", str(short), "--set", "train.steps=8", "--display", "none")
    assert digest(short) == expected
    told = json.loads(lab.rlvr("show", str(short), "--json").stdout)
    assert (told["steps"], told["planned_steps"]) == (8, 8)


@pytest.mark.slow
def test_a_run_can_be_lengthened_in_its_file_and_stays_so(lab):
    train = {"steps": 2, "lr": 1e-3}  # warmup_steps is made of steps: 0 of 2, 1 of 12
    short = lab.run(train=train)
    lab.write(train=train | {"steps": 12})
    lab.rlvr("run", "config.yaml", "--resume", "last", "--display", "none")
    again = lab.rlvr("run", "--resume", "last", "--display", "plain")
    assert len((short / "metrics.jsonl").read_text().splitlines()) == 12
    assert "12 of 12" in lab.rlvr("show", "last").stdout
    assert again.returncode == 0


def test_resuming_under_another_config_is_refused(lab):
    lab.run()
    lab.write(sampling={"n": 2, "max_tokens": 12})
    done = lab.rlvr("run", "config.yaml", "--resume", "last", check=2)
    assert "sampling.n is 2 here and 4 in the run" in done.stderr
    assert "leave sampling.n as in the run, and the resumption goes on" in done.stderr


def test_what_a_failed_run_is_told_to_change_may_change_when_it_is_resumed(lab):
    short = lab.run()
    steps = len(lines(short / "metrics.jsonl"))
    changes = {
        "train.steps": steps + 2,
        "train.tokens_per_micro_batch": 40,
        "verify.timeout": 60,
    }
    sets = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    sets += ["--set", "guards=[{use: core/idle, with: {max_steps: 9}}]"]
    done = lab.rlvr("run", "--resume", str(short), *sets, "--display", "plain")
    assert "from step 4 on, train.tokens_per_micro_batch is 40; it was 16384" in done.stderr
    (note,) = [line for line in done.stderr.splitlines() if "bit for bit" in line]
    assert "train.tokens_per_micro_batch, verify.timeout" in note
    assert "guards" not in note
    (resumed,) = json.loads((short / "run.json").read_text())["resumed"]
    assert resumed["step"] == steps
    changed = {key: now for key, (_, now) in resumed["config"].items()}
    assert changed == {**changes, "guards.core/idle.with.max_steps": 9}
    assert len(lines(short / "metrics.jsonl")) == steps + 2
    lab.rlvr("run", "--resume", str(short), "--display", "none")  # they are the run's from now on


def _size(path):
    return path.stat().st_size if path.exists() else 0


def test_interrupt_ends_a_run_as_interrupted(lab):
    lab.write(train={"steps": 500, "lr": 1e-3, "warmup_steps": 1})
    process = subprocess.Popen(
        lab.command("run", "config.yaml", "--display", "none"), cwd=lab.folder, env=lab.env()
    )
    while not any(_size(run / "metrics.jsonl") for run in lab.runs()):
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert json.loads((lab.runs()[-1] / "run.json").read_text())["outcome"] == "interrupted"


@pytest.mark.parametrize(
    "sections",
    [
        {"sampling": {"n": 4, "max_tokens": 12, "temperature": 0.6}},
        {"sampling": {"n": 4, "max_tokens": 12, "temperature": 0.6, "top_p": 0.9}},
        {"loss": {"use": "grpo", "with": {"beta": 0.01}}},
        {"loss": {"use": "dr_grpo"}},
        {"train": {"steps": 3, "lr": 1e-3, "warmup_steps": 1, "gradient_checkpointing": "all"}},
        {"train": {"steps": 3, "lr": 1e-3, "warmup_steps": 1, "tokens_per_micro_batch": 40}},
    ],
    ids=["t2-temperature", "top_p", "beta", "dr_grpo", "checkpointing", "micro-batches"],
)
def test_modes_run_and_trainer_and_engine_agree(lab, sections):
    run = lab.run(**sections)
    first = lines(run / "metrics.jsonl")[0]
    if "top_p" not in sections.get("sampling", {}):
        assert first["parity/k3"] < 1e-7
    if "beta" in str(sections):
        assert first["kl/mean"] == pytest.approx(0.0, abs=1e-9)
        assert lines(run / "metrics.jsonl")[-1]["kl/mean"] > 0
    else:
        assert "kl/mean" not in first


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_trains_and_exports(lab, model_dir, dtype):
    run = lab.run(model={"path": str(model_dir), "dtype": dtype})
    metrics = lines(run / "metrics.jsonl")
    assert metrics[0]["parity/k3"] < 1e-2
    assert any(line["step_skipped"] == 0 and line["grad_norm"] > 0 for line in metrics)
    weights = load_file(run / "checkpoints" / "step000004" / "model.safetensors")
    assert {str(w.dtype) for w in weights.values()} == {f"torch.{dtype}"}


def test_micro_batches_do_not_change_the_update(lab):
    """T10: the same step from one micro-batch and from many, up to float32 rounding."""
    train = {"steps": 1, "lr": 1e-3, "warmup_steps": 0}
    whole = lab.run(train=train)
    split = lab.run(train=train | {"tokens_per_micro_batch": 40})
    a, b = (lines(r / "metrics.jsonl")[0] for r in (whole, split))
    assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
    assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)


def test_verifier_errors_are_no_zeros(lab):
    """T51, T54: an exception leaves the completion out; it is counted and never a reward of 0."""
    rewards = [{"use": "toy/flaky"}]
    run = lab.run(rewards=rewards, verify={"max_error_rate": 1.0})
    members = [
        one for group in lines(run / "traces" / "rollouts.jsonl") for one in group["completions"]
    ]
    odd = [one for one in members if len(one["text"]) % 2]
    assert odd
    assert all(one["reward"] is None and one["fate"] == "error" for one in odd)
    assert all(one["reward"] is not None for one in members if one not in odd)
    last = lines(run / "metrics.jsonl")[-1]
    assert 0 < last["verify/error_rate"] < 1
    assert json.loads(lab.rlvr("show", "last", "--json").stdout)["ledger"]["balanced"] is True


def test_a_verifier_that_fails_too_often_stops_the_run(lab):
    lab.write(rewards=[{"use": "toy/flaky"}])
    done = lab.rlvr("run", "config.yaml", check=1)
    assert "toy/flaky" in done.stderr
    assert "odd text" in done.stderr
    assert json.loads((lab.runs()[-1] / "run.json").read_text())["outcome"] == "failed"


def test_tensorboard_gets_every_metric_once(lab):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = lab.run(track=["tensorboard"])
    newest = max((run / "checkpoints").glob("step*"))
    shutil.rmtree(newest)  # as if the run had been killed before it
    lab.rlvr("run", "--resume", "last", "--display", "none")
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    written = [(line["step"], line["reward/mean"]) for line in lines(run / "metrics.jsonl")]
    shown = [(e.step, e.value) for e in events.Scalars("reward/mean")]
    assert [step for step, _ in shown] == [step for step, _ in written]
    assert [e for _, e in shown] == pytest.approx([e for _, e in written], rel=1e-6)


def test_t15_dry_run_says_how_large_a_step_is_and_writes_nothing(lab):
    lab.write()
    done = lab.rlvr("run", "config.yaml", "--dry-run")
    assert "4 prompts x 4 = 16 completions" in done.stderr
    assert "up to 4 prompts more in the place of dropped groups" in done.stderr
    assert lab.runs() == []


@pytest.mark.parametrize(
    ("sections", "code", "words"),
    [
        ({"model": {"path": "./no-such-model"}}, 4, ["no-such-model", "does not exist"]),
        ({"rewards": [{"use": "toy/erly"}]}, 2, ["toy/erly", "toy/early", "config.yaml"]),
        ({"rewards": [{"use": "toy/wrong-gold"}]}, 1, ["gold", "toy/wrong-gold"]),
        (
            {
                "data": {
                    "sources": [
                        {
                            "use": "core/jsonl",
                            "with": {
                                "path": "data.jsonl",
                                "prompt": "problem",
                                "verifier": "toy/early",
                            },
                        }
                    ]
                }
            },
            2,
            ["data.jsonl", "problem", "question"],
        ),
        (
            {"data": {"sources": [{"use": "core/jsonl", "with": {"path": "data.jsonl"}}]}},
            2,
            ["prompt", "template"],
        ),
    ],
    ids=["model", "misspelt", "gold", "missing-field", "missing-option"],
)
def test_a_run_that_cannot_start_writes_only_its_message(lab, sections, code, words):
    lab.write(**sections)
    before = sorted(path.name for path in lab.folder.iterdir())
    done = lab.rlvr("run", "config.yaml", check=code)
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert sorted(path.name for path in lab.folder.iterdir()) == before
