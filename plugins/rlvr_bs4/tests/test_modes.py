"""Modes, weights, exact counts, order; and the three forms of a data set."""

from __future__ import annotations

import gzip
import multiprocessing
import pickle
from collections import Counter

import pytest

from rlvr_bs4 import catalog, modes
from rlvr_bs4 import tasks as tasks_module
from rlvr_bs4.datasets import Pages, tasks_of
from rlvr_bs4.modes import counts, rows, weights
from rlvr_bs4.tasks import Tasks
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
        assert len(tasks_of(options(mode=mode, split=split, n=None))) == each * kinds


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
    only = tasks_of(options(archetypes=["extract_links", "mvp.table_rowspan"], n=10))
    assert Counter(row[0] for row in only.rows) == {"mvp.extract_links": 5, "mvp.table_rowspan": 5}
    without = tasks_of(options(exclude=["mvp.table_rowspan"], n=500))
    assert "mvp.table_rowspan" not in {row[0] for row in without.rows}
    with pytest.raises(DataError, match="no archetype 'nonsense'"):
        tasks_of(options(archetypes=["nonsense"]))
    with pytest.raises(DataError, match="leave no archetype"):
        tasks_of(options(archetypes=["extract_links"], exclude=["extract_links"]))
    with pytest.raises(DataError, match="has 1000"):
        tasks_of(options(archetypes=["extract_links"], split="bench", n=1001))


def test_other_seeds_choose_other_tasks_and_mixed_has_all_sizes():
    one, other = (tasks_of(options(n=100, seed=seed, size="mixed")) for seed in (1, 2))
    assert one.rows != other.rows
    assert one.rows == tasks_of(options(n=100, seed=1, size="mixed")).rows
    assert len({size for _, _, size in one.rows}) == 4


@pytest.fixture
def small() -> Tasks:
    return tasks_of(options(n=12, size="bare"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b[:-1],
        lambda b: b"",
        lambda b: b"\0" + b,
        lambda b: b[:40] + b"\xff\0\xff" + b[43:],
    ],
)
def test_a_cache_file_that_was_damaged_is_written_again(small, tmp_path, damage):
    whole = small.cached(tmp_path)
    (path,) = tmp_path.glob("*.gz")
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert small.cached(tmp_path) == whole
    assert gzip.decompress(path.read_bytes()) == gzip.decompress(good)


def test_lazy_eager_and_cached_are_equal(small, tmp_path):
    eager, cached = small.eager(), small.cached(tmp_path)
    again = small.cached(tmp_path)
    assert eager == cached == again == tuple(small) == tuple(small[i] for i in range(12))
    assert [task.sha256 for task in cached] == [task.sha256 for task in eager]
    assert small[-1] == eager[-1]
    assert tuple(small[2:9:3]) == eager[2:9:3]
    assert tuple(small[::-1]) == eager[::-1]
    with pytest.raises(IndexError):
        small[12]


def test_workers_can_share_a_set_and_send_it(small):
    assert pickle.loads(pickle.dumps(small)).rows == small.rows
    shards = [small[worker::3] for worker in range(3)]
    assert sorted(row for shard in shards for row in shard.rows) == sorted(small.rows)


def test_a_data_set_is_the_same_from_a_cache(tmp_path):
    plain = list(Pages(options(n=12, size="bare")).load())
    for _ in range(2):
        assert list(Pages(options(n=12, size="bare", cache=str(tmp_path / "c"))).load()) == plain


def test_lazy_makes_nothing_before_it_is_asked(monkeypatch):
    made = []
    monkeypatch.setattr(tasks_module, "generate", lambda *row: made.append(row))
    whole = tasks_of(options(n=None))
    assert len(whole) == 1000 * N
    assert not made
    whole[72_999]
    assert made == [whole.rows[-1]]


def test_a_cache_is_for_these_rows_and_this_code(small, monkeypatch):
    keys = {small.key, small[1:].key, small[::-1].key}
    monkeypatch.setattr(tasks_module, "fingerprint", lambda: "other code")
    assert len({*keys, small.key}) == 4


def test_a_broken_build_leaves_no_file(small, tmp_path, monkeypatch):
    def fail(*row):
        raise RuntimeError("no more")

    monkeypatch.setattr(tasks_module, "generate", fail)
    with pytest.raises(RuntimeError):
        small.cached(tmp_path)
    assert [one.name for one in tmp_path.iterdir() if one.suffix != ".lock"] == []


def _build(folder, rows_, pipe):
    pipe.send([task.sha256 for task in Tasks(rows_).cached(folder)])


def test_two_processes_racing_get_the_same(small, tmp_path):
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(2)]
    racers = [
        context.Process(target=_build, args=(tmp_path, small.rows, theirs)) for _, theirs in pipes
    ]
    for one in racers:
        one.start()
    results = [ours.recv() for ours, _ in pipes]
    for one in racers:
        one.join()
    assert results[0] == results[1] == [task.sha256 for task in small]
    assert len([one for one in tmp_path.iterdir() if one.name.endswith(".gz")]) == 1
