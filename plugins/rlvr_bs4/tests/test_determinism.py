"""The same arguments give the same bytes, in this process and in others."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys

import pytest

from rlvr_bs4 import catalog, manifest
from rlvr_bs4.generate import SEEDS, SPLITS, draw, generate, split_of
from rlvr_bs4.task import canonical
from rlvr_core.api import DataError

PROGRAM = """
import hashlib
from rlvr_bs4 import catalog
from rlvr_bs4.generate import generate
digest = hashlib.sha256()
for id in catalog.everything():
    for seed, size in ((0, "small"), (110_000, "bare")):
        digest.update(generate(id, seed, size).sha256.encode())
print(digest.hexdigest())
"""


def test_other_processes_with_other_hash_seeds_make_the_same_bytes():
    digest = hashlib.sha256()
    for id in catalog.everything():
        for seed, size in ((0, "small"), (110_000, "bare")):
            digest.update(generate(id, seed, size).sha256.encode())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest.hexdigest()


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


def test_tasks_can_be_sent_to_another_process():
    task = generate("mvp.link_chain", 3, "small")
    assert pickle.loads(pickle.dumps(task)) == task


def test_nothing_asked_in_one_split_is_asked_in_another():
    asked: dict[str, set[str]] = {split: set() for split in SPLITS}
    for id in ("primer.count_elements", "primer.extract_by_tag", "mvp.count_elements"):
        kind = catalog.get(id)
        for split in SPLITS:
            for seed in SEEDS[split][:60]:
                draft, _ = draw(kind, seed)
                asked[split].add(canonical([id, draft.question.slots, draft.answer]))
    assert not asked["train"] & asked["eval"]
    assert not asked["train"] & asked["bench"]
    assert not asked["eval"] & asked["bench"]


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
