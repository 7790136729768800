"""Locations of data and models: a path, a ``file://`` URI, or a URI that a plugin opens."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rlvr_core.api import TINY, DataError, MachineError
from rlvr_core.plugins.files import cache_folder

__all__ = [
    "cache_folder",
    "cache_uri",
    "cached_at",
    "check_model_path",
    "is_uri",
    "local_path",
    "model_path",
]

if TYPE_CHECKING:
    from rlvr_core.plugins.host import Host

_CACHE: ContextVar[str | None] = ContextVar("data.cache_uri", default=None)
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


@contextlib.contextmanager
def cached_at(uri: str | None) -> Iterator[None]:
    """Within the block, look for Hub datasets at ``uri`` first; None uses the Hub only."""
    before = _CACHE.set(uri)
    try:
        yield
    finally:
        _CACHE.reset(before)


def cache_uri() -> str | None:
    """Return the URI to search first for Hub datasets; None outside of ``cached_at``."""
    return _CACHE.get()


def is_uri(text: str) -> bool:
    """Whether a text is a URI (``s3://…``) rather than a path."""
    return _SCHEME.match(text) is not None


def local_path(uri: str) -> Path:
    """Return a local path to the content of ``uri``.

    Args:
        uri: A path (``~`` is the home folder), ``file:///path``, or a URI that a plugin's
            ``open_uri`` handles, such as ``s3://bucket/key``.

    Raises:
        DataError: If a ``file://`` URI names another machine.
        PluginError: If no installed plugin opens such URIs; names the plugin to install.
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
    from rlvr_core.plugins.host import load_host

    return load_host().ask_uri(uri, cache_folder())


def model_path(reference: str, host: Host) -> str:
    """Return a model's local folder, created or fetched if needed; else the Hub id as it is.

    Args:
        reference: A folder, a hub id, a URI, or a name that a plugin's ``locate_model`` resolves.
        host: The loaded plugins.

    Raises:
        RlvrError: If the model cannot be created or fetched.
    """
    folder = host.locate_model(reference)
    if folder is None and is_uri(reference):
        folder = local_path(reference)
    return reference if folder is None else str(folder)


_OTHER = "give an existing folder or a hub id (org/name)"
_MADE = f"; {TINY}math/arithmetic is a tiny model made on the spot"


def check_model_path(path: str, where: str = "model.path") -> None:
    """Refuse early a path that looks like a folder and is not one.

    Args:
        path: Folder or hub id.
        where: Where the user named it.

    Raises:
        MachineError: If the folder is missing, or is no Hugging Face model folder.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            if (folder / "adapter_config.json").is_file():
                raise MachineError(
                    f"'{path}' is a LoRA adapter, not a model",
                    where=where,
                    remedy=f"rlvr export {path} OUT --merge makes the model that it stands for",
                )
            raise MachineError(
                f"'{path}' has no config.json: it is not a model folder",
                where=where,
                remedy="name a folder that transformers can load, or fetch its files again",
            )
        return
    parts = path.split("/")
    if path.startswith(("/", ".", "~")) or len(parts) != 2 or not all(parts):
        raise MachineError(
            f"model folder '{path}' does not exist",
            where=where,
            remedy=(f"looked in {folder.absolute()}", _OTHER + _MADE * (where == "model.path")),
        )
