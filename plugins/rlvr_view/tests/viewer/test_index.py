"""The index of rollouts: built once, gone on with, built again when it does not fit."""

import os
import sqlite3
import threading
import time

import pytest

pytest.importorskip("starlette")

from rlvr_core.record.jsonl import Stream
from rlvr_view.viewer.index import Cache, reading
from rlvr_view.viewer.indexing import Follower, StoppedError, building, update
from rlvr_view.viewer.stream import parts, read_rows

SEGMENT = 4000
"""Bytes of a file here, of which one holds about six groups."""


def line(step, draw=0, text="four", passed=True):
    one = {
        "text": text * 40, "finish_reason": "stop", "n_tokens": 3, "reward": float(passed),
        "passed": passed, "advantage": 0.5, "fate": "trained",
        "verdicts": {"exact": {"score": 1.0, "status": "ok", "detail": text}},
    }  # fmt: skip
    return {
        "step": step, "version": step, "problem_id": f"p{draw}", "draw_index": draw,
        "dataset": "sums", "sampled_version": step, "tags": {}, "prompt": "2+2=",
        "completions": [one, one],
    }  # fmt: skip


class Growing:
    """A stream with its index."""

    def __init__(self, tmp_path, segment=SEGMENT):
        self.run = tmp_path / "run"
        self.path = self.run / "traces" / "rollouts.jsonl"
        self.stream = Stream(self.path, segment_bytes=segment)
        self.cache = Cache(tmp_path / "cache")
        self.file = self.cache.file(self.run)
        self.written = 0

    def write(self, n, **parts_):
        for _ in range(n):
            self.stream.write(line(self.written, self.written, **parts_))
            self.written += 1

    def update(self):
        update(self.file, self.path, threading.Event())
        return self.steps()

    def steps(self):
        with reading(self.file) as index:
            return [row[0] for row in index.execute("SELECT step FROM groups ORDER BY id")]

    def texts(self):
        """The text of each group, read from where the index says that it stands."""
        with reading(self.file) as index:
            places = [
                tuple(row)
                for row in index.execute("SELECT part, offset, length FROM groups ORDER BY id")
            ]
        found = dict(read_rows(self.path, places))
        return [found[place]["step"] for place in range(len(places))]


@pytest.fixture
def growing(tmp_path):
    made = Growing(tmp_path)
    yield made
    made.stream.close()


def test_it_goes_on_where_it_was_left_over_closed_and_compressed_files(growing):
    growing.write(3)
    assert growing.update() == [0, 1, 2]
    for _ in range(6):
        growing.write(5)
        # a file that is being compressed at this moment is read at the next look
        wait(lambda: growing.update() == list(range(growing.written)))
    growing.stream.close()
    compressed = [part.compressed for part in parts(growing.path)]
    assert compressed.count(True) >= 3
    with reading(growing.file) as index:
        first = index.execute("SELECT max(id) FROM groups").fetchone()[0]
    assert growing.update() == growing.texts() == list(range(33))
    with reading(growing.file) as index:
        assert index.execute("SELECT max(id) FROM groups").fetchone()[0] == first, "built again"
        done, total = index.execute("SELECT done, total FROM progress").fetchone()
    assert done == total == sum(part.raw_size() for part in parts(growing.path))


@pytest.mark.parametrize("kept", [2, 9])
def test_a_run_that_went_back_to_a_checkpoint_is_read_again(growing, kept):
    growing.write(kept)
    growing.update()
    offset = growing.stream.offset()
    growing.write(12, text="old!")
    growing.update()
    growing.stream.rewind(offset)
    growing.written = kept
    growing.write(14, text="new!", passed=False)
    growing.stream.close()
    assert growing.update() == growing.texts() == list(range(kept + 14))
    with reading(growing.file) as index:
        told = index.execute("SELECT text LIKE 'old%', count(*) FROM texts GROUP BY 1")
        assert [tuple(row) for row in told] == [(0, 2 * (kept + 14))]


def test_another_run_in_its_place_and_a_damaged_index_are_read_again(growing, tmp_path):
    growing.write(3)
    growing.update()
    growing.path.write_bytes(b"")
    assert growing.update() == []
    growing.write(2)
    # a file that is closed or compressed at this moment is read at the next look
    wait(lambda: growing.update() == [3, 4])
    growing.file.write_bytes(b"no index at all, but long enough to be taken for one" * 100)
    assert growing.steps() == [], "pages go on without"
    follower = Follower(growing.cache)
    follower.follow(growing.run, growing.path)
    wait(lambda: growing.steps() == [3, 4])
    follower.close()


def test_a_half_written_line_waits_and_a_damaged_file_is_left_there(growing):
    growing.write(4)
    growing.update()
    with growing.path.open("ab") as file:
        file.write(b'{"step": 4, "completions": [], ')
    assert growing.update() == [0, 1, 2, 3]
    with growing.path.open("ab") as file:
        file.write(b'"draw_index": 4}\nnot JSON\n')
    assert growing.update() == [0, 1, 2, 3, 4]
    growing.stream.close()
    again = Stream(growing.path, segment_bytes=SEGMENT)
    for step in range(5, 30):
        again.write(line(step, step))
    again.close()
    closed = next(part.path for part in parts(growing.path) if part.compressed)
    closed.write_bytes(closed.read_bytes()[:-40])
    told = growing.update()
    assert told == sorted(told)
    assert told[-1] == 29
    assert len(told) < 30
    with reading(growing.file) as index:
        assert index.execute("SELECT sum(damaged) FROM parts").fetchone()[0] == 1
    assert growing.update() == told, "it is not read again and again"


def test_an_index_that_was_stopped_goes_on(growing, monkeypatch):
    monkeypatch.setattr("rlvr_view.viewer.indexing.COMMIT_EVERY", 0.0)
    growing.write(20)
    growing.stream.close()
    stop = threading.Event()
    stop.set()
    for expected in (1, 2, 3):
        with pytest.raises(StoppedError):
            update(growing.file, growing.path, stop)
        assert growing.steps() == list(range(expected))
    assert growing.update() == growing.texts() == list(range(20))


def test_of_two_viewers_one_builds_and_both_read(growing):
    growing.write(5)
    with building(growing.file) as first, building(growing.file) as second:
        assert (first, second) == (True, False)
    one, two = Follower(growing.cache), Follower(Cache(growing.cache.folder))
    one.follow(growing.run, growing.path)
    two.follow(growing.run, growing.path)
    wait(lambda: growing.steps() == [0, 1, 2, 3, 4])
    for _ in range(3):
        growing.write(4)
        wait(lambda: growing.steps() == list(range(growing.written)))
    one.close()
    two.close()
    assert one.faults == two.faults == {}
    assert sqlite3.connect(growing.file).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_cache_that_takes_no_writes_is_replaced_for_a_while(growing, tmp_path):
    (tmp_path / "file").write_text("no folder")
    cache = Cache(tmp_path / "file" / "view")
    assert cache.temporary
    growing.write(2)
    update(cache.file(growing.run), growing.path, threading.Event())
    folder = cache.folder
    cache.close()
    assert not folder.exists()
    assert sorted(path.name for path in growing.run.rglob("*")) == ["rollouts.jsonl", "traces"]


def test_indexes_that_nobody_used_for_a_month_are_removed(growing):
    growing.write(1)
    growing.update()
    kept = growing.cache.folder / "other.sqlite"
    kept.touch()
    os.utime(growing.file, (time.time() - 31 * 86_400,) * 2)
    Cache(growing.cache.folder)
    assert kept.exists()
    assert not growing.file.exists()


def wait(true, seconds=20):
    """Wait until something is true; a machine that is busy has time enough."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
