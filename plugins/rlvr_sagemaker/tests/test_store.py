"""S3: what is put is there, what is fetched is whole, whatever the network does."""

from __future__ import annotations

import hashlib
import io
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.stub import Stubber

from rlvr_core.api import ConfigError, DataError, MachineError
from rlvr_sagemaker import aws
from rlvr_sagemaker import store as store_module
from rlvr_sagemaker.cache import Cache
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store, checksums


def written(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def objects(cloud, prefix=""):
    """Every object with its content, read past our own code."""
    cloud.calm()
    client = aws.client("s3")
    return {
        one["Key"]: client.get_object(Bucket=cloud.bucket, Key=one["Key"])["Body"].read()
        for one in client.list_objects_v2(Bucket=cloud.bucket, Prefix=prefix).get("Contents", ())
    }


def test_a_file_goes_there_and_back(store, tmp_path):
    source = written(tmp_path / "a.bin", os.urandom(100_000))
    store.put(source, "deep/a.bin")
    assert store.list() == {"deep/a.bin": store.list("deep/")["deep/a.bin"]}
    assert store.list()["deep/a.bin"].size == 100_000
    told = []
    store.get("deep/a.bin", tmp_path / "new" / "b.bin", told.append)
    assert (tmp_path / "new" / "b.bin").read_bytes() == source.read_bytes()
    assert sum(told) == 100_000
    store.delete(["deep/a.bin", "not-there"])
    assert store.list() == {}
    with pytest.raises(FileNotFoundError):
        store.get("deep/a.bin", tmp_path / "c.bin")


def test_only_the_first_bytes_of_a_file_that_grows(store, tmp_path, cloud):
    store.put(written(tmp_path / "x.jsonl", b"one\ntwo\nthr"), "x.jsonl", 8)
    assert objects(cloud) == {"here/x.jsonl": b"one\ntwo\n"}


@pytest.mark.parametrize("size", [0, 1, 5 << 20, (5 << 20) + 1, (10 << 20) + 17])
def test_etags_are_those_of_s3(store, tmp_path, cloud, monkeypatch, size):
    monkeypatch.setattr(store_module, "PART", 5 << 20)
    source = written(tmp_path / "big.bin", random.Random(size).randbytes(size))
    store.put(source, "big.bin")  # compares them
    assert objects(cloud)["here/big.bin"] == source.read_bytes()
    with source.open("rb") as file:
        assert store.head("big.bin").etag == checksums(file, size, 5 << 20).etag
    store.get("big.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()


def test_a_change_on_the_way_is_noticed(store, tmp_path, cloud, monkeypatch):
    monkeypatch.setattr(aws, "_ATTEMPTS", 2)
    store.put(written(tmp_path / "a", b"good"), "a")
    metadata = {"sha256": hashlib.sha256(b"good").hexdigest()}
    aws.client("s3").put_object(Bucket=cloud.bucket, Key="here/a", Body=b"evil", Metadata=metadata)
    with pytest.raises(MachineError, match="not what is there"):
        store.get("a", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a"]


def test_what_no_attempt_helps_fails_at_once(cloud, tmp_path):
    missing = S3Store(Place("no-such-bucket-of-ours", "x"))
    before = len(cloud.requests)
    with pytest.raises(MachineError, match="NoSuchBucket") as caught:
        missing.list()
    assert "make the bucket first" in str(caught.value)
    assert len(cloud.requests) - before == 1
    with pytest.raises(ConfigError, match="names no bucket"):
        Place.parse("s3:///x")


@pytest.mark.slow
def test_nothing_is_lost_or_torn_while_every_tenth_request_fails(
    store, tmp_path, cloud, monkeypatch
):
    monkeypatch.setattr(store_module, "PART", 5 << 20)
    source = random.Random(1)
    files = {
        f"d{i % 7}/f{i}.bin": written(tmp_path / "out" / str(i), source.randbytes(1 + 37 * i**2))
        for i in range(60)
    }
    files["large.bin"] = written(tmp_path / "out" / "large", source.randbytes(6 << 20))
    cloud.rate = 0.1
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(files[key], key), files))
        assert store.list().keys() == files.keys()
        list(pool.map(lambda key: store.get(key, tmp_path / "in" / key), files))
    faults = {kind: cloud.done[kind] for kind in cloud.kinds}
    assert sum(faults.values()) > 15, faults
    assert {key: path.read_bytes() for key, path in files.items()} == {
        key.removeprefix("here/"): data for key, data in objects(cloud).items()
    }
    for key, path in files.items():
        assert (tmp_path / "in" / key).read_bytes() == path.read_bytes()
    assert not list((tmp_path / "in").rglob(".*"))


KINDS = ("500", "503", "reset", "lost", "timeout", "truncated", "slow", "cut", "altered")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if k == "timeout" else ()) for k in KINDS]
)
def test_each_kind_of_fault_is_survived(store, tmp_path, cloud, kind):
    source = written(tmp_path / "a.bin", os.urandom(50_000))
    cloud.rate, cloud.kinds = 0.3, (kind,)
    for number in range(3):
        store.put(source, f"{number}.bin")
        store.get(f"{number}.bin", tmp_path / "back.bin")
        assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()
    assert len(store.list()) == 3
    assert cloud.done[kind] > 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(b"<LastModified>2", b"<LastModified>:"), (b"<Size>5", b"<Size>u"), (b"<Key>", b"<Kdy>")],
)
def test_an_answer_that_cannot_be_read_is_asked_for_again(
    store, tmp_path, cloud, monkeypatch, right, wrong
):
    store.put(written(tmp_path / "a.bin", os.urandom(50)), "a.bin")
    forward, altered = cloud.forward, []

    def alter(port, handler, body):
        answer, data = forward(port, handler, body)
        if right in data and not altered:
            altered.append(data)
            data = data.replace(right, wrong)
        return answer, data

    monkeypatch.setattr(cloud, "forward", alter)
    assert {key: file.size for key, file in store.list().items()} == {"a.bin": 50}
    assert altered


def test_an_upload_that_is_cut_leaves_nothing_or_everything(store, tmp_path, cloud, monkeypatch):
    """A request body that breaks off half-way, of a whole object and of one part."""
    monkeypatch.setattr(store_module, "PART", 5 << 20)
    monkeypatch.setenv(aws.TIMEOUT, "20")
    monkeypatch.setattr(aws, "_ATTEMPTS", 2)
    aws.client.cache_clear()
    source = written(tmp_path / "big.bin", random.Random(3).randbytes((5 << 20) + 9))
    small = written(tmp_path / "small.bin", b"x" * 100_000)
    cloud.rate, cloud.kinds = 1.0, ("cut",)
    for path in (source, small):
        with pytest.raises(MachineError, match=f"writing s3://.*{path.name}") as caught:
            store.put(path, path.name)
        assert caught.value.exit_code == 4
    assert objects(cloud) == {}
    cloud.rate, cloud.kinds = 0.2, ("cut",)
    monkeypatch.setattr(aws, "_ATTEMPTS", 6)
    aws.client.cache_clear()
    for path in (source, small):
        store.put(path, path.name)
    assert objects(cloud) == {
        "here/big.bin": source.read_bytes(), "here/small.bin": small.read_bytes()
    }  # fmt: skip


def test_a_file_that_grows_while_it_is_sent_is_what_it_was(store, tmp_path, cloud, monkeypatch):
    path = written(tmp_path / "trace.jsonl", b'{"step": 1}\n' * 100)
    real = store_module.checksums

    def checksums(file, *words):
        found = real(file, *words)
        with path.open("ab") as more:
            more.write(b'{"step": 2}\n')
        return found

    monkeypatch.setattr(store_module, "checksums", checksums)
    store.put(path, "trace.jsonl")
    assert objects(cloud) == {"here/trace.jsonl": b'{"step": 1}\n' * 100}


def test_a_clock_that_is_wrong_is_told(cloud, store, monkeypatch):
    monkeypatch.setattr(aws, "_ATTEMPTS", 1)
    aws.client.cache_clear()
    with Stubber(aws.client("s3")) as stub:
        stub.add_client_error("list_objects_v2", "RequestTimeTooSkewed", http_status_code=403)
        with pytest.raises(MachineError, match="clock of this machine is wrong") as caught:
            store.list()
    assert "health page" not in str(caught.value)


# -- the cache ------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "kept")


def test_a_file_is_fetched_once_and_keeps_its_name(store, tmp_path, cloud, cache):
    store.put(written(tmp_path / "rows.jsonl", b"{}\n"), "data/rows.jsonl")
    uri = f"s3://{cloud.bucket}/here/data/rows.jsonl"
    path = cache.path(uri)
    assert (path.name, path.read_bytes()) == ("rows.jsonl", b"{}\n")
    cloud.requests.clear()
    assert cache.path(uri) == path
    assert [method for method, _ in cloud.requests] == ["HEAD"]


def test_what_changes_there_changes_here_and_old_paths_stay(store, tmp_path, cloud, cache):
    uri = f"s3://{cloud.bucket}/here/a.txt"
    store.put(written(tmp_path / "a", b"old"), "a.txt")
    old = cache.path(uri)
    store.put(written(tmp_path / "a", b"new"), "a.txt")
    assert cache.path(uri).read_bytes() == b"new"
    assert old.read_bytes() == b"old"


def test_the_same_content_is_fetched_and_kept_once(store, tmp_path, cloud, cache):
    store.put(written(tmp_path / "a", b"same" * 1000), "one.bin")
    store.put(tmp_path / "a", "two.bin")
    first = cache.path(f"s3://{cloud.bucket}/here/one.bin")
    cloud.requests.clear()
    second = cache.path(f"s3://{cloud.bucket}/here/two.bin")
    assert first.samefile(second)
    assert "GET" not in {method for method, _ in cloud.requests}


def test_a_folder_with_objects_of_other_tools(tmp_path, cloud, cache):
    client = aws.client("s3")
    for key, data in {
        "m/": b"",
        "m/config.json": b"{}",
        "m/sub/w.bin": b"w",
        "mm/x": b"no",
    }.items():
        client.put_object(Bucket=cloud.bucket, Key=key, Body=data)
    for uri in (f"s3://{cloud.bucket}/m", f"s3://{cloud.bucket}/m/"):
        folder = cache.path(uri)
        assert folder.name == "m"
        found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        assert found == {"config.json", "sub/w.bin"}
    cloud.requests.clear()
    cache.path(f"s3://{cloud.bucket}/m")
    assert [method for method, _ in cloud.requests] == ["HEAD", "GET"]
    with pytest.raises(DataError, match="nothing at"):
        cache.path(f"s3://{cloud.bucket}/none")


def test_keys_that_lead_elsewhere_are_refused(cloud, cache):
    aws.client("s3").put_object(Bucket=cloud.bucket, Key="m/../../evil", Body=b"x")
    with pytest.raises(DataError, match="object with the key"):
        cache.path(f"s3://{cloud.bucket}/m")


def test_many_at_once_under_faults(store, tmp_path, cloud):
    for number in range(12):
        store.put(written(tmp_path / "f", bytes([number]) * 30_000), f"model/{number}.bin")
    cloud.rate = 0.1
    caches = [Cache(tmp_path / "kept") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda one: one.path(f"s3://{cloud.bucket}/here/model"), caches))
    assert len(set(folders)) == 1
    for number in range(12):
        assert (folders[0] / f"{number}.bin").read_bytes() == bytes([number]) * 30_000
    assert not list((tmp_path / "kept").rglob(".tmp-*"))


def test_a_damaged_copy_is_fetched_again(store, tmp_path, cloud, cache):
    store.put(written(tmp_path / "a", b"12345"), "a.bin")
    path = cache.path(f"s3://{cloud.bucket}/here/a.bin")
    path.chmod(0o644)
    path.write_bytes(b"123")
    again = cache.path(f"s3://{cloud.bucket}/here/a.bin")
    assert again.read_bytes() == b"12345"


def test_checksums_of_a_file_that_shrinks():
    with pytest.raises(aws.TornError, match="shorter"):
        checksums(io.BytesIO(b"abc"), 5, 16)
