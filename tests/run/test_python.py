"""Runs from Python: scripts without a guard, running event loops, interrupted cells, two in one."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest
import yaml

SCRIPT = """
import asyncio
import re
from pathlib import Path

import yaml

import rlvr_core

with open("executed", "a") as file:
    file.write("x")

LIMIT = "n"
VOWELS = re.compile("[aeiou]")


def share(text):
    return sum(c < LIMIT for c in text) / max(1, len(text))


def early(text, answer):
    assert answer == "x"
    return share(text) + 0.0 * len(VOWELS.findall(text))


config = yaml.safe_load(Path("config.yaml").read_text())
first = rlvr_core.train(config, rewards=[early], set={"train.steps": 2}, display="none")
config["rewards"] = [{"use": early, "weight": 1.0}]


async def cell():  # a notebook's cells run inside of an event loop
    return rlvr_core.train(config, set={"train.steps": 2}, display="none")


second = asyncio.run(cell())
assert first.path != second.path
assert first.outcome == second.outcome == "finished"
assert first.metrics["reward/mean"] == second.metrics["reward/mean"]
assert any(first.metrics["reward/mean"])
print(first.path)
"""


def script(lab, text, **more):
    (lab.folder / "script.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=lab.folder,
        env=lab.env() | {"XDG_CACHE_HOME": str(lab.folder / "cache")} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, out + err
    return out


def test_a_function_of_a_script_without_a_guard_is_a_reward_in_two_runs(lab):
    lab.write()
    out = ended(script(lab, SCRIPT))
    assert (lab.folder / "executed").read_text() == "x"  # workers did not run the script again
    run = lab.folder / out.strip()
    record = json.loads((run / "run.json").read_text())
    ((use, source),) = record["sources"].items()
    assert use.endswith("/early.py:early")
    assert len(source["sha256"]) == 64
    kept = (run / "patches" / source["copy"]).read_text()
    assert "LIMIT = 'n'" in kept
    assert "def share(text):" in kept
    # what it ran is what its own record runs again, from the command line
    lab.rlvr("run", str(run / "resolved.yaml"), "--display", "none", "--set", "train.steps=1")


@pytest.mark.slow
def test_the_same_file_by_yaml_and_by_function_gives_the_same_run(lab):
    (lab.folder / "my_reward.py").write_text(
        "def early(text, answer):\n    return sum(c < 'n' for c in text) / max(1, len(text))\n"
    )
    by_yaml = lab.run("--set", "train.steps=2", rewards=["./my_reward.py:early"])
    text = (
        "import rlvr_core\nfrom my_reward import early\n"
        "run = rlvr_core.train('config.yaml', rewards=[early], set={'train.steps': 2},"
        " display='none')\nprint(run.path)\n"
    )
    by_call = lab.folder / ended(script(lab, text)).strip()

    def rewards(run):
        lines = (run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line).get("reward/mean") for line in lines if "reward" in line]

    assert rewards(by_yaml) == rewards(by_call)
    assert yaml.safe_load((by_call / "resolved.yaml").read_text())["rewards"][0]["use"] == (
        "./my_reward.py:early"
    )
    # a run does not go on with another file, unless it is told this content
    reward = lab.folder / "my_reward.py"
    before = reward.read_text()
    reward.write_text(before + "# another line\n")
    digest = hashlib.sha256(reward.read_bytes()).hexdigest()[:8]
    longer = ["run", "--resume", str(by_yaml), "--display", "plain", "--set"]
    said = lab.rlvr(*longer, "train.steps=3", check=2).stderr
    assert "my_reward.py has changed since the run began" in said
    assert f"--set 'run.accept_changed=[{digest}]'" in said
    (copy,) = (by_yaml / "patches").glob("my_reward-*.py")
    assert str(copy) in said
    assert copy.read_text() == before
    assert json.loads((by_yaml / "run.json").read_text())["resumed"] == []
    accept = ["--set", f"run.accept_changed=[{digest}]"]
    said = lab.rlvr(*longer, "train.steps=3", *accept).stderr
    assert "my_reward.py has changed: the steps from here on use it" in said
    (resumed,) = json.loads((by_yaml / "run.json").read_text())["resumed"]
    assert list(resumed["sources"]) == ["./my_reward.py:early"]
    # from now on this is what it was; the first one would be another
    lab.rlvr(*longer, "train.steps=4")
    reward.write_text(before)
    assert "has changed" in lab.rlvr(*longer, "train.steps=5", check=2).stderr


def test_a_wrong_config_is_told_by_its_keys(lab, monkeypatch):
    import rlvr_core
    from rlvr_core.api import ConfigError

    monkeypatch.chdir(lab.folder)
    with pytest.raises(ConfigError) as caught:
        rlvr_core.train(
            lab.config | {"trian": {}}, rewards=["core/exact"], set={"train.lr": "fast"}
        )
    said = str(caught.value)
    assert "trian" in said
    assert "train.lr" in said
    with pytest.raises(ConfigError, match="a YAML file or a mapping, not a int"):
        rlvr_core.train(3)


EVALUATION = """
import yaml
from pathlib import Path

import rlvr_core

run = rlvr_core.train(
    yaml.safe_load(Path("config.yaml").read_text()), set={"train.steps": 1}, display="none"
)


def always(text, answer):
    return 1.0


data = run.config["data"]["sources"][0]
task = {
    "use": "core/dataset",
    "with": {"data": {"use": data["use"], "with": data["with"]}, "max_tokens": 4},
}
options = {"set": {"engine": "transformers", "max_contaminated": 1.0, "max_truncated": 1.0}}
own = rlvr_core.evaluate(run, [task], out="own", **options)
given = rlvr_core.evaluate(str(run.path), [task], rewards=[always], out="given", **options)
((name, summary),) = own.tasks.items()
assert own.path.is_dir() and own.path != given.path
assert given.metrics["accuracy"] == [1.0]
assert [row["task"] for row in given.metrics.rows] == [name]
assert given.tasks[name]["metrics"]["accuracy"]["value"] == 1.0
assert summary["model"]["path"] == str(run.best())
groups = list(given.rollouts())
assert len({group["problem_id"] for group in groups}) == len(groups) == summary["n_problems"]
assert all(one["passed"] and "text" in one for group in groups for one in group["completions"])
print(name, own.value(name, "accuracy"), given.value(name, "accuracy"))
try:
    own.value("nowhere")
except KeyError:
    print("no such task")
"""


def test_evaluate_judges_a_run_by_its_verifiers_or_by_a_function(lab):
    lab.write()
    out = ended(script(lab, EVALUATION))
    told, missing = out.strip().splitlines()[-2:]
    _, own, given = told.split()
    assert missing == "no such task"
    assert 0.0 <= float(own) < 1.0  # a random model does not know the answers
    assert float(given) == 1.0  # which the function does not ask for
