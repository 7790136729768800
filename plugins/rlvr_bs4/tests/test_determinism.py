"""The same arguments give the same bytes, in this process and in others."""

from __future__ import annotations

import os

import pytest

from rlvr_bs4 import catalog, manifest
from rlvr_bs4.generate import generate, split_of
from rlvr_core.api import DataError


def test_the_first_tasks_of_the_manifest_are_as_they_were():
    """Golden hashes of three tasks of every archetype."""
    head, entries = manifest.read()
    first = entries[: 3 * len(catalog.everything())]
    assert {entry.archetype for entry in first} == set(catalog.everything())
    assert [entry for entry in first if entry.task().sha256 != entry.sha256] == []
    assert head["entries"] == len(entries) == 20 * len(catalog.everything())


def test_every_prefix_of_the_manifest_is_balanced():
    _, entries = manifest.read()
    n = len(catalog.everything())
    for turn in range(20):
        part = entries[n * turn : n * (turn + 1)]
        assert len({entry.archetype for entry in part}) == n
        assert {entry.seed for entry in part} == {110_000 + turn}
    assert len({entry.size for entry in entries[:4]}) == 4


def test_a_changed_manifest_is_refused(tmp_path):
    _, entries = manifest.read()
    path = tmp_path / "bench.jsonl"
    manifest.write(path, entries[:5])
    assert manifest.read(path)[1] == entries[:5]
    path.write_text(path.read_text().replace(entries[2].sha256, "0" * 64))
    with pytest.raises(DataError, match="do not have the hash"):
        manifest.read(path)
    with pytest.raises(DataError, match="no manifest"):
        manifest.read(tmp_path / "absent")


def test_seed_ranges_of_splits_do_not_meet():
    assert [split_of(seed) for seed in (0, 99_999, 100_000, 109_999, 110_000, 110_999)] == [
        *("train", "train", "eval", "eval", "bench", "bench")
    ]
    for seed in (-1, 111_000):
        with pytest.raises(DataError, match="outside"):
            split_of(seed)


def test_unknown_archetypes_and_sizes_are_named():
    with pytest.raises(DataError, match="no archetype") as caught:
        generate("mvp.extract_linx", 0, "small")
    assert "mvp.extract_links" in str(caught.value)
    with pytest.raises(DataError, match="no size"):
        generate("mvp.extract_links", 0, "huge")
    assert catalog.get("honeypot_detection").id == "mvp.honeypot_detection"
    with pytest.raises(DataError, match="extract_attribute"):
        catalog.get("extract_attribute")  # there is one in primer and one in mvp


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("RLVR_TEST_ALL") != "1", reason="long: make test-all runs it")
def test_p15_the_whole_manifest_is_as_it_was():
    _, entries = manifest.read()
    assert [one for one in entries if one.task().sha256 != one.sha256] == []
