"""Where data lies: a path, a ``file://`` URI, or a URI that a plugin opens."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rlvr_core.api import DataError
from rlvr_core.host.files import cache_folder

__all__ = ["cache_folder", "cache_uri", "cached_at", "is_uri", "local_path", "model_path"]

if TYPE_CHECKING:
    from rlvr_core.host.host import Host

_CACHE: ContextVar[str | None] = ContextVar("data.cache_uri", default=None)
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


@contextlib.contextmanager
def cached_at(uri: str | None) -> Iterator[None]:
    """Look for data sets of the hub at ``uri`` first, in this block; None looks nowhere else."""
    before = _CACHE.set(uri)
    try:
        yield
    finally:
        _CACHE.reset(before)


def cache_uri() -> str | None:
    """Where data sets of the hub are looked for first; None outside of ``cached_at``."""
    return _CACHE.get()


def is_uri(text: str) -> bool:
    """Whether it is a URI (``s3://…``) and no path."""
    return _SCHEME.match(text) is not None


def local_path(uri: str) -> Path:
    """A local path with the content of ``uri``.

    Args:
        uri: A path (``~`` is the home folder), ``file:///path``, or what a plugin's ``open_uri``
            takes, such as ``s3://bucket/key``.

    Raises:
        DataError: If a ``file://`` URI names another machine.
        PluginError: If no installed plugin opens such URIs; names the one that does.
    """
    if not is_uri(uri):
        return Path(uri).expanduser()
    parts = urlsplit(uri)
    if parts.scheme.lower() == "file":
        if parts.netloc not in ("", "localhost"):
            raise DataError(
                f"{uri} names the machine '{parts.netloc}'",
                remedy="a local file is written file:///folder/file",
            )
        return Path(unquote(parts.path))
    from rlvr_core.host.host import load_host

    return load_host().ask_uri(uri, cache_folder())


def model_path(reference: str, host: Host) -> str:
    """The local folder of a model, made or fetched where need be; a hub id as it is.

    Args:
        reference: A folder, a hub id, a URI, or what a plugin's ``locate_model`` knows.
        host: The plugins.

    Raises:
        RlvrError: If it cannot be made or fetched.
    """
    folder = host.locate_model(reference)
    if folder is None and is_uri(reference):
        folder = local_path(reference)
    return reference if folder is None else str(folder)
