"""Modes, weights, exact counts, order."""

from __future__ import annotations

from collections import Counter

import pytest

from rlvr_bs4 import catalog, datasets, modes
from rlvr_bs4.datasets import Pages, rows_of
from rlvr_bs4.generate import generate
from rlvr_bs4.modes import counts, rows, weights
from rlvr_core.api import DataError

N = len(catalog.everything())


def options(**given):
    return Pages.Config(**given)


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("mvp", 33), ("phase2", 24), ("all", 73), ("bootstrap", 15), ("primer", 5), ("tiered", 68)],
)
def test_modes_choose_archetypes(mode, kinds):
    found = weights(mode)
    assert len(found) == kinds
    for split, each in (("train", 1000), ("eval", 100), ("bench", 20)):
        assert len(rows_of(options(mode=mode, split=split, n=None))) == each * kinds


def test_hard_only_has_every_hard_archetype():
    hard = {id for id, kind in catalog.everything().items() if kind.difficulty == "hard"}
    assert set(weights("hard_only")) == hard


def test_tiered_shares_by_difficulty_and_leaves_primers_out():
    found = Counter()
    for task_id, n in counts(weights("tiered"), 1000).items():
        found[catalog.get(task_id).difficulty] += n
    assert found["primer"] == 0
    assert (found["easy"], found["medium"], found["hard"]) == pytest.approx((200, 400, 400), abs=10)


@pytest.mark.parametrize("n", [1, 2, 57, 73, 100, 101, 999])
@pytest.mark.parametrize("mode", modes.MODES)
def test_counts_are_exact_and_prefixes_cover(mode, n):
    weighted = weights(mode)
    assert sum(counts(weighted, n).values()) == n
    found = rows(weighted, "train", n, 42)
    assert len(found) == n == len(set(found))
    covered = {id for id, _ in found[: len(weighted)]}
    assert len(covered) == min(n, sum(one > 0 for one in counts(weighted, n).values()))


def test_rest_of_a_data_set_is_as_mixed_as_the_whole():
    found = rows(weights("all"), "train", 20 * N, 0)
    for start in range(N, 20 * N, 5 * N):
        part = Counter(id for id, _ in found[start : start + 5 * N])
        assert max(part.values()) <= 7


def test_weights_by_id_category_and_difficulty():
    found = weights("all", {"primer": 0, "tables": 2.0, "mvp.table_rowspan": 1.0})
    assert not [id for id in found if id.startswith("primer.")]
    assert found["mvp.table_rowspan"] == 1.0
    assert found["mvp.table_list_of_lists"] == pytest.approx(2.0 / 5)
    assert found["mvp.extract_links"] == 1.0
    with pytest.raises(DataError, match="tabels"):
        weights("all", {"tabels": 1})
    with pytest.raises(DataError, match="below zero"):
        weights("all", {"tables": -1})
    with pytest.raises(DataError, match="weight 0"):
        weights("primer", {"primer": 0})


def test_an_archetype_less_leaves_the_seeds_of_the_others():
    whole, less = (
        rows(weights("all", g), "train", n, 42) for g, n in (({}, N), ({"primer": 0}, N - 5))
    )
    assert set(less) < set(whole)


def test_archetypes_exclude_and_errors():
    only = rows_of(options(archetypes=["extract_links", "mvp.table_rowspan"], n=10))
    assert Counter(row[0] for row in only) == {"mvp.extract_links": 5, "mvp.table_rowspan": 5}
    without = rows_of(options(exclude=["mvp.table_rowspan"], n=500))
    assert "mvp.table_rowspan" not in {row[0] for row in without}
    with pytest.raises(DataError, match="no archetype 'nonsense'"):
        rows_of(options(archetypes=["nonsense"]))
    with pytest.raises(DataError, match="leave no archetype"):
        rows_of(options(archetypes=["extract_links"], exclude=["extract_links"]))
    with pytest.raises(DataError, match="has 1000"):
        rows_of(options(archetypes=["extract_links"], split="bench", n=1001))


def test_other_seeds_choose_other_tasks_and_mixed_has_all_sizes():
    one, other = (rows_of(options(n=100, seed=seed, size="mixed")) for seed in (1, 2))
    assert one != other
    assert one == rows_of(options(n=100, seed=1, size="mixed"))
    assert len({size for _, _, size in one}) == 4


def test_nothing_is_made_before_it_is_asked_for(monkeypatch):
    made = []
    monkeypatch.setattr(datasets, "generate", lambda *row: made.append(row) or generate(*row))
    assert len(rows_of(options(n=None))) == 1000 * N
    problems = Pages(options(n=12, size="bare")).load()
    assert not made
    next(problems)
    assert len(made) == 1
