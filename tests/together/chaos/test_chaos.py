"""A few faults and healthy shapes, and a turn of all that changes with the commit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.together.chaos.registry import Patch, find, load

HERE = Path(__file__).parent
SUITE = "tests.together.chaos.run"
FAULTS = load()
LIMIT = 2400
GUARDS = {
    *("preflight", "gold", "prompts", "parity", "sync", "seeds", "collapse", "idle", "kl"),
    *("tokens", "updates", "canaries", "watchdog", "resume", "advantages", "loss", "optimizer"),
    "completions",
}
KNOWN = {
    "begin-of-sequence-twice",
    "cap-far-too-small",
    "chat-template-on-a-base-model",
    "checkpoint-has-a-broken-tensor",
    "checkpoint-has-old-weights",
    "each-process-counts-its-seeds-from-one",
    "end-sampled-too-rarely",
    "first-of-each-group-always-passes",
    "group-trained-in-two-steps",
    "last-group-lost",
    "one-reference-answer-for-all",
    "prompts-cut-from-the-left",
    "prompts-in-lower-case",
    "reference-stays-though-it-should-move",
    "samples-at-085",
    "samples-with-repetition-penalty",
    "seeds-without-version",
    "stop-string-in-the-answer",
    "tokenizer-of-another-model",
    "twenty-problems-under-many-ids",
}
"""Faults that no guard names rightly, and that are kept to be counted."""
TURN = os.environ.get("RLVR_TEST_TURN", "none")


def suite(folder, *arguments):
    """Results of a part of the suite, by a process of its own: one that forks has no threads."""
    out = folder / "results.jsonl"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.together.chaos.run",
            "--folder",
            folder,
            "--out",
            out,
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=4 * LIMIT if os.environ.get("RLVR_TEST_ALL") else LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in out.read_text().splitlines()]


def not_named(results):
    """Faults that no guard names though one should, and those that broke nothing."""
    faults = [line for line in results if "fault" in line]
    assert [line["case"] for line in faults if line["crashed"]] == []
    return {
        line["case"]: f"{line['found']} {line['by']} {'' if line['used'] else 'not used'}"
        for line in faults
        if (line["found"] in ("wrong name", "missed") and line["fault"] not in KNOWN)
        or not line["used"]
    }


def disturbed(results):
    return {line["case"]: line["text"] for line in results if line["code"] != 0}


def test_each_fault_says_what_it_breaks_and_which_guard_is_to_name_it():
    assert len(FAULTS) >= 100
    assert {fault.name for fault in FAULTS} >= KNOWN
    for fault in FAULTS:
        assert fault.what.endswith("."), fault.name
        assert fault.expects, fault.name
        assert set(fault.expects) <= GUARDS, fault.name


def test_what_each_fault_breaks_is_there(tmp_path):
    """A place that was renamed would break nothing."""

    class Looking(Patch):
        def wrap(self, place, make):
            if not place.startswith("rlvr_chaos"):  # which a run has on its path
                find(place)

    for fault in FAULTS:
        if fault.install and fault.subject != "sync":  # which replace methods of the engine
            fault.install(Looking(tmp_path))


def test_a_few_are_found_and_healthy_runs_are_not_disturbed(tmp_path):
    names = ("training-temperature-95", "one-seed-a-group", "verifier-inverted", "kl-negated")
    shapes = ("base", "cool", "lora")
    pattern = f"^(healthy ({'|'.join(shapes)})|{'|'.join(names)})  in process  float32"
    results = suite(tmp_path, "--only", pattern, "--warm-steps", "60")
    assert disturbed(line for line in results if "fault" not in line) == {}
    assert not_named(results) == {}
    by = {line["fault"]: line["by"] for line in results if "fault" in line}
    assert by["training-temperature-95"] == "parity"
    assert by["one-seed-a-group"] == "seeds"
    assert by["verifier-inverted"] in ("preflight", "gold")
    assert len(results) == len(names) + len(shapes)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 60)
def test_a_tenth_of_the_faults_is_named(tmp_path):
    results = suite(tmp_path, "--faults", "--turn", TURN)
    assert results
    assert not_named(results) == {}


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 60)
def test_a_sixth_of_the_healthy_shapes_is_not_disturbed(tmp_path):
    results = suite(tmp_path, "--healthy", "--turn", TURN)
    assert len(results) >= 4
    assert disturbed(results) == {}
