"""``rlvr config`` as a user calls it: its own process, its exit code, its output."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_core.config.keys import run_keys
from rlvr_core.config.resolve import resolve_file


def test_check_says_what_the_run_would_do(rlvr, run_file):
    done = rlvr("config", "check", run_file, "--set", "sampling.top_p=0.9")
    assert done.returncode == 0
    assert "ok: run.yaml" in done.stdout
    assert "4 prompts x 8 = 32 completions, at most 512 tokens each" in done.stdout
    assert "at most 16,384 sampled tokens" in done.stdout
    assert "rewards: auto, toy/exactly; loss toy/single" in done.stdout
    assert "warning: sampling.top_p is 0.9" in done.stderr


def test_check_warns_of_a_model_and_data_that_are_not_there(rlvr, run_file):
    """Only a warning: a config may be checked on another machine than it runs on."""
    absent = ["--set", "model.path=./gone", "--set", "data.sources.0.with.path=gone.csv"]
    done = rlvr("config", "check", run_file, "--json", *absent)
    assert done.returncode == 0
    model, data = json.loads(done.stdout)["warnings"]
    assert model == "model folder './gone' does not exist [--set model.path=./gone (model.path)]"
    assert data.startswith("data file 'gone.csv' does not exist [--set ")
    Path("gone.csv").touch()
    there = ["--set", "data.sources.0.with.path=gone.csv", "--set", "model.path=org/name"]
    assert rlvr("config", "check", run_file, *there).stderr == ""
    rows = "{use: core/jsonl, with: {path: 's3://bucket/gone', prompt: q, verifier: exactly}}"
    elsewhere = ["--set", f"data.sources=[{rows}]", "--set", "model.path=org/name"]
    assert rlvr("config", "check", run_file, *elsewhere).stderr == ""


def test_a_misspelt_verifier_exits_2(rlvr, run_file):
    done = rlvr("config", "check", run_file, "--set", "rewards.1.use=toy/exactli")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: unknown verifier 'toy/exactli'" in done.stderr
    assert "did you mean: toy/exactly" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_written_by_a_check(rlvr, run_file):
    rlvr("config", "check", run_file)
    rlvr("config", "check", run_file, "--set", "train.lrr=1")
    assert [path.name for path in Path().iterdir()] == ["run.yaml"]


def test_resolve_prints_a_configuration_that_runs(rlvr, run_file, host):
    done = rlvr("config", "resolve", run_file, "--set", "train.lr=3e-6")
    assert done.returncode == 0
    assert done.stdout.startswith("# rlvr config resolve run.yaml --set 'train.lr=3e-6'\n")
    Path("again.yaml").write_text(done.stdout)
    again = resolve_file("again.yaml", [], host)
    assert again.config.train.lr == 3e-6
    assert again.yaml() == done.stdout.partition("\n")[2]
    as_json = rlvr("config", "resolve", run_file, "--set", "train.lr=3e-6", "--json")
    assert json.loads(as_json.stdout) == again.dump()


def test_every_key_of_the_model_is_explained():
    assert [key.path for key in run_keys() if not key.description] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.lr"], ["Peak learning rate.", "takes a number above 0", "default: 1e-06"]),
        (["train.steps"], ["required"]),
        (["data.sources.0.weight"], ["takes a number above 0 or null"]),
        (["loss.with.beta"], ["takes a number of at least 0"]),
        ([], ["train.lr ", "guards.*.off"]),
    ],
)
def test_explain(rlvr, words, said):
    done = rlvr("config", "explain", *words)
    assert done.returncode == 0, done.stderr
    for text in said:
        assert text in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian.lr"], "did you mean: train.lr"),
        (["lr"], "train.lr"),
        (["loss.with.bata"], "did you mean: loss.with.beta"),
        (["data.sources.0.with.split"], "rlvr list datasets NAME"),
    ],
)
def test_explain_of_an_unknown_key(rlvr, words, said):
    done = rlvr("config", "explain", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_explain_as_json(rlvr):
    done = rlvr("config", "explain", "train.lr", "--json")
    assert json.loads(done.stdout) == {
        "key": "train.lr",
        "type": "a number above 0",
        "required": False,
        "default": 1e-6,
        "description": "Peak learning rate.",
    }


def test_explaining_a_key_of_the_core_imports_nothing_heavy():
    code = (
        "import sys; from rlvr_core.cli.main import main; main(['config', 'explain', 'train.lr']);"
        "print(sorted({'torch', 'transformers', 'vllm', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_errors_are_json_too(rlvr, run_file):
    faulty = ("--set", "train.steps=true", "--set", "x=1")
    done = rlvr("config", "check", "--json", run_file, *faulty)
    assert done.returncode == 2
    answer = json.loads(done.stdout)
    assert answer["ok"] is False
    faults = {error["what"] for error in answer["errors"]}
    assert len(faults) == 2
    assert any("a number is wanted here, not true" in fault for fault in faults), faults
