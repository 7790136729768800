import json
import os
import subprocess
import sys
import textwrap

import pytest

from rlvr_core.api import DataError
from rlvr_core.data.hub import Hub, hub_rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data set as the hub would have it, in a folder."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    home = tmp_path / "sums"
    home.mkdir()
    rows = [{"question": f"{n}+{n}?", "answer": str(2 * n), "level": n} for n in range(5)]
    (home / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


def config(folder, **options):
    options = {"prompt": "question", "verifier": "core/exact"} | options
    return Hub.Config(repo=str(folder), **options)


def test_problems_of_a_folder(folder):
    problems = list(Hub(config(folder, spec=["answer"], tags=["level"], limit=3)).load())
    assert [p.spec for p in problems] == [{"answer": "0"}, {"answer": "2"}, {"answer": "4"}]
    assert problems[2].tags == {"level": 2}
    assert problems[0].dataset == "sums_train"
    assert problems[0].id.startswith("sums_train_")


def test_a_split_that_is_not_there_is_a_data_error(folder):
    with pytest.raises(DataError, match=r"(?s)cannot load.*split test"):
        list(hub_rows(str(folder), None, "test"))


@pytest.mark.parametrize("offline", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_t44_an_unreachable_hub_is_said_with_a_remedy(tmp_path, offline):
    """In a process of its own: the library reads its environment when it is imported."""
    program = """
        from rlvr_core.data.hub import hub_rows
        from rlvr_core.api.errors import RlvrError
        try:
            next(hub_rows("nobody/nothing", None, "train"))
        except RlvrError as error:
            print(type(error).__name__, error)
    """
    environment = os.environ | {
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path),
        "HF_HUB_DOWNLOAD_TIMEOUT": "1",
        "HF_HUB_ETAG_TIMEOUT": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment | {"HF_HUB_OFFLINE": offline},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith("MachineError cannot reach the data set"), done.stdout
    assert "core/jsonl" in done.stdout
