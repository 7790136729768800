"""Traces of any size and state."""

import gzip
import json

import pytest

from rlvr_core.builtin.html_report import trace as module
from rlvr_core.builtin.html_report.groups import outcome, read_groups, shown_completions
from rlvr_core.builtin.html_report.trace import Trace


def lines(*numbers):
    return b"".join(b'{"n": %d}\n' % number for number in numbers)


def read(trace):
    return [line["n"] for line in trace]


def test_segments_are_read_in_order(tmp_path):
    (tmp_path / "t.0001.jsonl.gz").write_bytes(gzip.compress(lines(0, 1)))
    (tmp_path / "t.0002.jsonl").write_bytes(lines(2))
    (tmp_path / "t.jsonl").write_bytes(lines(3) + b'{"n": 4')  # what a kill leaves
    assert read(Trace(tmp_path / "t.jsonl")) == [0, 1, 2, 3]


def test_a_large_trace_is_thinned_over_all_its_segments(tmp_path):
    (tmp_path / "t.0001.jsonl.gz").write_bytes(gzip.compress(lines(*range(10))))  # 90 bytes
    (tmp_path / "t.jsonl").write_bytes(lines(*range(10, 20)))  # 100 bytes
    trace = Trace(tmp_path / "t.jsonl", budget=64)
    assert trace.every == 3  # 190 / 64 = 2.97
    assert read(trace) == [0, 3, 6, 9, 12, 15, 18]


def test_damage_is_told_and_the_rest_is_read(tmp_path):
    (tmp_path / "t.0001.jsonl.gz").write_bytes(gzip.compress(lines(0) * 1000)[:-20])
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\n[1]\n" + lines(7))
    trace = Trace(tmp_path / "t.jsonl")
    assert read(trace)[-1] == 7
    assert trace.damaged == ["t.0001.jsonl.gz"]


def test_a_line_without_end_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 50)
    (tmp_path / "t.jsonl").write_bytes(b"x" * 175 + b"\n" + lines(1))
    trace = Trace(tmp_path / "t.jsonl")
    assert read(trace) == [1]
    assert trace.too_long == 1


def test_there_may_be_no_trace(tmp_path):
    assert read(Trace(tmp_path / "t.jsonl")) == []


def write_groups(path, groups):
    rows = [
        {
            "step": step,
            "dataset": "sums",
            "problem_id": f"p{i}",
            "completions": [
                {"passed": one, "reward": None if one is None else float(one)} for one in passed
            ],
        }
        for i, (step, passed) in enumerate(groups)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Trace(path)


def test_each_stretch_of_the_run_gives_a_group_of_each_outcome(tmp_path):
    every = [(step, passed) for step in range(16) for passed in ([True, False], [False] * 2)]
    found = read_groups(write_groups(tmp_path / "r.jsonl", every), 16)
    assert [row["step"] for row in found.samples] == [s for s in range(0, 16, 2) for _ in range(2)]
    assert {outcome(row) for row in found.samples} == {"mixed", "wrong"}
    assert [one.rate for one in found.seen[:2]] == [0.5, 0.0]


@pytest.mark.parametrize(
    ("passed", "word"),
    [([True, False], "mixed"), ([True, None], "right"), ([False], "wrong"), ([None], "not judged")],
)
def test_the_outcome_of_a_group(passed, word):
    assert outcome({"completions": [{"passed": one} for one in passed]}) == word


def test_the_best_and_the_worst_of_a_large_group_are_shown():
    rewards = [0.5, None, 3.0, -1.0, 2.0, 1.0]
    shown = shown_completions({"completions": [{"reward": one} for one in rewards]})
    assert [one["reward"] for one in shown] == [3.0, 2.0, -1.0, None]


@pytest.mark.parametrize("odd", ["[]", "{}", '{"step": "x"}', '{"step": 1, "completions": 5}'])
def test_odd_lines_are_no_groups(tmp_path, odd):
    (tmp_path / "r.jsonl").write_text(odd + "\n" + '{"step": 0, "completions": ["x", {}]}\n')
    found = read_groups(Trace(tmp_path / "r.jsonl"), 1)
    assert not found.seen
    assert len(found.samples) == 1
