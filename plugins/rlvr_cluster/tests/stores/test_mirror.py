"""run.mirror: what the store holds is whole at every moment, and never in the way of the run."""

import contextlib
import json
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from rlvr_cluster.stores import mirror as mirror_module
from rlvr_cluster.stores.fetch import Fetch, runs_in
from rlvr_cluster.stores.folder_store import FolderStore
from rlvr_cluster.stores.mirror import Mirror
from rlvr_cluster.stores.ownership import TakenError
from rlvr_core.api import (
    ConfigError,
    DataError,
    MachineError,
    RefusedError,
    StoredFile,
)
from rlvr_core.record.checkpoints import CheckpointStore, verify


class Folder(FolderStore):
    """A folder as a store that remembers the order of what is done to it, and can fail."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.done: list[tuple[str, str]] = []
        self.down = False
        self.rate = 0.0
        self.block = threading.Event()
        self.block.set()
        self._random = random.Random(3)

    def _maybe_fail(self) -> None:
        self.block.wait(30)
        if self.down or self._random.random() < self.rate:
            raise MachineError("the store is away")

    def list(self, prefix=""):
        self._maybe_fail()
        return super().list(prefix)

    def put(self, path, key, size=None, expect=None):
        self._maybe_fail()
        tag = super().put(path, key, size, expect)
        self.done.append(("put", key))
        return tag

    def get(self, key, path, told=None):
        self._maybe_fail()
        super().get(key, path, told)

    def delete(self, keys):
        self._maybe_fail()
        super().delete(keys)
        self.done += [("delete", key) for key in keys]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "demo-20250101-000000"
    (folder / "traces").mkdir(parents=True)
    (folder / "run.json").write_text('{"outcome": "running"}')
    (folder / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"st')
    (folder / ".lock").write_text("")
    return folder


@pytest.fixture
def store(tmp_path):
    return Folder(tmp_path / "there")


def save(run, step, *, keep=2, best=False, mark="x"):
    def fill(folder):
        (folder / "trainer").mkdir()
        (folder / "model.bin").write_text(f"{mark}{step}" * 1000)
        (folder / "trainer" / "state.json").write_text(json.dumps({"step": step}))

    checkpoints = CheckpointStore(run / "checkpoints", keep)
    pinned = run / "checkpoints" / "best"
    if pinned.is_symlink():
        checkpoints.pinned = {int(pinned.readlink().name.removeprefix("step"))}
    return checkpoints.write(step, fill, best=best)


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def complete(store):
    return sorted(
        path.name for path in (store.root / "checkpoints").glob("step*") if verify(path) is None
    )


def begin(store, run, *, keep=2, fresh=True, every=0.05):
    mirror = Mirror(store, run, keep=keep, every=every)
    mirror.start(fresh=fresh)
    return mirror


def test_t87_a_checkpoint_is_there_soon_after_it_is_written(store, run):
    mirror = begin(store, run, every=1000)
    save(run, 2)
    assert mirror.changed(checkpoint=True) == []
    until(lambda: complete(store) == ["step000002"])
    keys = [key for what, key in store.done if what == "put"]
    seal = keys.index("checkpoints/step000002/COMPLETE")
    assert seal > keys.index("checkpoints/step000002/trainer/state.json")
    assert keys.index("metrics.jsonl") < keys.index("checkpoints/step000002/model.bin")
    assert mirror.close(5) == []
    assert (store.root / "checkpoints" / "latest").read_text() == "step000002\n"


def test_t97_copies_are_not_told_one_by_one(store, run):
    mirror = begin(store, run, every=0.0)
    for step in range(20):
        save(run, step + 1)
        assert mirror.changed(checkpoint=True) == []
    assert mirror.close(10) == []


def test_growing_files_are_there_up_to_a_whole_line(store, run):
    mirror = begin(store, run)
    mirror.changed()
    until(lambda: (store.root / "run.json").is_file())
    assert (store.root / "metrics.jsonl").read_text() == '{"step": 0}\n{"step": 1}\n'
    assert not (store.root / ".lock").exists()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('ep": 2}\n')
    (run / "run.json").write_text('{"outcome": "finished"}')
    assert mirror.close(5) == []
    assert len((store.root / "metrics.jsonl").read_text().splitlines()) == 3
    assert (store.root / "run.json").read_text() == '{"outcome": "finished"}'


def test_the_newest_and_the_best_stay(store, run):
    mirror = begin(store, run)
    for step in (2, 4, 6, 8):
        save(run, step, best=step == 4)
        mirror.changed(checkpoint=True)
        until(lambda step=step: f"step{step:06d}" in complete(store))
    assert mirror.close(5) == []
    assert complete(store) == ["step000004", "step000006", "step000008"]
    assert (store.root / "checkpoints" / "best").read_text() == "step000004\n"
    gone = [key for what, key in store.done if what == "delete" and "step000002" in key]
    assert gone[0] == "checkpoints/step000002/COMPLETE"


def test_a_store_that_fails_neither_stops_nor_delays_the_run(store, run):
    store.block.clear()  # every request hangs
    mirror = Mirror(store, run, keep=2)
    mirror._thread.start()
    begun = time.perf_counter()
    for step in range(2, 40, 2):
        save(run, step)
        mirror.changed(checkpoint=True)
    waited = time.perf_counter() - begun
    assert waited < 20  # of a hanging request alone it would be 30
    store.down = True
    store.block.set()
    until(lambda: any("store is away" in text for text in mirror.news()))
    store.down = False
    told = mirror.close(20)
    assert complete(store) == ["step000036", "step000038"]
    assert [text for text in told if "works again" in text]
    assert not [text for text in told if "lacks" in text]


def test_t87_a_slow_store_gets_checkpoints_that_are_rotated_away_meanwhile(store, run):
    real = store.put

    def put(path, key, size=None, expect=None):
        if key.endswith("model.bin"):
            time.sleep(0.3)  # three checkpoints long
        return real(path, key, size, expect)

    store.put = put
    mirror = begin(store, run, keep=1)
    arrived = []
    for step in range(1, 21):
        save(run, step, keep=1)
        mirror.changed(checkpoint=True)
        time.sleep(0.1)
        arrived += [name for name in complete(store) if name not in arrived]
    assert mirror.close(20) == []
    assert len(arrived) >= 2
    assert complete(store) == ["step000020"]
    assert not (run / ".mirror" / "step000020").exists()


def test_what_has_arrived_of_a_checkpoint_is_not_sent_again(store, run, monkeypatch):
    monkeypatch.setattr(mirror_module, "_LONGEST_WAIT", 0.02)
    real, left = store.put, [3]

    def put(path, key, size=None, expect=None):
        if key.endswith("state.json") and left[0]:
            left[0] -= 1
            raise MachineError("away")
        return real(path, key, size, expect)

    store.put = put
    mirror = begin(store, run)
    save(run, 2)
    mirror.changed(checkpoint=True)
    told = mirror.close(20)
    assert complete(store) == ["step000002"]
    assert [key for _, key in store.done].count("checkpoints/step000002/model.bin") == 1
    assert not [text for text in told if "lacks" in text]


def test_what_never_arrives_is_told_with_the_way_to_send_it(store, run):
    store.down = True
    mirror = begin(store, run)
    save(run, 2)
    mirror.changed(checkpoint=True)
    told = mirror.close(0.5)
    assert "lacks checkpoint step000002" in told[-1]
    assert f"rlvr jobs push {run}" in told[-1]
    store.down = False
    Mirror(store, run, keep=2).once()
    assert complete(store) == ["step000002"]
    assert (store.root / "run.json").is_file()


def test_an_error_of_our_own_does_not_end_the_mirror(store, run, monkeypatch):
    monkeypatch.setattr(mirror_module, "_LONGEST_WAIT", 0.05)
    mirror = begin(store, run)
    real, failing = store.put, [True]

    def put(path, key, size=None, expect=None):
        if failing:
            raise ZeroDivisionError("a bug")
        return real(path, key, size, expect)

    store.put = put
    told = []
    until(lambda: told.extend(mirror.changed(checkpoint=True)) or told)
    assert "ZeroDivisionError: a bug" in told[0]
    failing.clear()
    assert not [text for text in mirror.close(10) if "lacks" in text]


@pytest.mark.parametrize("seed", range(1))
def test_nothing_is_lost_or_torn_while_requests_fail(store, run, monkeypatch, seed):
    monkeypatch.setattr(mirror_module, "_LONGEST_WAIT", 0.02)
    store.rate, store._random = 0.1, random.Random(seed)
    mirror = begin(store, run, every=0.0)
    torn = []
    for step in range(1, 30):
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step}) + "\n")
        if step % 3 == 0:
            save(run, step, best=step == 9)
        mirror.changed(checkpoint=step % 3 == 0)
        for path in (store.root / "checkpoints").glob("step*"):
            wrong = verify(path) if (path / "COMPLETE").is_file() else None
            torn += [wrong] if wrong and (path / "COMPLETE").is_file() else []
        time.sleep(0.01)
    told = mirror.close(10)
    assert not [text for text in told if "lacks" in text]
    assert torn == []
    assert complete(store) == ["step000009", "step000024", "step000027"]
    assert (store.root / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_a_step_that_is_written_again_replaces_the_old_one(store, run):
    save(run, 2, mark="old")
    first = begin(store, run)
    assert first.close(5) == []
    again = begin(store, run, fresh=False)
    save(run, 2, mark="new")
    assert again.close(5) == []
    assert complete(store) == ["step000002"]
    assert "new2" in (store.root / "checkpoints/step000002/model.bin").read_text()


def test_a_resumed_run_sends_only_what_is_new_and_takes_cut_segments_away(store, run):
    save(run, 2)
    (run / "traces" / "rollouts.0001.jsonl.gz").write_bytes(b"segment")
    (run / "traces" / "rollouts.jsonl").write_text("{}\n")
    assert begin(store, run).close(5) == []
    (run / "traces" / "rollouts.0001.jsonl.gz").unlink()
    store.done.clear()
    assert begin(store, run, fresh=False).close(5) == []
    assert not [key for what, key in store.done if what == "put" and "model.bin" in key]
    assert not (store.root / "traces" / "rollouts.0001.jsonl.gz").exists()


def test_an_outage_that_turns_into_a_refusal_is_told_as_one(store, run, monkeypatch):
    monkeypatch.setattr(mirror_module, "_LONGEST_WAIT", 0.02)
    mirror = begin(store, run)
    store.down = True
    told = []
    until(lambda: told.extend(mirror.changed(checkpoint=True)) or told)
    assert ["the store is away" in line for line in told] == [True]

    def refuse(prefix=""):
        raise RefusedError("AccessDenied")

    store.down, store.list = False, refuse
    until(lambda: told.extend(mirror.changed(checkpoint=True)) or len(told) > 1)
    assert "AccessDenied" in told[1]
    time.sleep(0.2)
    assert mirror.news() == []  # nine more attempts, and no more words


def test_a_folder_that_is_deleted_takes_nothing_from_the_store(store, run):
    for step in (2, 4, 6):
        save(run, step, keep=3, best=step == 2)
    mirror = begin(store, run, keep=1)
    mirror.changed(checkpoint=True)
    until(lambda: {"step000002", "step000006"} <= set(complete(store)))
    until(lambda: (store.root / "metrics.jsonl").exists())
    until(lambda: (store.root / "checkpoints" / "best").exists())
    before = store.list().keys()
    while run.exists():  # the mirror writes there too
        shutil.rmtree(run, ignore_errors=True)
    told = []
    gone = "demo-20250101-000000 has been deleted or moved"
    until(
        lambda: told.extend(mirror.changed(checkpoint=True)) or any(gone in line for line in told)
    )
    (run / "traces").mkdir(parents=True)  # as by a run that ends, and notes its outcome
    (run / "run.json").write_text('{"outcome": "failed"}')
    mirror.close(5)
    # one that was neither the newest nor the best may have been rotated away
    assert store.list().keys() >= {key for key in before if "step000004" not in key}
    assert {"step000002", "step000006"} <= set(complete(store))


@pytest.mark.parametrize("seed", range(8))
def test_a_folder_may_be_deleted_at_any_moment_of_a_copy(store, run, seed, monkeypatch):
    """Deleted between two requests to the store, ``run.json`` first or last."""
    for step in (2, 4, 6):
        save(run, step, keep=3, best=step == 2)
    Mirror(store, run, keep=2).once()
    before = {key for key in store.list() if not key.startswith(".")}
    save(run, 8, keep=3)
    (run / "metrics.jsonl").write_text("{}\n{}\n{}\n")
    left, fail = random.Random(seed).randrange(1, 12), store._maybe_fail

    def delete_then():
        nonlocal left
        left -= 1
        if left == 0:
            shutil.rmtree(run)
        fail()

    monkeypatch.setattr(store, "_maybe_fail", delete_then)
    with contextlib.suppress(RefusedError, FileNotFoundError):
        Mirror(store, run, keep=2).once()
    monkeypatch.undo()
    # a checkpoint that is older than those to be kept may have been deleted before
    assert store.list().keys() >= {key for key in before if "step000004" not in key}
    assert "step000002" in complete(store)


def test_another_runs_copy_is_never_written_over(store, run):
    store.put(run / "run.json", "run.json")
    with pytest.raises(ConfigError, match="already holds another run"):
        begin(store, run)


@pytest.mark.parametrize(
    ("listings", "asked", "refused"),
    [
        ([set()], 1, False),
        ([{"a"}, set()], 2, False),
        ([{"a", "b"}, {"b"}], 2, True),
        ([{"a"}, {"b"}], 2, False),
    ],
)
def test_what_is_new_in_a_listing_has_to_be_in_a_second(
    store, run, monkeypatch, listings, asked, refused
):
    mirror = Mirror(store, run, keep=2)
    answers = [dict.fromkeys(listing, StoredFile(1, "tag")) for listing in listings]
    monkeypatch.setattr(store, "list", lambda: answers.pop(0))
    with pytest.raises(TakenError, match=r"as b\n") if refused else contextlib.nullcontext():
        mirror._nothing_newer()
    assert len(listings) - len(answers) == asked


# -- and back -------------------------------------------------------------------------------------


@pytest.fixture
def sent(store, run):
    for step in (2, 4, 6):
        save(run, step, keep=3, best=step == 2)
    Mirror(store, run, keep=3).once()
    return store


def test_t87_a_run_comes_back_whole(sent, run, tmp_path):
    back = tmp_path / "back"
    fetch = Fetch(sent, back, "last")
    fetch.run()
    names = sorted(path.name for path in (back / "checkpoints").iterdir())
    assert names == ["best", "latest", "step000002", "step000006"]
    store = CheckpointStore(back / "checkpoints", 3)
    assert store.newest(pytest.fail) == back / "checkpoints" / "step000006"
    assert (back / "checkpoints" / "best").readlink() == Path("step000002")
    assert Fetch(sent, back, "last").files == 0
    assert Fetch(sent, back, "all").files == 3
    assert Fetch(sent, tmp_path / "x", "none").wanted == {
        "run.json",
        "metrics.jsonl",
    }


@pytest.mark.parametrize("name", [".owner.json", "metrics.jsonl", "run.json"])
@pytest.mark.parametrize("which", range(6))
def test_a_bit_that_flips_in_a_listing_decides_nothing(sent, tmp_path, monkeypatch, name, which):
    """A listing has no checksum: the name of a file is another one in one of them."""
    look, left = sent.list, which

    def flipped(prefix=""):
        nonlocal left
        found = look(prefix)
        if name in found:
            left -= 1
            if left == -1:
                found[name.replace("j", "n")] = found.pop(name)
        return found

    monkeypatch.setattr(sent, "list", flipped)
    fetched = tmp_path / "fetched"
    Fetch(sent, fetched, "last", place="p").run()
    assert (fetched / "metrics.jsonl").is_file()
    assert (fetched / "run.json").is_file()
    Mirror(sent, fetched, keep=3, place="p", request="1").once()
    monkeypatch.undo()
    assert {"metrics.jsonl", "run.json", ".owner.json"} <= sent.list().keys()


def test_what_changed_is_fetched_again(sent, run, tmp_path):
    back = tmp_path / "back"
    Fetch(sent, back, "none").run()
    time.sleep(0.01)
    (sent.root / "metrics.jsonl").write_text("longer than before\n" * 3)
    again = Fetch(sent, back, "none")
    assert again.files == 1
    again.run()
    assert (back / "metrics.jsonl").read_text() == "longer than before\n" * 3


def test_a_fetch_that_is_cut_off_leaves_no_checkpoint_that_looks_whole(sent, tmp_path):
    back = tmp_path / "back"
    real = sent.get

    def get(key, path, told=None):
        if key == "checkpoints/step000006/model.bin":
            raise MachineError("away")
        real(key, path, told)

    fetch = Fetch(sent, back, "all", at_once=1)
    sent.get = get
    with pytest.raises(MachineError):
        fetch.run()
    assert CheckpointStore(back / "checkpoints", 3).complete() == []
    sent.get = real
    Fetch(sent, back, "all").run()
    assert len(CheckpointStore(back / "checkpoints", 3).complete()) == 3


def test_what_is_rotated_away_meanwhile_is_left_out(sent, tmp_path):
    fetch = Fetch(sent, tmp_path / "back", "all")
    sent.delete(sorted(key for key in sent.list() if "step000004" in key))
    fetch.run()
    found = CheckpointStore(tmp_path / "back" / "checkpoints", 3).complete()
    assert [path.name for path in found] == ["step000006", "step000002"]


def test_segments_that_were_cut_off_there_go_here(sent, tmp_path):
    back = tmp_path / "back"
    (sent.root / "traces").mkdir()
    (sent.root / "traces" / "rollouts.0001.jsonl.gz").write_bytes(b"x")
    Fetch(sent, back, "none").run()
    (back / "notes.txt").write_text("mine")
    (sent.root / "traces" / "rollouts.0001.jsonl.gz").unlink()
    Fetch(sent, back, "none").run()
    assert not (back / "traces" / "rollouts.0001.jsonl.gz").exists()
    assert (back / "notes.txt").exists()


def test_a_name_that_leads_elsewhere_is_refused(store, run, tmp_path):
    store.put(run / "run.json", "run.json")
    real = store.list
    store.list = lambda prefix="": real(prefix) | {"../evil": StoredFile(1, "x")}
    with pytest.raises(DataError, match="no run writes"):
        Fetch(store, tmp_path / "back", "none")


def test_runs_of_a_store_by_age(tmp_path, run):
    store = Folder(tmp_path / "several")
    for name in ("b-20250102-000000", "a-20250103-000000", "z-20250101-000000"):
        store.put(run / "run.json", f"{name}/run.json")
    assert runs_in(store) == ["z-20250101-000000", "b-20250102-000000", "a-20250103-000000"]


# -- what a review found --------------------------------------------------------------------------


def test_a_checkpoint_is_never_sealed_ahead_of_the_records_it_counts(store, run):
    """One that is finished while files are copied waits for the round that has its records."""
    mirror = Mirror(store, run, keep=2)
    real, once = store.put, [True]

    def put(path, key, size=None, expect=None):
        tag = real(path, key, size, expect)
        if key == "run.json" and once:  # the last of the files
            once.clear()
            with (run / "metrics.jsonl").open("a") as file:
                file.write('ep": 2}\n')
            save(run, 2)
        return tag

    store.put = put
    mirror.once()
    assert complete(store) == []
    mirror.once()
    assert complete(store) == ["step000002"]
    assert len((store.root / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_large_file_that_goes_on_moving_is_not_given_up(store, run):
    """It takes several times the limit; a store that is stuck gets no more than the limit."""
    real, store.moved = store.put, 0

    def put(path, key, size=None, expect=None):
        if key == "metrics.jsonl":
            for _ in range(30):
                time.sleep(0.1)
                store.moved += 1
        return real(path, key, size, expect)

    store.put = put
    mirror = begin(store, run)
    assert not [text for text in mirror.close(1.5) if "lacks" in text]
    assert (store.root / "metrics.jsonl").is_file()


def test_bytes_that_arrive_nowhere_do_not_keep_a_run_for_ever(store, run, monkeypatch):
    monkeypatch.setattr(mirror_module, "_LONGEST_WAIT", 0.02)
    store.moved = 0

    def put(path, key, size=None, expect=None):
        store.moved += 1
        raise MachineError("away")

    store.put = put
    mirror = begin(store, run)
    assert [text for text in mirror.close(0.5) if "lacks" in text]
    assert mirror._failures >= mirror_module._TRIES
    store.put = Folder.put.__get__(store)


def test_the_folder_says_whether_the_store_has_everything(store, run):
    mark = run / mirror_module.BEHIND
    mirror = begin(store, run)
    assert mark.is_file()
    store.down = True
    mirror.close(0.3)
    assert mark.is_file()
    store.down = False
    Mirror(store, run, keep=2).once()
    assert not mark.exists()
    assert begin(store, run, fresh=False).close(10) == []
    assert not mark.exists()
