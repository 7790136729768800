"""Campaigns of two writers under faults and kills find nothing lost, and their checker finds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def tell(*words: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "store_campaigns.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_folder_has_one_owner_and_loses_nothing():
    assert "1 with every object right" in tell("--campaigns", "1", "--seed", "302", "--files")


@pytest.mark.slow
def test_s3_has_one_owner_and_loses_nothing():
    assert "5 with every object right" in tell(
        "--campaigns", "5", "--seed", "700", "--at-once", "3"
    )


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    """A story that has been told by hand: three steps of a job in a folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import store_campaigns

    made = store_campaigns.Campaign(1, tmp_path, 0)
    place = tmp_path / "there" / "runs" / store_campaigns.NAME
    lines = [json.dumps({"step": n, "by": "job"}) + "\n" for n in range(3)]
    (tmp_path / "job").mkdir()
    for kind in ("journal", "made"):
        (tmp_path / "job" / f"{kind}-job.jsonl").write_text("".join(lines))
    place.mkdir(parents=True)
    (place / "metrics.jsonl").write_text("".join(lines))
    (place / ".owner.json").write_text("{}")
    return made, place, lines


def test_the_checker_is_content_with_what_is_right(campaign):
    made, _, _ = campaign
    made.check_objects()
    made.check_tokens()
    assert made.faults == []


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda lines: lines[:2], "lost"),
        (lambda lines: [*lines, lines[0]], "twice"),
        (lambda lines: [lines[0], lines[1], lines[2].replace("2", "7")], "nobody wrote"),
        (lambda lines: [*lines[:2], lines[2][:5]], "nobody wrote"),
    ],
)
def test_the_checker_finds_what_is_wrong_in_a_stream(campaign, spoil, word):
    made, place, lines = campaign
    (place / "metrics.jsonl").write_text("".join(spoil(lines)))
    made.check_objects()
    assert any(word in fault for fault in made.faults)


def test_the_checker_finds_two_owners(campaign):
    made, _, _ = campaign
    made.ledger.owners += [("p", 1, "a", "job"), ("p", 2, "b", "job"), ("p", 2, "c", "home")]
    made.check_tokens()
    assert made.faults == ["p: two owners under token 2"]
    made.faults.clear()
    made.ledger.owners += [("q", 2, "a", "job"), ("q", 1, "b", "home")]
    made.check_tokens()
    assert "q: tokens went back: [2, 1]" in made.faults
