import json
import os
import re
import threading

import pytest
import yaml

from rlvr_core.api import ConfigError, RunError
from rlvr_core.record.find import find_run, list_runs
from rlvr_core.record.rundir import RunFolder

NOON = 1_800_000_000.0


def make(root, name="demo", now=NOON, created=None):
    folder = RunFolder.create(root, name, config_text="a: 1\n", resolved={"a": 1}, now=now)
    if created:
        folder.manifest.write_text(json.dumps({"created": created}))
    return folder


def test_create_writes_both_configurations(tmp_path):
    text = "# mine\nrun:   {name: demo}\n"
    folder = RunFolder.create(
        tmp_path / "deep" / "runs",
        "demo",
        config_text=text,
        resolved={"b": 1, "a": [0.5]},
        now=NOON,
    )
    assert re.fullmatch(r"demo-\d{8}-\d{6}-[0-9a-f]{6}", folder.name)
    assert folder.config.read_text() == text
    assert folder.resolved.read_text() == "b: 1\na:\n- 0.5\n"
    assert sorted(p.name for p in folder.path.iterdir()) == [
        "checkpoints",
        "config.yaml",
        "evals",
        "resolved.yaml",
        "traces",
    ]


def test_t88_the_name_is_the_users_and_stays_apart_in_one_second(tmp_path):
    names = [make(tmp_path / machine).name for machine in "aab"]  # "b" cannot see the other's
    assert all(name.startswith("demo-") for name in names)
    assert {name.rpartition("-")[0] for name in names} == {names[0].rpartition("-")[0]}
    assert len(set(names)) == 3


def test_many_starts_at_once_get_a_folder_each(tmp_path):
    names = []
    threads = [threading.Thread(target=lambda: names.append(make(tmp_path).name)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 8


def test_nothing_is_left_of_a_folder_that_cannot_be_filled(tmp_path):
    with pytest.raises(yaml.YAMLError):
        RunFolder.create(tmp_path, "demo", config_text="", resolved={"a": object()})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        RunFolder.create(tmp_path / "file", "demo", config_text="", resolved={})


def test_last_is_the_newest_by_its_start_not_by_name_or_file_times(tmp_path):
    old = make(tmp_path, "zzz", NOON)
    new = make(tmp_path, "aaa", NOON + 60)
    os.utime(old.path)
    assert find_run("last", tmp_path).path == new.path
    # its record is trusted more than a folder's name, which a copy may have changed
    old.manifest.write_text(json.dumps({"created": "2099-01-01T00:00:00+00:00"}))
    assert find_run("last", tmp_path).path == old.path
    twin = make(tmp_path, "aaa", NOON + 60)
    assert [run.name for run in list_runs(tmp_path)] == [old.name, twin.name, new.name]


def test_find_by_name_prefix_and_path(tmp_path, monkeypatch):
    first = make(tmp_path, "gsm8k-1.7b", NOON)
    second = make(tmp_path, "gsm8k-1.7b", NOON + 5)
    other = make(tmp_path, "gsm8k", NOON + 1)
    assert find_run(first.name, tmp_path).path == first.path
    assert find_run("gsm8k-1.7b", tmp_path).path == second.path
    assert find_run("gsm8k", tmp_path).path == other.path
    assert find_run("gsm8k-1", tmp_path).path == second.path
    assert find_run(str(first.path), "nowhere").path == first.path
    monkeypatch.chdir(tmp_path)
    assert find_run(first.name, "nowhere").path.samefile(first.path)
    with pytest.raises(ConfigError, match="could be several") as caught:
        find_run("gsm", tmp_path)
    assert "gsm8k, gsm8k-1.7b" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("quickstrat", "did you mean: quickstart-"),
        ("xyz", "newest runs: quickstart-"),
        ("", "say 'last'"),
        ("./nothing", "there is no run folder"),
        (".", "is not a run's folder"),
    ],
)
def test_a_run_that_is_not_there(tmp_path, monkeypatch, text, told):
    make(tmp_path / "runs", "quickstart")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        find_run(text if text != "." else f"{tmp_path}/runs/..", tmp_path / "runs")
    assert told in str(caught.value)


def test_no_runs_yet(tmp_path):
    with pytest.raises(ConfigError, match="there is no run in") as caught:
        find_run("last", tmp_path / "none")
    assert "rlvr run" in str(caught.value)
    (tmp_path / "notes").mkdir()
    assert list_runs(tmp_path) == []
