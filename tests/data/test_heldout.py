"""A held-out share of any source: disjoint, of the right size, and the same whatever is added."""

from __future__ import annotations

import random

import pytest
from pydantic import ValidationError

from rlvr_core.api import DataError, Problem
from rlvr_core.config.model import SplitSection
from rlvr_core.data.load import NamedLoader, heldout_part, is_heldout, load_sources, train_part
from rlvr_core.eval.dataset_task import DatasetTask

PROBLEMS = [Problem(f"p{i}", f"{i}?", "core/exact", {"answer": "1"}, "toy") for i in range(5000)]


class Loader:
    def __init__(self, problems):
        self.problems = problems

    def load(self):
        return iter(self.problems)


def test_both_parts_make_the_whole_and_share_nothing():
    split = SplitSection(heldout=0.1)
    train, held_out = train_part(PROBLEMS, split), heldout_part(PROBLEMS, split)
    assert not {p.id for p in train} & {p.id for p in held_out}
    assert sorted([*train, *held_out], key=lambda p: int(p.id[1:])) == PROBLEMS
    # binomial: 500 +- 21
    assert abs(len(held_out) - 500) < 4 * 21.3


def test_order_and_other_rows_change_nothing():
    split = SplitSection(heldout=0.2, seed=3)
    few = random.Random(0).sample(PROBLEMS, 100)
    chosen = {p.id for p in heldout_part(PROBLEMS, split)}
    assert {p.id for p in heldout_part(few, split)} == chosen & {p.id for p in few}


def test_another_seed_holds_out_others_and_a_larger_share_more():
    one = {p.id for p in heldout_part(PROBLEMS, SplitSection(heldout=0.1))}
    other = {p.id for p in heldout_part(PROBLEMS, SplitSection(heldout=0.1, seed=1))}
    more = {p.id for p in heldout_part(PROBLEMS, SplitSection(heldout=0.3))}
    assert len(one & other) < 0.5 * len(one)
    assert one < more


def test_the_rule_is_pinned():
    # sha256("0\\0p1") begins with the 8 bytes of this share of 2**64
    import hashlib

    share = int.from_bytes(hashlib.sha256(b"0\0p1").digest()[:8], "big") / 2**64
    assert is_heldout("p1", SplitSection(heldout=share + 1e-6))
    assert not is_heldout("p1", SplitSection(heldout=share - 1e-6))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_is_between_none_and_all(share):
    with pytest.raises(ValidationError):
        SplitSection(heldout=share)


def test_a_source_is_loaded_without_what_it_holds_out():
    split = SplitSection(heldout=0.5)
    (source,) = load_sources([NamedLoader("toy", Loader(PROBLEMS), split=split)])
    assert source.problems == train_part(PROBLEMS, split)
    tiny = SplitSection(heldout=1e-9)
    with pytest.raises(DataError, match="holds out none of its 3 problems"):
        load_sources([NamedLoader("toy", Loader(PROBLEMS[:3]), split=tiny)])


def test_the_eval_task_has_the_part_that_is_held_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,question\n" + "".join(f"q{i},{i}?\n" for i in range(40)))
    options = {"path": str(path), "prompt": "question", "id": "id", "verifier": "core/exact"}
    ref = {"use": "core/csv", "with": options}
    task = DatasetTask(DatasetTask.Config(data=ref, split={"heldout": 0.25, "seed": 2}))
    split = SplitSection(heldout=0.25, seed=2)
    assert [p.id for p in task.problems()] == [
        f"q{i}" for i in range(40) if is_heldout(f"q{i}", split)
    ]
