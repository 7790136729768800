"""What a config names of this machine, where it goes, and what must stay here."""

import os
from pathlib import Path

import pytest

from rlvr_cluster.jobs.references import references
from rlvr_cluster.jobs.staging import Layout, overrides
from rlvr_core.api import ConfigError, Reference
from rlvr_core.record.secrets import secrets_in, secrets_in_words
from tests.support.tables import table


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "home" / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "rows.jsonl").touch()
    (folder / "train").mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_references_are_found_by_what_is_there(here):
    found = references(
        {
            "run": {"dir": "data", "name": "train", "mirror": "s3://b/x"},
            "model": {"path": "Qwen/Qwen3-1.7B"},
            "data": {
                "sources": [
                    {"use": "core/jsonl", "with": {"path": "data/rows.jsonl", "split": "train"}},
                    {"use": "core/jsonl", "with": {"path": "s3://bucket/rows.jsonl"}},
                ]
            },
            "loss": {"with": {"teacher": str(here / "data")}},
            "meta": {"notes": "data/rows.jsonl", "version": "data"},
        }
    )
    assert found == (
        Reference("data.sources.0.with.path", "data/rows.jsonl", here / "data" / "rows.jsonl"),
        Reference("loss.with.teacher", str(here / "data"), here / "data"),
    )


def test_a_folder_named_like_a_hub_id_is_what_it_is_here(here):
    (here / "Qwen" / "tiny").mkdir(parents=True)
    found = references({"model": {"path": "Qwen/tiny"}})
    assert [one.path for one in found] == [here / "Qwen" / "tiny"]


def test_what_can_only_be_a_path_and_is_not_there_is_told(here):
    with pytest.raises(ConfigError) as caught:
        references({"model": {"path": "/no/model"}, "data": {"order": "none.txt"}})
    assert [complaint.where for complaint in caught.value.complaints] == [
        "model.path",
        "data.order",
    ]


def test_files_keep_their_places_to_each_other(here, tmp_path):
    data = tmp_path / "shared" / "rows.jsonl"
    layout = Layout.of(here, [Path("data/rows.jsonl"), data, Path("../base.yaml")])
    assert layout.root == tmp_path
    assert layout.directory == "home/project"
    assert layout.place(Path("../base.yaml")) == "home/base.yaml"
    assert layout.moved(data) == "../../shared/rows.jsonl"
    found = [Reference("a", "data/x", here / "data/x"), Reference("b", str(data), data)]
    assert overrides(found, layout) == ["b=../../shared/rows.jsonl"]
    os.chdir(tmp_path)
    assert layout.place(Path("shared/rows.jsonl")) == "shared/rows.jsonl"


@pytest.mark.parametrize(("name", "text", "secret"), table(__file__, "files that stay"))
def test_t99_files_that_must_stay_here(tmp_path, name, text, secret):
    path = tmp_path / name
    path.write_text(text)
    assert bool(list(secrets_in(path, name))) is secret


def test_t99_of_a_secret_only_the_place_is_told(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("x: 1\ntoken: abcdef123456\n")
    (found,) = secrets_in(path, "a.yaml")
    assert found.where == "a.yaml:2"
    assert "abcdef" not in str(found)
    (said,) = secrets_in_words(["run", "--set", "a.token=abcdef123456"])
    assert "abcdef" not in str(said)


def test_binary_files_are_not_read(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x10\0\0\0token: abcdef123456")
    assert list(secrets_in(path, "m")) == []


def test_a_file_that_a_component_is_named_by_goes_along_with_what_it_imports(here, tmp_path):
    (here / "near.py").write_text("import beside_near\ndef f(text):\n    return 1.0\n")
    (here / "beside_near.py").touch()
    (tmp_path / "far.py").write_text("def g(text):\n    return 1.0\n")
    found = references(
        {
            "rewards": [{"use": "./near.py:f"}, {"use": f"{tmp_path}/far.py:g"}],
            "loss": {"use": "package.module:Loss"},
        }
    )
    assert [(one.key, one.path) for one in found] == [
        ("rewards.0.use", here / "near.py"),
        ("rewards.0.use", here / "beside_near.py"),
        ("rewards.1.use", tmp_path / "far.py"),
    ]
    layout = Layout.of(here, [one.path for one in found])
    assert overrides(found, layout) == ["rewards.1.use=../../far.py:g"]
