"""The pages for newcomers, followed word for word, but for the number of steps."""

import os
import re
import subprocess
import sys

import pytest

from rlvr_core.testing.fork_server import run_rlvr
from tests.support import pages

SHORT = [
    *("--set", "train.steps=2", "--set", "train.warmup_steps=0", "--set", "eval.tasks=[]"),
    *("--display", "none"),
]
TUTORIAL = pages.ROOT / "docs" / "tutorial.md"


def block(page, language, index=0):
    return [body for tongue, body, _ in pages.fences(page) if tongue == language][index]


def rlvr(words, folder):
    done = run_rlvr(*words, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=1700)
    assert done.returncode == 0, f"rlvr {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def follow(page, folder, until="\0"):
    """Run every command of a page, or those above a heading; returns what each printed."""
    printed = {}
    end = page.read_text(encoding="utf-8").partition(until)[0].count("\n")
    commands = (each for each in pages.commands("rlvr") if each[0] == pages.name(page))
    told = (words for _, line, words in commands if line <= end)
    for words in told:
        if words != ["view"]:  # it serves until it is stopped
            short = SHORT if words[0] == "run" and "--dry-run" not in words else []
            printed[" ".join(words)] = rlvr([*words, *short], folder)
    return printed


def test_the_tutorials_reward_says_of_its_answers_what_the_page_says():
    names = {}
    exec(block(TUTORIAL, "python"), names)
    assert names["correct"]("7+8=15, \\boxed{15}", "15") is True
    assert names["correct"]("The answer is 15.", "15") is False
    assert names["correct"]("\\boxed{15} or \\boxed{16}", "15") is False


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial(tmp_path):
    (tmp_path / "examples").symlink_to(pages.ROOT / "examples")
    (tmp_path / "my_reward.py").write_text(block(TUTORIAL, "python"))
    (tmp_path / "answers.jsonl").write_text(block(TUTORIAL, "json"))
    mine = block(TUTORIAL, "yaml")
    (tmp_path / "mine.yaml").write_text(mine)
    printed = follow(TUTORIAL, tmp_path)
    assert "1 of 2 scored passed" in printed["verify ./my_reward.py:correct answers.jsonl"]
    assert "train.lr: 0.0007 and 0.0001" in printed["diff mine slow"]
    assert (tmp_path / "compared.html").stat().st_size > 100_000
    assert "difference" in printed["compare evals/before evals/after"]
    (tmp_path / "mine.yaml").write_text(mine.replace("steps:", "stepz:"))
    with pytest.raises(AssertionError, match=r"did you mean: steps\?"):
        rlvr(["config", "check", "mine.yaml"], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_on_your_data(tmp_path):
    page = pages.ROOT / "docs" / "your-data.md"
    (tmp_path / "make_sums.py").write_text(block(page, "python"))
    subprocess.run([sys.executable, "make_sums.py"], cwd=tmp_path, check=True)
    (tmp_path / "run.yaml").write_text(block(page, "yaml"))
    printed = follow(page, tmp_path, until="## Sources")
    assert printed["data check run.yaml"].rstrip().endswith("passes")
    assert re.search(r"first prompt: .*What is", printed["run run.yaml --dry-run"])
    cheated = (tmp_path / "run.yaml").read_text().replace("math/boxed", "math/answer")
    (tmp_path / "run.yaml").write_text(cheated)
    with pytest.raises(AssertionError, match="answered without the question"):
        rlvr(["data", "check", "run.yaml"], tmp_path)
    assert "pass@8" in next(text for words, text in printed.items() if words.startswith("passk"))
