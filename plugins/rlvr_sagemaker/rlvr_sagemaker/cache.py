"""``s3://…`` as a local path: fetched once, kept by content.

    objects/<sha256>      contents, read-only
    seen/<hash>.json      which content an object had under an ETag
    files/<sha256>/NAME   a file under its own name: loaders read its suffix
    folders/<hash>/NAME/  a folder as S3 had it; another state of it is another folder

Files and folders are hard links to contents. A path that was given out never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from filelock import FileLock

from rlvr_core.api import DataError, StoredFile
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.store import S3Store

_AT_ONCE = 8


class Cache:
    """A folder of what was fetched from S3; several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, uri: str) -> Path:
        """A local file or folder with the content of a URI, as it is on S3 now.

        Raises:
            DataError: If nothing is there.
            MachineError: If S3 cannot be asked, or this disk is full.
        """
        place = Place.parse(uri)
        above = S3Store(Place(place.bucket, place.key.rpartition("/")[0]))
        name = place.key.rpartition("/")[2]
        head = above.head(name) if name and not uri.endswith("/") else None
        if head is not None:
            sha = self._content(above, name, StoredFile(head.size, head.etag), head.sha256)
            return self._named(sha, name)
        store = S3Store(place)
        there = store.list()
        if not there:
            raise DataError(
                f"there is nothing at {place}",
                remedy="see what is there: aws s3 ls " + str(place),
            )
        return self._tree(store, there, name or place.bucket)

    def _content(self, store: S3Store, key: str, file: StoredFile, sha: str | None = None) -> str:
        """Fetch a content unless it is there; its SHA-256."""
        whole = str(store.place / key)
        seen = self._folder / "seen" / f"{_hash(whole, file.tag, str(file.size))}.json"
        sha = sha or _noted(seen)
        if sha is not None and self._has(sha, file.size):
            return sha
        seen.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(seen.with_suffix(".lock")):
            sha = sha or _noted(seen)
            if sha is not None and self._has(sha, file.size):
                return sha
            temporary = self._folder / "objects" / f".tmp-{os.getpid()}-{threading.get_ident()}"
            try:
                store.get(key, temporary)
                with temporary.open("rb") as opened:
                    sha = hashlib.file_digest(opened, "sha256").hexdigest()
                temporary.chmod(0o444)
                target = self._object(sha)
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            # by the ETag of the listing: if it changed meanwhile, it is fetched again next time
            _write(seen, json.dumps({"of": whole, "sha256": sha}))
        return sha

    def _tree(self, store: S3Store, there: dict[str, StoredFile], name: str) -> Path:
        for key in there:
            if ".." in PurePosixPath(key).parts or key.startswith("/"):
                raise DataError(f"{store.place} has an object with the key {key!r}")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            shas = pool.map(lambda key: self._content(store, key, there[key]), there)
            contents = dict(zip(there, shas, strict=True))
        words = [part for key, sha in sorted(contents.items()) for part in (key, sha)]
        folder = self._folder / "folders" / _hash(*words) / name
        if folder.is_dir():
            for key, sha in contents.items():
                self._mend(sha, folder.joinpath(*PurePosixPath(key).parts))
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.with_name(f".tmp-{os.getpid()}-{threading.get_ident()}")
        try:
            for key, sha in contents.items():
                target = temporary.joinpath(*PurePosixPath(key).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(self._object(sha), target)
            with FileLock(folder.with_name(".lock")):
                if not folder.is_dir():
                    temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder

    def _named(self, sha: str, name: str) -> Path:
        path = self._folder / "files" / sha / name
        self._mend(sha, path)
        return path

    def _mend(self, sha: str, path: Path) -> None:
        """Put a file there unless it is there and whole."""
        content = self._object(sha)
        if not path.is_file() or path.stat().st_size != content.stat().st_size:
            path.parent.mkdir(parents=True, exist_ok=True)
            _link(content, path)

    def _object(self, sha: str) -> Path:
        return self._folder / "objects" / sha[:2] / sha

    def _has(self, sha: str, size: int) -> bool:
        path = self._object(sha)
        return path.is_file() and path.stat().st_size == size


def _hash(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _noted(seen: Path) -> str | None:
    try:
        return str(json.loads(seen.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}-{threading.get_ident()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _link(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.tmp-{os.getpid()}-{threading.get_ident()}")
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copy(source, temporary)
    temporary.replace(target)
