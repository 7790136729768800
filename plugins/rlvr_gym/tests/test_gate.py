"""The measured gate agrees with the fences, and a sample of it is measured again."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from rlvr_doctor.datacheck.conformance import dataset_conformance
from rlvr_gym.entries import category, curriculum, names
from rlvr_gym.fences import FENCED, MENDED, MIXTURE
from rlvr_gym.rules import ALSO, JUDGED

GATE = resources.files("rlvr_gym").joinpath("gate.json").read_text("utf-8")
ROWS = {row["task"]: row for row in json.loads(GATE)}
LIMIT = 0.2


def test_every_generator_was_measured():
    assert set(ROWS) == set(names()) - {MIXTURE}
    for task, row in ROWS.items():
        assert row["category"] == category(task)
        assert row["parameters"] == sorted(curriculum(task))


@pytest.mark.parametrize("task", sorted(set(ROWS) - set(FENCED)))
def test_an_open_generator_passed(task):
    row = ROWS[task]
    assert row["faults"] == []
    assert row["n"] >= 40
    assert row["references"] == [row["n"], row["n"]]
    for name in ("blind", "shuffled"):
        passed, n = row[name][:2]
        assert passed < LIMIT * n


def test_rules_are_of_generators_and_none_has_two():
    for task in (*JUDGED, *ALSO):
        assert task in names()
    assert not set(JUDGED) & set(ALSO)
    assert not set(MENDED) & set(FENCED)


SAMPLE = (
    "chain_sum",
    "complex_arithmetic",
    "letter_counting",
    "number_sorting",
    "shortest_path",
    "simple_integration",
    "word_sorting",
)

test_a_sample_passes_the_gate = pytest.mark.slow(
    dataset_conformance(
        "gym/tasks", config={"tasks": list(SAMPLE), "n": 40 * len(SAMPLE)}, by=("task",)
    )
)
