"""Files on S3: uploads and downloads are verified.

Every object carries the SHA-256 of its content, against which a fetched file is compared; after an
upload size, SHA-256 and the ETag, which S3 makes from what it has really got, are compared with the
file's own. Writing on a condition (``If-Match``, ``If-None-Match``) is S3's own comparison; an
answer that was lost, to it or to the end of an upload in parts, is looked up.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlvr_core.api import ChangedError, StoredFile
from rlvr_sagemaker.aws import TornError, call, client, code_of, is_gone, is_refused, is_unmet
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
            files = {}
            pages = client("s3").get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.place.bucket, Prefix=begin + prefix):
                for entry in page.get("Contents", ()):
                    key = entry["Key"][len(begin) :]
                    if key and not key.endswith("/"):  # a folder made in the console
                        files[key] = StoredFile(entry["Size"], entry["ETag"].strip('"'))
            return files

        return call(f"listing {self.place}", act)

    def folders(self) -> Sequence[str]:
        """See ``Store.folders``."""
        begin = self.place.prefix

        def act() -> list[str]:
            pages = client("s3").get_paginator("list_objects_v2")
            listing = pages.paginate(Bucket=self.place.bucket, Prefix=begin, Delimiter="/")
            folders = (
                entry["Prefix"] for page in listing for entry in page.get("CommonPrefixes", ())
            )
            return [folder[len(begin) :].rstrip("/") for folder in folders]

        return call(f"listing {self.place}", act)

    def head(self, key: str) -> Head | None:
        """Return S3's metadata of an object; None if it does not exist."""

        def act() -> Head | None:
            try:
                return _head(client("s3").head_object(Bucket=self.place.bucket, Key=self._key(key)))
            except Exception as error:
                if self._missing(key, error):
                    return None
                raise

        return call(f"looking at {self.place / key}", act)

    def put(self, path: Path, key: str, size: int | None = None, expect: str | None = None) -> str:
        """See ``Store.put``."""
        return call(f"writing {self.place / key}", lambda: self._put(path, key, size, expect))

    def get(self, key: str, path: Path, progress: Callable[[int], None] | None = None) -> None:
        """See ``Store.get``."""
        call(f"reading {self.place / key}", lambda: self._get(key, path, progress))

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

    def _put(self, path: Path, key: str, size: int | None, expect: str | None) -> str:
        condition = (
            {} if expect is None else {"IfMatch": expect} if expect else {"IfNoneMatch": "*"}
        )
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size if size is None else size
            part = max(PART, math.ceil(length / _MOST_PARTS))
            sums = checksums(file, length, part, self._moves)
            what = {"Bucket": self.place.bucket, "Key": self._key(key)}
            noted = {"sha256": sums.sha256}
            try:
                if length < part:
                    body = _read(file.fileno(), 0, length)
                    client("s3").put_object(**what, Body=body, Metadata=noted, **condition)
                    self._moves(length)
                else:
                    self._put_parts(what, file.fileno(), length, part, noted, condition)
            except Exception as error:
                if not is_unmet(error) and not (expect and is_gone(error)):
                    raise
                head = self.head(key)
                # an earlier attempt of this call may have gone through, and its answer been lost
                if head is None or not head.fits(sums):
                    if code_of(error) == "NoSuchUpload":
                        raise TornError("the upload is gone, and the object is another") from error
                    there = f"{self.place / key} changed: another process has written it"
                    raise ChangedError(there) from error
        head = self.head(key)
        if head is None:
            raise TornError("it is not there after it was written")
        same = head.size == length and head.sha256 == sums.sha256
        if not same or (not head.kms and head.etag != sums.etag):
            raise TornError(f"it is not what was written: {head} and not {sums}")
        return head.etag

    def _put_parts(
        self,
        what: Mapping[str, Any],
        file: int,
        length: int,
        part: int,
        noted: Mapping[str, str],
        condition: Mapping[str, str],
    ) -> None:
        s3 = client("s3")
        upload = s3.create_multipart_upload(**what, Metadata=noted)["UploadId"]
        which = {**what, "UploadId": upload}

        def send(number: int) -> dict[str, Any]:
            body = _read(file, (number - 1) * part, min(part, length - (number - 1) * part))
            answer = s3.upload_part(**which, PartNumber=number, Body=body)
            self._moves(len(body))
            return {"PartNumber": number, "ETag": answer["ETag"]}

        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                parts = list(pool.map(send, range(1, max(1, math.ceil(length / part)) + 1)))
            s3.complete_multipart_upload(**which, MultipartUpload={"Parts": parts}, **condition)
        except Exception as error:
            if code_of(error) != "NoSuchUpload":
                with contextlib.suppress(Exception):  # parts that stay cost money, no more
                    s3.abort_multipart_upload(**which)
            raise

    def _get(self, key: str, path: Path, progress: Callable[[int], None] | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{threading.get_ident()}")
        try:
            with temporary.open("wb") as file:
                head = self._content(key, file, progress)
                file.flush()
                os.fsync(file.fileno())
            with temporary.open("rb") as file:
                sums = checksums(file, temporary.stat().st_size, PART)
            if not head.fits(sums):
                raise TornError(f"it is not what is there: {sums} and not {head}")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _content(self, key: str, file: IO[bytes], progress: Callable[[int], None] | None) -> Head:
        """Read an object: in one request, or a large one in parts."""
        where = {"Bucket": self.place.bucket, "Key": self._key(key)}
        try:
            answer = client("s3").get_object(**where)
        except Exception as error:
            if self._missing(key, error):
                raise FileNotFoundError(f"{self.place / key} is not there") from error
            raise
        head = _head(answer)
        with contextlib.closing(answer["Body"]) as body:  # its own enter gives the raw one
            if head.size <= PART:
                for block in body.iter_chunks(1 << 20):
                    file.write(block)
                    if progress is not None:
                        progress(len(block))
                return head
        client("s3").download_fileobj(
            where["Bucket"], where["Key"], file, Callback=progress, Config=_config(PART)
        )
        return head


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
    """S3's metadata of an object.

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
    file: IO[bytes], size: int, part: int, progress: Callable[[int], None] | None = None
) -> Sums:
    """Checksums of the first ``size`` bytes; the file is then at its beginning again.

    Args:
        file: The file.
        size: Bytes that count.
        part: Bytes of a part, as it is uploaded.
        progress: Takes the numbers of bytes as they are read.

    Raises:
        TornError: If it has fewer.
    """
    sha, whole = hashlib.sha256(), _md5()
    parts: list[bytes] = []
    left = size
    while left > 0 or not parts:
        part_sum = _md5()
        inside = min(part, left)
        left -= inside
        while inside > 0:
            block = file.read(min(1 << 20, inside))
            if not block:
                raise TornError("the file became shorter while it was read")
            inside -= len(block)
            if progress is not None:
                progress(len(block))
            for digest in (sha, whole, part_sum):
                digest.update(block)
        parts.append(part_sum.digest())
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


def _read(file: int, begin: int, size: int) -> bytes:
    """Read a part of a file.

    Raises:
        TornError: If it has become shorter.
    """
    blocks = []
    while size > 0:
        block = os.pread(file, min(size, 1 << 24), begin)
        if not block:
            raise TornError("the file became shorter while it was read")
        blocks.append(block)
        begin, size = begin + len(block), size - len(block)
    return b"".join(blocks)


def differs(store: S3Store, key: str, path: Path) -> bool:
    """Whether an object is not there, or not what a file is."""
    head = store.head(key)
    if head is None or head.size != path.stat().st_size or head.sha256 is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() != head.sha256
