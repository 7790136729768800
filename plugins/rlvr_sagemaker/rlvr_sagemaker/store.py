"""Files on S3: put, and seen to be there; fetched, and seen to be whole.

boto3's transfer manager moves the parts. Every object carries the SHA-256 of its content, against
which a fetched file is compared; after an upload size, SHA-256 and the ETag, which S3 makes from
what it has really got, are compared with the file's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlvr_core.api import StoredFile
from rlvr_sagemaker.aws import TornError, call, client, is_gone, is_refused
from rlvr_sagemaker.place import Place

PART = 16 * 1024 * 1024
"""Bytes of a part; larger where a file would have more parts than S3 takes."""

_MOST_PARTS = 9000
_AT_ONCE = 8


class S3Store:
    """The objects under one place, by the rest of their keys.

    Attributes:
        place: Where they are.
        moved: Bytes read and sent so far, see ``Store``.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.moved = 0

    def list(self, prefix: str = "") -> dict[str, StoredFile]:
        """See ``Store.list``."""
        begin = self.place.prefix

        def act() -> dict[str, StoredFile]:
            found = {}
            pages = client("s3").get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.place.bucket, Prefix=begin + prefix):
                for one in page.get("Contents", ()):
                    key = one["Key"][len(begin) :]
                    if key and not key.endswith("/"):  # a folder made in the console
                        found[key] = StoredFile(one["Size"], one["ETag"].strip('"'))
            return found

        return call(f"listing {self.place}", act)

    def head(self, key: str) -> Head | None:
        """What S3 says of an object; None if there is none."""

        def act() -> Head | None:
            try:
                return _head(client("s3").head_object(Bucket=self.place.bucket, Key=self._key(key)))
            except Exception as error:
                if self._missing(key, error):
                    return None
                raise

        return call(f"looking at {self.place / key}", act)

    def put(self, path: Path, key: str, size: int | None = None) -> None:
        """See ``Store.put``."""
        call(f"writing {self.place / key}", lambda: self._put(path, key, size))

    def get(self, key: str, path: Path, told: Callable[[int], None] | None = None) -> None:
        """See ``Store.get``."""
        call(f"reading {self.place / key}", lambda: self._get(key, path, told))

    def delete(self, keys: Sequence[str]) -> None:
        """See ``Store.delete``."""

        def act(some: Sequence[str]) -> None:
            answer = client("s3").delete_objects(
                Bucket=self.place.bucket,
                Delete={"Objects": [{"Key": self._key(key)} for key in some], "Quiet": True},
            )
            for error in answer.get("Errors", ()):
                raise TornError(f"{error.get('Key')}: {error.get('Code')} {error.get('Message')}")

        for begin in range(0, len(keys), 1000):
            some = keys[begin : begin + 1000]
            call(f"deleting in {self.place}", lambda some=some: act(some))  # type: ignore[misc]

    def _key(self, key: str) -> str:
        return self.place.prefix + key

    def _missing(self, key: str, error: BaseException) -> bool:
        """Whether an object is not there.

        To whoever may list a folder only, S3 answers 403 for what is not in it, and not 404; so
        it is then looked for in the list.
        """
        return is_gone(error) or (is_refused(error) and key not in self.list(key))

    def _moves(self, count: int) -> None:
        self.moved += count

    def _put(self, path: Path, key: str, size: int | None) -> None:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size if size is None else size
            part = max(PART, math.ceil(length / _MOST_PARTS))
            sums = checksums(file, length, part, self._moves)
            client("s3").upload_fileobj(
                _First(file, length),
                self.place.bucket,
                self._key(key),
                ExtraArgs={"Metadata": {"sha256": sums.sha256}},
                Callback=self._moves,
                Config=_config(part),
            )
        found = self.head(key)
        if found is None:
            raise TornError("it is not there after it was written")
        same = found.size == length and found.sha256 == sums.sha256
        if not same or (not found.kms and found.etag != sums.etag):
            raise TornError(f"it is not what was written: {found} and not {sums}")

    def _get(self, key: str, path: Path, told: Callable[[int], None] | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{threading.get_ident()}")
        try:
            with temporary.open("wb") as file:
                found = self._content(key, file, told)
                file.flush()
                os.fsync(file.fileno())
            with temporary.open("rb") as file:
                sums = checksums(file, temporary.stat().st_size, PART)
            if not found.fits(sums):
                raise TornError(f"it is not what is there: {sums} and not {found}")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _content(self, key: str, file: IO[bytes], told: Callable[[int], None] | None) -> Head:
        """Read an object: in one request, or a large one in parts."""
        where = {"Bucket": self.place.bucket, "Key": self._key(key)}
        try:
            answer = client("s3").get_object(**where)
        except Exception as error:
            if self._missing(key, error):
                raise FileNotFoundError(f"{self.place / key} is not there") from error
            raise
        found = _head(answer)
        with contextlib.closing(answer["Body"]) as body:  # its own enter gives the raw one
            if found.size <= PART:
                for block in body.iter_chunks(1 << 20):
                    file.write(block)
                    if told is not None:
                        told(len(block))
                return found
        client("s3").download_fileobj(
            where["Bucket"], where["Key"], file, Callback=told, Config=_config(PART)
        )
        return found


@dataclass(frozen=True, slots=True)
class Sums:
    """Size and checksums of a content.

    Attributes:
        size: In bytes.
        sha256: In hexadecimal.
        etag: As S3 makes it, of parts of the size that was asked for.
        md5: Of the whole.
    """

    size: int
    sha256: str
    etag: str
    md5: str


@dataclass(frozen=True, slots=True)
class Head:
    """What S3 says of an object.

    Attributes:
        size: In bytes.
        etag: Without quotes.
        sha256: What its writer noted; None if it was another tool.
        kms: Whether it is encrypted so that its ETag is no MD5.
    """

    size: int
    etag: str
    sha256: str | None
    kms: bool

    def fits(self, sums: Sums) -> bool:
        """Whether a content is the object's, as far as S3 tells."""
        if self.size != sums.size:
            return False
        if self.sha256 is not None:
            return self.sha256 == sums.sha256
        # of an object in parts S3 tells no checksum of the whole; boto3 has compared each part's
        return self.kms or "-" in self.etag or self.etag == sums.md5


def _head(answer: Mapping[str, Any]) -> Head:
    metadata = {name.lower(): value for name, value in answer["Metadata"].items()}
    return Head(
        answer["ContentLength"],
        answer["ETag"].strip('"'),
        metadata.get("sha256"),
        "kms" in str(answer.get("ServerSideEncryption", "")),
    )


def checksums(
    file: IO[bytes], size: int, part: int, told: Callable[[int], None] | None = None
) -> Sums:
    """Checksums of the first ``size`` bytes; the file is then at its beginning again.

    Args:
        file: The file.
        size: Bytes that count.
        part: Bytes of a part, as it is uploaded.
        told: Told of bytes as they are read.

    Raises:
        TornError: If it has fewer.
    """
    sha, whole = hashlib.sha256(), _md5()
    parts: list[bytes] = []
    left = size
    while left > 0 or not parts:
        one = _md5()
        inside = min(part, left)
        left -= inside
        while inside > 0:
            block = file.read(min(1 << 20, inside))
            if not block:
                raise TornError("the file became shorter while it was read")
            inside -= len(block)
            if told is not None:
                told(len(block))
            for digest in (sha, whole, one):
                digest.update(block)
        parts.append(one.digest())
    file.seek(0)
    etag = whole.hexdigest()
    if size >= part:  # boto3's own rule for when to send parts
        etag = f"{_md5(b''.join(parts)).hexdigest()}-{len(parts)}"
    return Sums(size, sha.hexdigest(), etag, whole.hexdigest())


def _md5(data: bytes = b"") -> Any:
    return hashlib.md5(data, usedforsecurity=False)


def _config(part: int) -> Any:
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(
        multipart_threshold=part, multipart_chunksize=part, max_concurrency=_AT_ONCE
    )


class _First(io.RawIOBase):
    """The first bytes of a file, as if there were no more."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            return self._file.seek(self._size + offset)
        return self._file.seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._file.tell())
        return self._file.read(left if size is None or size < 0 else min(size, left))


def differs(store: S3Store, key: str, path: Path) -> bool:
    """Whether an object is not there, or not what a file is."""
    found = store.head(key)
    if found is None or found.size != path.stat().st_size or found.sha256 is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() != found.sha256
