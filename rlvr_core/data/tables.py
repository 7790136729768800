"""Rows from tables: the loaders ``core/csv`` and ``core/parquet``, and ``core/folder`` of them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_core.api import DataError
from rlvr_core.data.hub import is_saved, saved_rows
from rlvr_core.data.jsonl import FileLoader, FileMapping, Placed, json_rows
from rlvr_core.data.rows import GZIP_MAGIC, RowMapping

_ENDINGS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_SPLIT = re.compile(r"(?:^|[/_.-])(train|test|validation|valid|val|dev|eval)(?=[/_.-]|$)")
_DELIMITERS = re.compile(r"[;\t|]")
_SAME = {"valid": "validation", "val": "validation", "dev": "validation", "eval": "test"}


def csv_rows(path: Path, delimiter: str) -> Placed:
    """Rows of a table of text whose first line names the columns; gzipped or not.

    Every value is text as it stands. A quoted value may go over several lines; the number is that
    of its row's first line.

    Raises:
        DataError: If the file cannot be read, the header is unusable or a row does not fit it.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == GZIP_MAGIC
        opened = gzip.open if packed else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            yield from _records(csv.reader(lines, delimiter=delimiter, strict=True), path)
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8 text: {error.reason}",
            where=str(path),
            remedy=f"convert it from what it was saved in: iconv -f cp1252 -t utf-8 {path.name}",
        ) from error
    except (EOFError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read data: {reason}", where=str(path)) from error


def _records(reader: Any, path: Path) -> Placed:
    header: list[str] | None = None
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"not CSV: {error}", where=where) from error
        if not cells:
            continue  # a blank line
        if header is None:
            header = cells
            twice = sorted({name for name in header if header.count(name) > 1 or not name.strip()})
            if twice:
                what = f"the header names the column {twice[0]!r} twice, or not at all"
                raise DataError(what, where=where)
            if len(header) == 1 and (other := _DELIMITERS.search(header[0])):
                raise DataError(
                    f"the header is one column, {header[0]!r}: values seem to be separated by "
                    f"{other[0]!r}",
                    where=where,
                    remedy=f"say so to the data set: delimiter: {json.dumps(other[0])}",
                )
        elif len(cells) != len(header):
            raise DataError(
                f"the row has {len(cells)} values, and the header {len(header)} columns",
                where=where,
                remedy=f"columns: {', '.join(header)}; a value with the delimiter or a line break "
                "in it is in double quotes",
            )
        else:
            yield where, dict(zip(header, cells, strict=True))


def parquet_rows(path: Path) -> Placed:
    """Rows of a Parquet file. Times become ISO text, decimals their digits.

    Raises:
        DataError: If the file cannot be read or a value has no counterpart in JSON.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    where = f"{path}, row {number}"
                    yield where, {name: _plain(value, name, where) for name, value in row.items()}
    except (pyarrow.ArrowException, OSError) as error:
        text = str(error).strip().splitlines()[0]
        raise DataError(f"cannot read data: {text}", where=str(path)) from error


def _plain(value: Any, name: str, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise DataError(f"field '{name}' is {value}, which is not JSON", where=where)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, name, where) for item in value]
    raise DataError(
        f"field '{name}' holds {type(value).__name__}, which is not JSON",
        where=where,
        remedy="leave the column out of the file, or store it as text",
    )


def file_rows(path: Path) -> Placed:
    """Rows of a file, read as its ending says.

    Raises:
        DataError: If it cannot be read.
    """
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    if ending == "parquet":
        return parquet_rows(path)
    if ending in ("csv", "tsv"):
        return csv_rows(path, "\t" if ending == "tsv" else ",")
    return json_rows(path)


class Csv(FileLoader):
    """Problems from a table of text."""

    class Config(FileMapping):
        """Options of ``core/csv``: the file's first line names the columns; gzipped or not."""

        delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
        """Separator of values; ``"\\t"`` for tabs."""

    def rows(self, path: Path) -> Placed:
        """See ``csv_rows``."""
        return csv_rows(path, self._config.delimiter)


class Parquet(FileLoader):
    """Problems from a Parquet file."""

    class Config(FileMapping):
        """Options of ``core/parquet``."""

    def rows(self, path: Path) -> Placed:
        """See ``parquet_rows``."""
        return parquet_rows(path)


class Folder(FileLoader):
    """Problems from a folder of data files, or one that ``datasets`` has saved."""

    class Config(RowMapping):
        """Options of ``core/folder``."""

        path: str
        """Folder with JSON, CSV or Parquet files, or written by ``save_to_disk``."""
        split: str = "train"
        """Split to load: files with this word in their name or folder (``test-0001.parquet``,
        ``test/a.jsonl``); a file without such a word belongs to ``train``."""
        name: str | None = None
        """Name of the data set, in ids and metrics; the folder's name and the split if absent."""

    def dataset(self, path: Path) -> str:
        """The folder's name and the split."""
        return f"{path.absolute().name}_{self._config.split}"

    def rows(self, path: Path) -> Placed:
        """Rows of the split, those of one file after those of another, by the files' names."""
        split = self._config.split
        if is_saved(path):
            where = f"{path}, {split}, row"
            return ((f"{where} {number}", row) for number, row in saved_rows(path, split))
        return (row for file in _files_of(path, split) for row in file_rows(file))


def _files_of(folder: Path, split: str) -> list[Path]:
    if not folder.is_dir():
        raise DataError(
            "there is no such folder" if not folder.exists() else "this is a file, not a folder",
            where=str(folder),
            remedy="of a single file: core/jsonl, core/csv or core/parquet",
        )
    every = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name.lower().removesuffix(".gz").endswith(_ENDINGS)
    ]
    if not every:
        raise DataError(
            f"the folder has no data files: {', '.join(_ENDINGS)}, or the same with .gz",
            where=str(folder),
        )
    splits: dict[str, list[Path]] = {}
    for file in every:
        words = _SPLIT.findall(file.relative_to(folder).as_posix().lower())
        word = words[-1] if words else "train"
        splits.setdefault(_SAME.get(word, word), []).append(file)
    wanted = _SAME.get(split, split)
    if wanted not in splits:
        raise DataError(
            f"the folder has no split '{split}'",
            where=str(folder),
            remedy=f"it has: {', '.join(splits)}",
        )
    return splits[wanted]
