"""``rlvr examples``: what is listed, what is copied, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.load import read_draft
from rlvr_core.examples.catalog import examples, find_example
from rlvr_core.examples.copying import copy_files

ROOT = Path(__file__).parents[2]


def files_below(folder):
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_every_config_and_every_folder_of_the_clone_is_listed(lab):
    listed = json.loads(lab.rlvr("examples", "list", "--json").stdout)
    named = {one["name"] for one in listed}
    folder = ROOT / "examples"
    configs = {file.relative_to(folder).with_suffix("").as_posix()
               for file in [*folder.glob("*.yaml"), *folder.glob("recipes/*.yaml")]}  # fmt: skip
    assert named >= configs
    assert named - configs == {
        one.name for one in folder.iterdir() if one.is_dir() and one.name != "recipes"
    }
    said = {one["name"]: (one["plugins"], one["summary"]) for one in listed}
    assert said["quickstart"] == (
        ["math"],
        "A tiny model learns two-digit addition on a CPU in about two minutes",
    )
    assert said["mixed"][0] == ["ifeval", "math"]
    assert said["json"][0] == ["checks"]
    for name, (_, summary) in said.items():
        assert 20 < len(summary) < 200, name
        assert not summary.startswith("rlvr "), name
    table = lab.rlvr("examples", "list").stdout
    assert all(summary in table for _, summary in said.values())


def test_what_a_config_extends_is_copied_with_it(lab):
    done = lab.rlvr("examples", "copy", "recipes/math-2gpu")
    assert files_below(lab.folder / "examples") == [
        "gsm8k.yaml",
        "math.yaml",
        "recipes/math-2gpu.yaml",
    ]
    assert "rlvr-math" in done.stdout
    assert (
        "next: rlvr launch examples/recipes/math-2gpu.yaml --gpus 0 --engine-gpus 1" in done.stdout
    )


def test_a_copy_of_every_example_is_whole(tmp_path):
    """Every file is the clone's, and what a copy extends is read from beside it."""
    for example in examples():
        folder = tmp_path / example.name.replace("/", "-")
        written, kept = copy_files(example, folder)
        assert kept == []
        assert written == [folder / file.relative_to(ROOT / "examples") for file in example.files]
        assert sorted(written) == sorted(one for one in folder.rglob("*") if one.is_file())
        for file in written:
            assert file.read_bytes() == (ROOT / "examples" / file.relative_to(folder)).read_bytes()
            if file.suffix == ".yaml" and file.name != "sweep.yaml":
                chain = {one.resolve() for one in read_draft(file).files}
                assert chain <= {one.resolve() for one in written}


def test_the_configs_own_command_names_the_folder_that_was_chosen(lab):
    done = lab.rlvr("examples", "copy", "examples/sweep.yaml", "mine")
    assert files_below(lab.folder / "mine") == ["quickstart.yaml", "sweep-base.yaml", "sweep.yaml"]
    assert "next: rlvr sweep mine/sweep.yaml --parallel 2" in done.stdout
    planned = json.loads(lab.rlvr("sweep", "mine/sweep.yaml", "--dry-run", "--json").stdout)
    assert len(planned["trials"]) == 4


def test_a_folder_comes_whole_and_says_what_to_read(lab):
    done = lab.rlvr("examples", "copy", "reward_function")
    assert files_below(lab.folder / "examples") == [
        "quickstart.yaml",
        "reward_function/README.md",
        "reward_function/config.yaml",
        "reward_function/my_reward.py",
        "reward_function/train.py",
    ]
    assert "next: read examples/reward_function/README.md" in done.stdout
    for one in examples():
        if one.path.is_dir():
            assert (one.path / "README.md").is_file(), one.name


def test_nothing_is_overwritten_and_what_is_the_same_stays(lab):
    lab.rlvr("examples", "copy", "quickstart")
    again = lab.rlvr("examples", "copy", "quickstart")
    assert "examples/quickstart.yaml is there already" in again.stdout
    mine = lab.folder / "examples" / "quickstart.yaml"
    mine.write_text("run: {name: mine}\n")
    done = lab.rlvr("examples", "copy", "lora", check=2)
    assert "nothing is copied" in done.stderr
    assert "at examples/quickstart.yaml" in done.stderr
    assert "rlvr examples copy lora FOLDER" in done.stderr
    assert mine.read_text() == "run: {name: mine}\n"
    assert files_below(lab.folder / "examples") == ["quickstart.yaml"]


def test_a_disk_that_is_full_leaves_nothing(tmp_path, monkeypatch):
    real = Path.write_bytes

    def full(self, data):
        if self.name == "gsm8k.yaml":
            real(self, data[:10])
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        copy_files(find_example("recipes/math-2gpu"), tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_gets_a_near_one(lab):
    done = lab.rlvr("examples", "copy", "quickstrat", check=2)
    assert "there is no example 'quickstrat'" in done.stderr
    assert "did you mean: quickstart?" in done.stderr
    assert "rlvr examples list" in done.stderr


@pytest.mark.parametrize("words", [("run",), ("config", "check"), ("sweep",)], ids=" ".join)
def test_a_config_of_the_documentation_that_is_not_here_can_be_had(words, lab):
    name = "sweep" if words == ("sweep",) else "quickstart"
    done = lab.rlvr(*words, f"examples/{name}.yaml", check=2)
    assert f"there is no file 'examples/{name}.yaml'" in done.stderr
    assert f"rlvr examples copy {name}" in done.stderr
    assert "examples copy" not in lab.rlvr(*words, "mine.yaml", check=2).stderr


def test_the_advice_of_the_help_works_in_an_empty_folder(lab):
    text = lab.rlvr("--help").stdout
    (advice,) = [line for line in text.splitlines() if "Start with: " in line]
    copy, run = advice.partition("Start with: ")[2].split("; ")
    lab.rlvr(*copy.split()[1:])
    assert run.startswith("rlvr run ")
    lab.rlvr("config", "check", run.split()[2])
