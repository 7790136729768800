"""One owner of a run's place in a store: whoever is not asked for it does not write there."""

import json
import os
import time
from pathlib import Path

import pytest

from rlvr_cluster.stores import mirror as mirror_module
from rlvr_cluster.stores.fetch import Fetch
from rlvr_cluster.stores.folder_store import FolderStore
from rlvr_cluster.stores.mirror import BehindError, FolderMirror, Mirror
from rlvr_cluster.stores.ownership import OWNER, Claim, NotOwnerError, TakenError
from rlvr_core.api import ChangedError, ConfigError, DataError, RefusedError

NAME = "demo-20250101-000000-abcdef"


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / NAME
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"outcome": "running"}')
    (folder / "resolved.yaml").write_text("run: {name: demo, mirror: 's3://b/runs'}\nx: 1\n")
    (folder / "metrics.jsonl").write_text('{"step": 0}\n')
    return folder


@pytest.fixture
def there(tmp_path):
    """Opens places of a store that is a folder."""
    return lambda place="runs": FolderStore(tmp_path / "there" / place)


def send(there, folder, **how):
    Mirror(there(), folder, keep=2, place="runs", **how).once()


def claim(there):
    return Claim.read((there()._root / OWNER).read_bytes())


def grow(folder, line):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": line}) + "\n")


def fetch(there, to, **how):
    done = Fetch(there(), to, "last", place="runs", **how)
    done.run()
    return done


@pytest.fixture
def home(there, run, tmp_path, monkeypatch):
    """Folder of a later attempt of the job, which has sent; the earlier one's has grown, too."""
    monkeypatch.setenv("RLVR_OWNER", "the-job")
    folder = tmp_path / "home" / NAME
    send(there, run)
    fetch(there, folder)
    grow(folder, 1)
    send(there, folder)
    grow(run, 2)
    return folder


def same_records(one, other):
    """Whether two places have the same metrics."""
    return (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()


def beside(there):
    """The one place beside the run's."""
    (place,) = there()._root.parent.glob("runs-apart-*")
    return place


def test_a_write_is_made_on_its_condition_alone(there, tmp_path):
    store = there()
    source = tmp_path / "one"
    source.write_text("1")
    tag = store.put(source, "a/b", None, "")
    assert store.list()["a/b"].tag == tag
    with pytest.raises(ChangedError):
        store.put(source, "a/b", None, "")
    source.write_text("2")
    second = store.put(source, "a/b", None, tag)
    assert second != tag
    with pytest.raises(ChangedError):
        store.put(source, "a/b", None, tag)
    with pytest.raises(ChangedError):
        store.put(source, "not there", None, tag)
    assert (store._root / "a" / "b").read_text() == "2"
    assert list(store.folders()) == ["a"]


def test_of_many_processes_that_expect_nothing_one_writes(there, tmp_path):
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            source = tmp_path / f"from-{number}"
            source.write_text(str(number))
            try:
                there().put(source, "key", None, "")
            except ChangedError:
                os._exit(1)
            except BaseException:
                os._exit(2)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0] + [1] * 7
    assert (there()._root / "key").read_text() == str(codes.index(0))


def test_a_fetched_run_writes_nowhere_until_it_asks(there, run, tmp_path):
    send(there, run)
    home = tmp_path / "home" / NAME
    fetch(there, home)
    assert "mirror: null" in (home / "resolved.yaml").read_text()
    assert "s3://b/runs" in (there()._root / "resolved.yaml").read_text()
    grow(home, 1)
    with pytest.raises(TakenError, match="belongs to"):
        send(there, home)
    assert (there()._root / "metrics.jsonl").read_text() == '{"step": 0}\n'
    before = claim(there)
    send(there, home, request="once")
    assert claim(there).fence == before.fence + 1
    assert same_records(there()._root, home)
    # a request is granted once: the first owner must ask in its turn, and lacks what is there now
    with pytest.raises(TakenError, match="belongs to"):
        send(there, run, request="once")
    with pytest.raises(TakenError, match="never had"):
        send(there, run, request="another")


def test_who_is_taken_over_goes_on_beside_it(there, run, tmp_path, monkeypatch):
    monkeypatch.setattr(mirror_module, "_LONGEST_WAIT", 0.02)
    job = Mirror(there(), run, keep=2, every=0.01, place="runs", open_store=there)
    job.start(fresh=True)
    job.changed()
    end = time.monotonic() + 20
    while not (there()._root / "run.json").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    home = tmp_path / "home" / NAME
    fetch(there, home)
    grow(home, "home")
    send(there, home, request="please")
    grow(run, "job")
    told = job.close(20)
    assert any("taken over" in text for text in told)
    assert same_records(beside(there), run)
    assert same_records(there()._root, home)
    assert not job.behind


def test_who_was_taken_over_and_is_started_again_stays_beside_it(there, run, tmp_path, monkeypatch):
    # an attempt that was killed while it wrote beside its
    # place forgot so, took the place back as the same job, and wrote over the other's records
    monkeypatch.setenv("RLVR_OWNER", "the-job")
    home = tmp_path / "home" / NAME
    first = Mirror(there(), run, keep=2, place="runs", open_store=there)
    first.once()
    fetch(there, home)
    grow(home, 1)
    send(there, home)
    grow(run, 2)
    first._update(everything=True)
    # killed here, and started again
    grow(run, 3)
    again = Mirror(there(), run, keep=2, place="runs", open_store=there)
    again._update(everything=True)
    assert same_records(there()._root, home)
    assert same_records(beside(there), run)


def test_an_attempt_that_was_killed_before_it_saw_a_later_one_goes_on_beside_it(there, run, home):
    # started again, it took the place back as the same job
    again = Mirror(there(), run, keep=2, place="runs", open_store=there)
    again.start(fresh=False)
    told = [*again.news(), *again.close(20)]
    assert any("a later attempt of this job has gone on" in text for text in told)
    assert same_records(there()._root, home)
    assert same_records(beside(there), run)
    assert not again.behind
    grow(home, 3)
    send(there, home)  # the later attempt is started again: the place is its own
    assert same_records(there()._root, home)


def test_a_push_from_an_attempt_that_a_later_one_has_replaced_is_refused(there, run, home):
    with pytest.raises(NotOwnerError, match="later attempt") as caught:
        send(there, run)
    assert "rlvr jobs fetch" in str(caught.value)
    assert same_records(there()._root, home)


def test_an_attempt_takes_its_place_back_where_nothing_has_been_added(
    there, run, tmp_path, monkeypatch
):
    monkeypatch.setenv("RLVR_OWNER", "the-job")
    home = tmp_path / "home" / NAME
    send(there, run)
    fetch(there, home)
    send(there, home)
    fence = claim(there).fence
    grow(run, 1)
    send(there, run)
    assert claim(there).fence == fence + 1
    assert same_records(there()._root, run)


def test_an_owner_that_knows_nothing_keeps_what_it_finds(there, run, home):
    theirs = (home / "metrics.jsonl").read_bytes()
    (run / ".store.json").unlink()
    send(there, run)
    kept = [p.read_bytes() for p in (there()._root / ".kept").rglob("metrics.jsonl-*")]
    assert kept == [theirs]


def test_a_checkpoint_that_its_owner_was_killed_while_sending_is_nothing_newer(
    there, run, tmp_path
):
    send(there, run)
    home = tmp_path / "home" / NAME
    fetch(there, home)
    half = there()._root / "checkpoints" / "step000003"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{}")
    send(there, home, request="once")
    (half / "config.json").write_text("{}")
    (half / "COMPLETE").write_text('{"files": {"config.json": {}}}')
    with pytest.raises(TakenError, match="never had, as checkpoints/step000003/COMPLETE, "):
        send(there, run, request="another")
    # six digits are the least: step 1,000,000 is after step 999,999
    (run / "checkpoints" / "step1000000").mkdir(parents=True)
    half.rename(half.with_name("step999999"))
    send(there, run, request="another")


def test_progress_at_home_survives_a_second_download(there, run, tmp_path):
    send(there, run)
    home = tmp_path / "home" / NAME
    fetch(there, home)
    grow(home, "home")
    assert fetch(there, home).files == 0  # nothing is newer there
    grow(run, "job")
    send(there, run)
    kept = (home / "metrics.jsonl").read_bytes()
    with pytest.raises(DataError, match="gone on since") as caught:
        fetch(there, home)
    assert "--to" in str(caught.value)
    assert (home / "metrics.jsonl").read_bytes() == kept
    fetch(there, tmp_path / "other")
    assert same_records(tmp_path / "other", run)


def test_what_somebody_else_wrote_is_kept_and_what_is_lost_is_sent_again(there, run):
    send(there, run)
    mirror = Mirror(there(), run, keep=2, every=1000.0, place="runs")
    mirror.start(fresh=False)
    (there()._root / "resolved.yaml").unlink()
    (there()._root / "metrics.jsonl").write_text("a stranger's\n")
    (there()._root / "traces.jsonl").write_text("a stranger's, too\n")
    assert not [text for text in mirror.close(20) if "lacks" in text]
    root = there()._root
    assert (root / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert (root / "resolved.yaml").is_file()
    kept = [path.read_text() for path in (root / ".kept").rglob("*") if path.is_file()]
    assert "a stranger's\n" in kept


def test_attempts_of_one_job_are_one_owner(there, run, tmp_path, monkeypatch):
    monkeypatch.setenv("RLVR_OWNER", "job a")
    send(there, run)
    fresh = tmp_path / "machine-2" / NAME
    fetch(there, fresh)
    grow(fresh, 1)
    send(there, fresh)  # unasked
    monkeypatch.setenv("RLVR_OWNER", "job b")
    other = tmp_path / "machine-3" / NAME
    fetch(there, other)
    with pytest.raises(TakenError, match="job a"):
        send(there, other)


class Refusing(FolderStore):
    def put(self, path, key, size=None, expect=None):
        raise RefusedError("AccessDenied")


def test_a_refusal_is_told_before_the_run_and_not_waited_for_at_its_end(run, tmp_path):
    with pytest.raises(RefusedError):
        FolderMirror("toy://x", lambda uri: Refusing(tmp_path / "there"), 2, print)
    works = FolderStore(tmp_path / "there" / NAME)
    mirror = FolderMirror("toy://x", lambda uri: works, 2, lambda text: None)
    copying = mirror.copying(run, fresh=True)
    copying.__enter__()
    works.put = Refusing(tmp_path).put
    grow(run, 1)
    mirror._changed(checkpoint=True)
    with pytest.raises(BehindError) as caught:  # the clock is the test's own limit of a minute
        copying.__exit__(None, None, None)
    assert caught.value.exit_code == 5
    assert f"rlvr jobs push {run}" in str(caught.value)
    with (
        pytest.raises(ConfigError, match="to itself"),
        FolderMirror(
            run.parent.as_uri(), lambda uri: FolderStore(tmp_path / "z"), 2, print
        ).copying(run, fresh=True),
    ):
        pass


def test_a_store_without_room_is_not_waited_for(run, small_disk):
    """The run goes on; at its end it says what the store lacks, and not minutes later."""
    told = []
    uri = small_disk.as_uri()
    mirror = FolderMirror(uri, lambda uri: FolderStore(Path(uri[7:])), 2, told.append)
    copying = mirror.copying(run, fresh=True)
    copying.__enter__()
    (run / "metrics.jsonl").write_text('{"step": 0}\n' * 100_000)
    mirror._changed(checkpoint=True)
    begun = time.monotonic()
    with pytest.raises(BehindError) as caught:
        copying.__exit__(None, None, None)
    assert time.monotonic() - begun < 60
    assert caught.value.exit_code == 5
    assert any("No space left on device" in text for text in told)
