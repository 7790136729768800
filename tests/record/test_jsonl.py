import gzip
import json
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.cli.show_command import last_lines
from rlvr_core.record.jsonl import Stream, encode, read_jsonl, segments

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_every_line_is_one_line_of_json_and_reads_back_equal(line):
    data = encode(line)
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")
    assert len(data.decode().splitlines()) == 1

    def strict(name):
        raise AssertionError(f"{name} is not JSON")

    read = json.loads(data, parse_constant=strict)
    assert json.dumps(read, sort_keys=True) == json.dumps(_finite(line), sort_keys=True)


def _finite(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value


def test_hostile_text_is_stored_without_raw_controls():
    data = encode({"t": "\x1b[2J\x9b31m\u2028 é 数 \ud800"})
    assert b"\x1b" not in data
    assert b"\xc2\x9b" not in data
    assert json.loads(data)["t"] == "\x1b[2J\x9b31m\u2028 é 数 \ud800"
    assert "数".encode() in encode({"t": "数"})  # still to be found by grep


def test_what_the_fast_encoder_refuses_is_written_all_the_same():
    deep = []
    for _ in range(400):
        deep = [deep]
    assert json.loads(encode({"deep": deep, "nan": math.nan})) == {"deep": deep, "nan": None}
    line = {"t": "\ud800\x7f", "n": [-math.inf, 0.1]}
    assert encode(line) == b'{"t":"\\ud800\\u007f","n":[null,0.1]}\n'
    with pytest.raises(TypeError, match="object"):
        encode({"t": object()})


def test_tuples_of_tokens_are_lists_and_their_numbers_exact():
    logprobs = (-0.1, -1e-07, -5e-324, -0.0, -1.7976931348623157e308, -0.30000000000000004)
    line = {"token_ids": (0, 151_643), "logprobs": logprobs}
    read = json.loads(encode(line))
    assert read["token_ids"] == [0, 151_643]
    assert [x.hex() for x in read["logprobs"]] == [x.hex() for x in logprobs]


def test_torn_and_damaged_lines_are_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\nnot json\n[1]\n\xff\xfe\n{"n": 2}\n{"n": 3')
    assert [line["n"] for line in read_jsonl(path)] == [1, 2]
    assert list(read_jsonl(tmp_path / "none.jsonl")) == []


def test_t36_large_traces_are_closed_and_compressed(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    stream = Stream(path, segment_bytes=1000)
    for n in range(100):
        stream.write({"n": n, "text": "x" * 50})
    stream.close()
    names = [segment.name for segment in segments(path)]
    assert names[:2] == ["rollouts.0001.jsonl.gz", "rollouts.0002.jsonl.gz"]
    assert all(name.endswith(".gz") for name in names)
    assert path.stat().st_size < 1000
    assert [line["n"] for line in read_jsonl(path)] == list(range(100))
    assert [line["n"] for line in last_lines(path, 30)] == list(range(70, 100))


def test_t36_segments_of_a_killed_process_are_compressed_by_the_next(tmp_path):
    path = tmp_path / "s.jsonl"
    (tmp_path / "s.0001.jsonl").write_bytes(b'{"n": 0}\n')
    (tmp_path / ".s.0001.jsonl.gz.tmp-99").write_bytes(b"half")
    stream = Stream(path, segment_bytes=20)
    for n in range(1, 5):
        stream.write({"n": n})
    assert stream.offset() == 9 + 4 * 8  # of an earlier version, with a space, and of this one
    stream.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "s.0001.jsonl.gz", "s.0002.jsonl.gz", "s.jsonl",
    ]  # fmt: skip
    assert [line["n"] for line in read_jsonl(path)] == list(range(5))


def test_names_of_other_streams_are_not_taken_for_segments(tmp_path):
    for name in ("a.0001.jsonl", "a.b.0001.jsonl", "ab.0001.jsonl", "a.0001.jsonl.bak"):
        (tmp_path / name).write_text("{}\n")
    assert [s.name for s in segments(tmp_path / "a.jsonl")] == ["a.0001.jsonl"]


@pytest.mark.parametrize("segment_bytes", [None, 120, 10_000])
def test_rewind_to_any_line_then_the_same_lines_give_the_same_bytes(tmp_path, segment_bytes):
    def lines(path, start, stop):
        stream = Stream(path, segment_bytes=segment_bytes)
        offsets = []
        for n in range(start, stop):
            offsets.append(stream.offset())
            stream.write({"n": n, "text": "y" * (n % 7)})
        stream.close()
        return offsets

    whole = tmp_path / "whole" / "s.jsonl"
    offsets = lines(whole, 0, 30)
    expected = list(read_jsonl(whole))
    for cut in (0, 1, 7, 15, 29):
        path = tmp_path / f"cut{cut}" / "s.jsonl"
        lines(path, 0, 30)
        with path.open("ab") as file:
            file.write(b'{"n": 99, "torn')
        stream = Stream(path, segment_bytes=segment_bytes)
        assert stream.rewind(offsets[cut])
        assert stream.offset() == offsets[cut]
        stream.close()
        assert [line["n"] for line in read_jsonl(path)] == list(range(cut))
        lines(path, cut, 30)
        assert list(read_jsonl(path)) == expected


def test_rewind_interrupted_after_its_rename_can_be_done_again(tmp_path):
    path = tmp_path / "s.jsonl"
    stream = Stream(path, segment_bytes=60)
    offsets = []
    for n in range(20):
        offsets.append(stream.offset())
        stream.write({"n": n, "pad": "z" * 10})
    stream.close()
    # what a kill leaves: the growing file is already the cut one, every segment is still there
    first = segments(path)[0]
    with gzip.open(first) as file:
        path.write_bytes(file.readline())
    again = Stream(path, segment_bytes=60)
    assert again.rewind(offsets[1])
    again.close()
    assert [line["n"] for line in read_jsonl(path)] == [0]


def test_a_segment_left_in_both_forms_is_read_once(tmp_path):
    path = tmp_path / "s.jsonl"
    (tmp_path / "s.0001.jsonl").write_bytes(b'{"n": 1}\n')
    with gzip.open(tmp_path / "s.0001.jsonl.gz", "wb") as file:
        file.write(b'{"n": 1}\n')
    path.write_bytes(b'{"n": 2}\n')
    assert [line["n"] for line in read_jsonl(path)] == [1, 2]
    stream = Stream(path)
    assert stream.offset() == 18


def test_rewind_past_the_end_says_so_and_cuts_the_torn_line(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n"')
    stream = Stream(path)
    assert not stream.rewind(500)
    stream.write({"n": 2})
    assert [line["n"] for line in read_jsonl(path)] == [1, 2]


def test_threads_write_whole_lines_across_segments(tmp_path):
    path = tmp_path / "s.jsonl"
    stream = Stream(path, segment_bytes=5000)

    def work(thread):
        for n in range(100):
            stream.write({"thread": thread, "n": n, "pad": "x" * 40})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = list(read_jsonl(path))
    assert sorted((line["thread"], line["n"]) for line in read) == [
        (i, n) for i in range(4) for n in range(100)
    ]
    for i in range(4):
        assert [line["n"] for line in read if line["thread"] == i] == list(range(100))


@pytest.mark.parametrize("n", [1, 2, 5, 400])
@pytest.mark.parametrize("width", [3, 70_000])
def test_tail_is_the_end_of_the_whole(tmp_path, n, width):
    path = tmp_path / "s.jsonl"
    stream = Stream(path, segment_bytes=None)
    for i in range(6):
        stream.write({"n": i, "pad": "x" * width})
    with path.open("ab") as file:
        file.write(b'{"torn')
    # a torn line counts for nothing
    assert [line["n"] for line in last_lines(path, n)] == list(range(6))[-n:]
