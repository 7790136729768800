"""Figures of a step on a GPU stay within what ``docs/gpu-budgets.md`` has."""

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import branches  # noqa: E402
import reached  # noqa: E402
import table  # noqa: E402

WRITTEN = table.known()
LARGE = list(table.CASES)
TURN = int(os.environ.get("RLVR_TEST_TURN", "0"), 16) // 5 % len(LARGE)


def test_the_page_is_made_of_the_figures_that_are_written_down():
    assert table.PAGE.read_text(encoding="utf-8") == table.page()
    assert list(WRITTEN) == list(table.CASES)


def test_what_is_written_down_holds():
    assert [line for name, one in WRITTEN.items() for line in table.beyond(name, one, one)] == []


@pytest.mark.parametrize(
    ("what", "by", "words"),
    [
        ("waits", 5, "the host waits"),
        ("wide", 1e9, "products in float32, none"),
        ("peak", 1.04, "peak "),
        ("peak", 0.96, "peak "),
        ("at_rest", 1.04, "at_rest "),
        ("launches", 1.03, "launches "),
    ],
)
def test_a_figure_that_leaves_its_budget_is_named(what, by, words):
    name = "1.7B, flash, bfloat16, checkpointing, reference"
    one = WRITTEN[name]
    changed = by if what in ("waits", "wide") else int(by * one[what])
    (wrong,) = table.beyond(name, one | {what: changed}, one)
    assert words in wrong


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++")
def test_a_step_of_real_size_is_within_its_budgets():
    """One case by the commit's turn; all with RLVR_TEST_ALL."""
    names = LARGE if "RLVR_TEST_ALL" in os.environ else [LARGE[TURN]]
    wrong = []
    for found in table.measure(names):
        wrong += table.beyond(found["name"], found, WRITTEN[found["name"]])
    assert wrong == []


# -- places that speak of CUDA ---------------------------------------------------------------------


def test_every_place_that_speaks_of_cuda_is_reached_or_has_a_reason():
    assert reached.unlisted(reached.read(), branches.places()) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++")
def test_places_are_reached_by_what_the_list_says():
    found = {reached.STAND_IN: reached.ran("stand-in"), reached.TESTS: reached.ran("tests")}
    assert reached.differences(reached.read(), branches.places(), found) == []


CODE = """
import torch

WORD = "CUDA_VISIBLE_DEVICES"

def where(model, environ):
    \"\"\"Prose about cuda is no place.\"\"\"
    on_gpu = model.device.type == "cuda"
    if on_gpu and model.ready:
        torch.cuda.synchronize()
    there = [one for one in environ if one.is_cuda]
    return there, environ.get(WORD)
"""


def test_a_new_place_without_test_or_reason_is_named_with_file_and_line(tmp_path, monkeypatch):
    """All places of a module, counted by hand."""
    (tmp_path / "rlvr_core").mkdir()
    (tmp_path / "rlvr_core" / "new.py").write_text(CODE)
    monkeypatch.setattr(branches, "ROOT", tmp_path)
    monkeypatch.setattr(branches, "PACKAGES", ("rlvr_core",))
    found = branches.places()
    assert {place.partition(" | ")[2]: line for place, line in found.items()} == {
        "where | model.device.type == 'cuda'": 8,
        "where | on_gpu | true": 9,
        "where | on_gpu | false": 9,
        "where | torch.cuda.synchronize()": 10,
        "where | one.is_cuda | true": 11,
        "where | one.is_cuda | false": 11,
        "where | [one for one in environ if one.is_cuda]": 11,
        "where | environ.get(WORD)": 12,
    }
    wrong = reached.unlisted({"a reason": [*found][1:]}, found)
    assert len(wrong) == 1
    assert wrong[0].startswith("rlvr_core/new.py:8: no test reaches this and no reason says why")
    gone = reached.unlisted({"a reason": [*found, "rlvr_core/new.py | f | x"]}, found)
    assert gone == ["it is no more: rlvr_core/new.py | f | x"]
    nothing = {reached.NEW: [*found]}
    assert all(line.startswith("a reason is missing") for line in reached.unlisted(nothing, found))
