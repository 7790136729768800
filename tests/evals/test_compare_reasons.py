"""Whether `rlvr compare` refuses by what differs, says the true reason, and lets alike ones be."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import rlvr_core

LAX = "--allow-truncation"
RULE = (
    "def f(text):\n    return float('e' in text)\n\ndef g(text):\n    return float('o' in text)\n"
)


@pytest.fixture
def letters(lab, model_dir, other_model):
    """Evaluates one of two models on the toy task."""
    models = {"a": model_dir, "b": other_model}

    def run(out, *more):
        lab.rlvr("eval", models[out[0]], "--task", "lab/letters", LAX, "--out", out, *more)

    return run


def rewarded(use):
    return ("--set", f"rewards=[{{use: {use}}}]")


def test_a_verifier_by_another_path_is_the_same(lab, letters):
    """Relative, absolute and copied to another folder: one function of one file."""
    (lab.folder / "fn").mkdir()
    (lab.folder / "fn" / "reward.py").write_text(RULE)
    shutil.copytree(lab.folder / "fn", lab.folder / "copy")
    letters("a", *rewarded("./fn/reward.py:f"))
    letters("b", *rewarded(f"{lab.folder}/fn/reward.py:f"))
    letters("b2", *rewarded("./copy/reward.py:f"))
    for other in ("b", "b2"):
        (found,) = lab.json("compare", "a", other)["tasks"]
        assert found["differs"] == []
        assert found["n"] == 24

    letters("b3", *rewarded("./fn/reward.py:g"))
    refused = lab.rlvr("compare", "a", "b3", check=2).stderr
    assert "judged by other verifiers" in refused
    assert "has changed" not in refused, "both functions are in one file that nobody edited"

    (lab.folder / "copy" / "reward.py").write_text(RULE.replace("'e'", "'i'"))
    letters("b4", *rewarded("./copy/reward.py:f"))
    lab.rlvr("compare", "a", "b4", check=2)
    (lab.folder / "fn" / "reward.py").write_text(RULE.replace("'e'", "'i'"))
    letters("b5", *rewarded("./fn/reward.py:f"))
    assert "has changed" in lab.rlvr("compare", "a", "b5", check=2).stderr


def test_auto_that_came_to_raw_text_is_never(lab, letters):
    letters("a")
    letters("b", "--set", "prompt.chat_template=never")
    (found,) = lab.json("compare", "a", "b")["tasks"]
    assert found["differs"] == ['prompt.chat_template: "auto" and "never" (prompts are the same)']
    letters("b2", "--set", "prompt.prefix='Now. '")
    refused = lab.rlvr("compare", "a", "b2", check=2).stderr
    assert "in other words" in refused


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows[::-1], "the same in another order"),
        (lambda rows: [{**rows[0], "q": "Say 9:"}, *rows[1:]], "the question of 1 of 8 problems"),
        (lambda rows: [{**rows[0], "a": "x"}, *rows[1:]], "references or other fields"),
        (lambda rows: rows[1:], "1 only in the first (r0)"),
        (lambda rows: [*rows, {"id": "z", "q": "Say z:", "a": "z"}], "1 only in the second (z)"),
    ],
)
def test_problems_that_differ_are_the_reason_and_not_the_prompt(
    lab, model_dir, other_model, change, reason
):
    rows = [{"id": f"r{i}", "q": f"Say {i}:", "a": str(i)} for i in range(8)]
    file = lab.folder / "rows.jsonl"
    (lab.folder / "own.py").write_text(
        "def score(text, answer):\n    return float(answer in text)\n"
    )
    source = "data={use: core/jsonl, with: {path: rows.jsonl, prompt: q, id: id, verifier: "
    source += "./own.py:score, spec: {answer: a}}}"
    task = ("--task", "core/dataset", "--with", source, "--with", "max_tokens=4", LAX)
    for model, out, now in ((model_dir, "a", rows), (other_model, "b", change(rows))):
        file.write_text("".join(json.dumps(row) + "\n" for row in now))
        lab.rlvr("eval", model, *task, "--out", out)
    refused = lab.rlvr("compare", "a", "b", check=2).stderr
    assert reason in refused
    assert "prompt.chat_template" not in refused
    assert "prompts." not in refused


def test_code_of_a_plugin_that_judges_nothing_is_refused(lab, letters, toy_site):
    """The verifier is the user's; the task and its problems are those of the plugin."""
    (lab.folder / "own.py").write_text(RULE)
    letters("a", *rewarded("./own.py:f"))
    letters("b", *rewarded("./own.py:f"))
    assert lab.json("compare", "a", "b")["tasks"][0]["differs"] == []
    (module,) = toy_site.rglob("rlvr_evals_toy.py")
    text = module.read_text()
    try:
        module.write_text(text + "\n# an edit\n")
        letters("b2", *rewarded("./own.py:f"))
        # an evaluation that goes on with other code was made by both
        results = lab.folder / "a" / "lab_letters" / "results.jsonl"
        lines = results.read_text().splitlines(keepends=True)
        shutil.copytree(lab.folder / "a", lab.folder / "a3")
        (lab.folder / "a3" / "lab_letters" / "results.jsonl").write_text("".join(lines[:9]))
        letters("a3", *rewarded("./own.py:f"))
    finally:
        module.write_text(text)
    for pair in (("a", "b2"), ("b2", "a"), ("b", "a3"), ("b2", "a3")):
        refused = lab.rlvr("compare", *pair, check=2)
        assert refused.stdout == ""
        assert "packages: rlvr_evals_toy" in refused.stderr
        assert "evaluate both by the present one" in refused.stderr
        lab.rlvr("compare", *pair, "--allow", "code", check=2)
        (found,) = lab.json("compare", *pair, "--allow", "packages")["tasks"]
        assert any(line.startswith("packages: rlvr_evals_toy") for line in found["differs"])


def test_numbers_of_threads_are_named(lab, letters, monkeypatch):
    letters("a")
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    letters("b")
    (found,) = lab.json("compare", "a", "b")["tasks"]
    assert found["differs"] == ["threads: MKL_NUM_THREADS: None and 7"]
    assert "threads: MKL_NUM_THREADS: None and 7" in lab.rlvr("compare", "a", "b").stdout


@pytest.mark.slow
def test_an_edited_core_is_refused_by_file(lab, model_dir, other_model):
    """The core is a copy, of which one file is edited between the evaluations."""
    core = lab.folder / "copy" / "rlvr_core"
    shutil.copytree(
        Path(rlvr_core.__file__).parent, core, ignore=shutil.ignore_patterns("__pycache__")
    )
    env = lab.env()
    env["PYTHONPATH"] = f"{core.parent}{os.pathsep}{env['PYTHONPATH']}"

    def run(*words):
        done = subprocess.run(
            lab.command(*words), cwd=lab.folder, env=env, capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    task = ("--task", "lab/letters", LAX)
    assert run("eval", model_dir, *task, "--out", "a")[0] == 0
    assert run("eval", other_model, *task, "--out", "b")[0] == 0
    assert run("compare", "a", "b")[0] == 0
    sampler = core / "engines" / "sampling.py"
    sampler.write_text(sampler.read_text() + "\nHOTTER = 1.1\n")
    assert run("eval", other_model, *task, "--out", "c")[0] == 0
    code, out, err = run("compare", "a", "c")
    assert code == 2
    assert out == ""
    assert f"changed: rlvr_core/engines/{sampler.name}" in err
    assert run("compare", "a", "c", "--allow", "packages")[0] == 0
