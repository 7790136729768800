"""Rows from the Hugging Face hub, and the loader ``core/hub`` that makes problems of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rlvr_core.api import DataError, MachineError, Problem
from rlvr_core.data.rows import RowMapping, problems
from rlvr_core.data.uri import cache_uri, is_uri, local_path

_log = logging.getLogger(__name__)

_SAVED = ("dataset_dict.json", "state.json")
"""Files written by ``save_to_disk``; a folder of plain data files has neither."""


def hub_rows(
    repo: str, config: str | None, split: str, revision: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a data set on the hub, or of a folder laid out like one or saved by ``save_to_disk``.

    Inside ``cached_at`` a data set of the hub is looked for there first.

    Args:
        repo: ``owner/name``, a folder, or a URI that a plugin opens.
        config: Name of its configuration, where it has several.
        split: E.g. ``train``.
        revision: Branch, tag or commit; a commit makes a run repeatable.

    Yields:
        Row number, counted from 1, and the row.

    Raises:
        DataError: If there is no such data set, configuration or split.
        MachineError: If the hub cannot be reached and the data is not in the cache.
    """
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    if is_uri(repo):
        repo = str(local_path(repo))
    folder = _cached(repo, config, split, revision) or Path(repo).expanduser()
    if is_saved(folder):
        yield from saved_rows(folder, split)
        return
    named = f"{repo} ({config})" if config else repo
    where = f"{named}, split {split}" + (f", revision {revision}" if revision else "")
    try:
        rows = datasets.load_dataset(repo, config, split=split, revision=revision)
    except (DatasetNotFoundError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"cannot load the data set: {_first_line(error)}", where=where) from error
    except OSError as error:
        raise MachineError(
            f"cannot reach the data set: {_first_line(error)}",
            where=where,
            remedy=(
                "check the network and HF_ENDPOINT, or download it elsewhere and copy HF_HOME here",
                "or point core/jsonl at a file with the same rows",
            ),
        ) from error
    for number, row in enumerate(rows, 1):
        yield number, dict(row)


def cached_uri(base: str, repo: str, config: str | None, split: str, revision: str | None) -> str:
    """Return the folder below ``base`` to search for a split of a Hub data set."""
    leaf = f"{split}@{revision}" if revision else split
    return f"{base.rstrip('/')}/{repo.replace('/', '--')}/{config or 'default'}/{leaf}"


def _cached(repo: str, config: str | None, split: str, revision: str | None) -> Path | None:
    """The folder of a split that the cache has; None where there is no cache, or it lacks it."""
    base = cache_uri()
    if base is None or Path(repo).expanduser().exists():
        return None
    uri = cached_uri(base, repo, config, split, revision)
    try:
        folder = local_path(uri)
    except DataError:
        folder = None
    except MachineError as error:
        _log.warning("data.cache_uri cannot be read, so the hub is asked: %s", error)
        return None
    if folder is None or not folder.exists():
        _log.warning("data.cache_uri has no %s, so the hub is asked", uri)
        return None
    return folder


def is_saved(folder: Path) -> bool:
    """Whether ``save_to_disk`` wrote this folder."""
    return any((folder / mark).is_file() for mark in _SAVED)


def saved_rows(folder: Path, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a folder that ``save_to_disk`` wrote, counted from 1.

    Raises:
        DataError: If it cannot be read, or has no such split.
    """
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"the saved data set cannot be read: {_first_line(error)}", where=str(folder)
        ) from error
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            raise DataError(
                f"the saved data set has no split '{split}'",
                where=str(folder),
                remedy=f"it has: {', '.join(saved)}",
            )
        saved = saved[split]
    for number, row in enumerate(saved, 1):
        yield number, dict(row)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class Hub:
    """Problems from the Hugging Face hub."""

    class Config(RowMapping):
        """Options of ``core/hub``."""

        repo: str
        """``owner/name`` of the data set, or a folder or URI: laid out like one, or saved by
        ``save_to_disk``."""
        config: str | None = None
        """Configuration of the data set, if it has several."""
        split: str = "train"
        """Split to load."""
        revision: str | None = None
        """Branch, tag or commit; give a commit to pin the data."""
        name: str | None = None
        """Name of the data set, in ids and metrics; ``<repo name>_<split>`` if absent."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems.

        Raises:
            DataError: If the data set or a row of it is unusable.
            MachineError: If the hub cannot be reached.
        """
        config = self._config
        name = config.name or f"{config.repo.rstrip('/').rpartition('/')[2]}_{config.split}"
        rows = islice(
            hub_rows(config.repo, config.config, config.split, config.revision), config.limit
        )
        where = f"{config.repo} {config.split}"
        yield from problems(
            ((f"{where}, row {number}", row) for number, row in rows), config, name, source=where
        )
