"""Order files: what is read, and what is refused."""

import pytest

from rlvr_core.api import DataError, PluginError, Problem
from rlvr_core.data.load import NamedLoader, load_sources
from rlvr_core.rollout.samplers.order import read_order

KNOWN = [f"math_algebra_{i}" for i in range(40)]


def written(tmp_path, content):
    path = tmp_path / "order.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    ["b\na\n", "b\na", "b\r\na\r\n", "\nb\n\n  \na\n\n", b"\xef\xbb\xbfb\na\n"],
)
def test_line_ends_blank_lines_and_byte_order_marks(tmp_path, content):
    assert read_order(str(written(tmp_path, content)), ["a", "b", "c"]) == ["b", "a"]


def test_a_file_uri(tmp_path):
    path = written(tmp_path, "a\n")
    assert read_order(path.as_uri(), ["a"]) == ["a"]


def test_a_scheme_nobody_opens_is_named():
    with pytest.raises(PluginError, match="gopher"):
        read_order("gopher://host/order.txt", ["a"])


def test_t41_unmatched_ids_are_an_error_with_the_nearest(tmp_path):
    lines = ["math_algebra_1", "math-algebra-17", "zzz", "math_algebra_2"]
    path = written(tmp_path, "".join(f"{line}\n" for line in lines))
    with pytest.raises(DataError) as caught:
        read_order(str(path), KNOWN)
    text = str(caught.value)
    assert "no problem has the id 'math-algebra-17'; the nearest are math_algebra_17" in text
    assert f"{path}:2" in text
    assert "no problem has the id 'zzz'; nothing is called like it" in text
    assert "2 of 4 ids are not in the data, which have 40" in text


def test_t41_of_very_many_the_first_are_named_and_all_are_counted(tmp_path):
    known = [f"p{i}" for i in range(5000)]
    path = written(tmp_path, "".join(f"q{i}\n" for i in range(5000)))
    with pytest.raises(DataError) as caught:
        read_order(str(path), known)
    assert len(caught.value.complaints) == 6
    assert "5000 of 5000 ids" in str(caught.value)


def test_what_was_too_long_is_skipped_and_no_fault(tmp_path):
    path = written(tmp_path, "long\na\n")
    assert read_order(str(path), ["a", "b"], left_out=["long"]) == ["a"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\nb\na\n", "'a' is there twice, first in line 1"),
        ("a\na\nx\n", r"(?s)twice.*'x'"),
        ("", "names no problem"),
        ("\n\n", "names no problem"),
        ("long\n", "names no problem"),
        (b"\xff\xfe\x00a", "no UTF-8"),
        (None, "cannot read the order file"),
    ],
)
def test_a_file_that_orders_nothing_is_an_error(tmp_path, content, said):
    path = tmp_path / "nothing.txt" if content is None else written(tmp_path, content)
    with pytest.raises(DataError, match=said):
        read_order(str(path), ["a", "b"], left_out=["long"])


class Given:
    def __init__(self, ids):
        self._ids = ids

    def load(self):
        return [Problem(id_, "?", "core/exact", {}, "toy") for id_ in self._ids]


@pytest.mark.parametrize("bad", ["", "  ", "a\nb", "a\rb"])
def test_ids_that_no_file_could_tell_are_refused_with_the_data(bad):
    with pytest.raises(DataError, match="id is blank or holds a line break"):
        load_sources([NamedLoader("toy", Given(["good", bad]))])
