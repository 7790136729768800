import errno
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from rlvr_core.api import RunError
from rlvr_core.record.checkpoints import CheckpointStore, verify


def filler(step, size=2000):
    def fill(path):
        (path / "trainer").mkdir()
        (path / "model.safetensors").write_bytes(bytes([step % 256]) * size)
        (path / "trainer" / "state.json").write_text(json.dumps({"step": step}))

    return fill


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", keep=3)


def names(store):
    return sorted(p.name for p in store.folder.iterdir())


def silent(message):
    raise AssertionError(message)


def test_a_checkpoint_is_whole_and_latest(store):
    path = store.write(20, filler(20))
    assert path.name == "step000020"
    assert verify(path) is None
    seal = json.loads((path / "COMPLETE").read_text())
    assert seal["step"] == 20
    assert seal["files"]["model.safetensors"]["size"] == 2000
    assert set(seal["files"]) == {"model.safetensors", "trainer/state.json"}
    latest = store.folder / "latest"
    assert str(latest.readlink()) == "step000020"
    assert store.newest(silent) == path
    assert CheckpointStore(store.folder, 1).newest(silent) == path


def test_t87_every_checkpoint_is_on_disk_at_once_and_the_newest_are_kept(store):
    for step in (5, 10, 15, 20, 1_000_005):
        store.write(step, filler(step))
        assert store.newest(silent).name == f"step{step:06d}"
    assert names(store) == ["latest", "step000015", "step000020", "step1000005"]


def test_pinned_ones_stay(tmp_path):
    store = CheckpointStore(tmp_path, keep=1, pinned={10})
    for step in (5, 10, 15, 20):
        store.write(step, filler(step))
    assert names(store) == ["latest", "step000010", "step000020"]


def test_what_other_processes_wrote_is_sealed_by_their_checksums_without_reading_it(store):
    theirs = {"size": 3, "sha256": "a" * 64}

    def fill(folder):
        filler(7)(folder)
        (folder / "trainer" / "shard").write_bytes(b"abc")

    path = store.write(7, fill, known={"trainer/shard": theirs})
    files = json.loads((path / "COMPLETE").read_text())["files"]
    assert files["trainer/shard"] == theirs
    assert files["model.safetensors"]["size"] == 2000


@pytest.mark.parametrize(
    ("size", "told"), [(None, "trainer/shard is missing"), (2, "shard has 2 bytes, not 3")]
)
def test_without_a_file_that_another_process_wrote_there_is_no_checkpoint(store, size, told):
    def fill(folder):
        filler(7)(folder)
        if size is not None:
            (folder / "trainer" / "shard").write_bytes(b"." * size)

    with pytest.raises(RunError, match=told):
        store.write(7, fill, known={"trainer/shard": {"size": 3, "sha256": "a" * 64}})
    assert names(store) == []


def flip(path):
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (flip, "the content of model.safetensors has changed"),
        (
            lambda path: os.truncate(path / "model.safetensors", 1999),
            "model.safetensors has 1999 bytes, not 2000",
        ),
        (lambda path: (path / "COMPLETE").write_text("{"), "COMPLETE cannot be read"),
        (lambda path: (path / "COMPLETE").unlink(), "has no COMPLETE"),
        (
            lambda path: (path / "trainer" / "state.json").unlink(),
            "trainer/state.json is missing",
        ),
    ],
    ids=["flipped", "cut", "torn seal", "no seal", "lost"],
)
def test_a_damaged_one_is_passed_over_with_a_word_and_never_costs_a_good_one(
    tmp_path, damage, told
):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20):
        store.write(step, filler(step))
    damage(tmp_path / "step000020")
    said = []
    store = CheckpointStore(tmp_path, keep=2)
    assert store.newest(said.append).name == "step000010"
    assert len(said) == 1
    assert "step000020" in said[0]
    assert told in said[0]
    store.write(15, filler(15))  # the damaged newer one must not push the good ones out
    assert {"step000010", "step000015"} <= set(names(store))
    store.write(20, filler(21))  # and is replaced when the run comes by again
    assert store.newest(silent).name == "step000020"
    assert (tmp_path / "step000020" / "model.safetensors").read_bytes()[0] == 21


def test_a_renamed_checkpoint_is_not_taken_for_another_step(store):
    store.write(20, filler(20)).rename(store.folder / "step000099")
    said = []
    assert store.newest(said.append) is None
    assert "belongs to step 20" in said[0]


def test_no_checkpoints(store):
    assert store.newest(silent) is None
    store.folder.mkdir()
    (store.folder / "notes.txt").write_text("")
    assert store.newest(silent) is None


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), RunError, "the disk is full"),
        (
            RuntimeError("I/O error: No space left on device (os error 28)"),
            RunError,
            "disk is full",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), RunError, "Permission denied"),
        (ValueError("odd"), RunError, "ValueError: odd"),
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (RunError("own words"), RunError, "^own words"),
    ],
)
def test_a_failure_leaves_the_older_ones_and_no_litter(store, error, raised, told):
    store.write(10, filler(10))

    def fail(path):
        filler(20)(path)
        raise error

    with pytest.raises(raised, match=told) as caught:
        store.write(20, fail)
    if raised is RunError and told != "^own words":
        assert "the last good checkpoint is" in str(caught.value)
    assert names(store) == ["latest", "step000010"]
    assert store.newest(silent).name == "step000010"


def test_a_failed_replacement_keeps_the_one_it_would_replace(store, monkeypatch):
    good = store.write(10, filler(10))
    with pytest.raises(RunError):
        store.write(10, lambda path: (_ for _ in ()).throw(ValueError("odd")))
    rename = type(good).rename

    def refuse(self, target):
        if self.name.startswith(".tmp-step"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(type(good), "rename", refuse)
    with pytest.raises(RunError, match="Input/output"):
        store.write(10, filler(11))
    monkeypatch.undo()
    assert names(store) == ["latest", "step000010"]
    assert store.newest(silent) == good


def test_a_replacement_killed_between_its_renames_is_undone(store):
    good = store.write(10, filler(10))
    good.rename(store.folder / ".old-step000010")
    assert CheckpointStore(store.folder, 1).newest(silent) == good


def test_litter_of_killed_writers_is_taken_away(store):
    store.folder.mkdir()
    (store.folder / ".tmp-step000005-99").mkdir()
    (store.folder / ".tmp-step000005-99" / "half").write_text("x")
    (store.folder / ".tmp-latest-99").symlink_to("step000001")
    store.write(10, filler(10))
    assert names(store) == ["latest", "step000010"]


def test_latest_without_links_and_over_a_copied_folder(store, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    store.folder.mkdir()
    (store.folder / "latest").mkdir()
    monkeypatch.setattr(type(store.folder), "symlink_to", refuse)
    store.write(10, filler(10))
    assert (store.folder / "latest").read_text() == "step000010\n"
    monkeypatch.undo()
    store.write(20, filler(20))
    assert str((store.folder / "latest").readlink()) == "step000020"


def test_t81_an_index_that_names_absent_shards_is_refused(store):
    def fill(path):
        filler(5)(path)
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(RunError, match=r"model-00001-of-00002\.safetensors"):
        store.write(5, fill)
    assert names(store) == []


WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from rlvr_core.record.checkpoints import CheckpointStore

    store = CheckpointStore(Path(sys.argv[1]), keep=2)
    newest = store.newest(print)
    step = int(newest.name[4:]) if newest else 0
    print("ready", flush=True)
    while True:
        step += 1

        def fill(path):
            (path / "trainer").mkdir()
            for part in range(4):
                (path / "trainer" / f"{part}").write_bytes(bytes([step % 251]) * 30_000)
            (path / "state").write_text(str(step))

        store.write(step, fill)
        if step % 3 == 0:
            store.write(step, fill)  # over itself, as after a resume
    """
)


def test_kill_9_at_any_moment_leaves_a_valid_newest(tmp_path):
    rng = random.Random(0)
    seen = kills = 0
    while kills < 12 or seen <= 12:  # a busy machine writes fewer checkpoints between two kills
        kills += 1
        assert kills < 200
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        while not (line := writer.stdout.readline()).startswith("ready"):
            assert line, "the writer died by itself"
            raise AssertionError(f"a checkpoint was damaged: {line}")
        time.sleep(rng.uniform(0.0, 0.25))
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0]
        assert rest == ""
        newest = CheckpointStore(tmp_path, keep=2).newest(silent)
        if newest is None:
            assert seen == 0
            continue
        step = int((newest / "state").read_text())
        assert newest.name == f"step{step:06d}"
        assert step >= seen
        seen = step


@pytest.mark.parametrize("library", [False, True])
def test_a_really_full_disk(small_disk, library):
    store = CheckpointStore(small_disk / "checkpoints", keep=2)
    store.write(1, filler(1, 300_000))

    def fill(path):
        if library:
            torch = pytest.importorskip("torch")
            from safetensors.torch import save_file

            save_file({"weight": torch.zeros(250_000)}, path / "model.safetensors")
        else:
            (path / "model.safetensors").write_bytes(b"x" * 1_000_000)

    with pytest.raises(RunError, match="disk is full") as caught:
        store.write(2, fill)
    told = str(caught.value)
    assert "free" in told
    assert "the last good checkpoint is" in told
    assert store.newest(silent).name == "step000001"
    assert names(store) == ["latest", "step000001"]
    store.write(2, filler(2, 300_000))
