"""Explains why a file cannot be read as a configuration."""

from __future__ import annotations

import difflib
from pathlib import Path

import yaml
from yaml.reader import ReaderError

from rlvr_core.api import ConfigError
from rlvr_core.config.tree import Mark


def yaml_fault(
    error: Exception, text: str, place: str, *, lines: bool, line: int | None
) -> ConfigError:
    """The error for text that is no YAML.

    Args:
        error: What PyYAML raised.
        text: The document.
        place: Name of its file, or the option it came by.
        lines: Whether the document has lines.
        line: Where the reader stood, counted from 0; None if it had not begun.
    """

    def at(line: int) -> str:
        return str(Mark(place, line + 1 if lines else 0))

    if isinstance(error, ReaderError):
        number = text.count("\n", 0, error.position)
        code = ord(error.character) if isinstance(error.character, str) else error.character
        return ConfigError(f"bad YAML: the character U+{code:04X} is not allowed", where=at(number))
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        source = text.split("\n")[mark.line] if mark and mark.line <= text.count("\n") else ""
        return ConfigError(
            f"bad YAML: {_problem(error)}",
            where=at(mark.line) if mark else place,
            remedy=_remedy(error, source),
        )
    # PyYAML hands "\U99999999" to chr()
    return ConfigError(f"bad YAML: {error}", where=place if line is None else at(line))


def _problem(error: yaml.MarkedYAMLError) -> str:
    words = " ".join(part for part in (error.context, error.problem) if part)
    return words.replace("'\\t'", "tab").replace("\t", " ")


def _remedy(error: yaml.MarkedYAMLError, source: str) -> str:
    problem = f"{error.context} {error.problem}"
    indent = source[: len(source) - len(source.lstrip())]
    if "\\t" in problem or "\t" in indent:
        return "indent with spaces: YAML allows no tab there"
    if "${" in source:
        return 'inside [...] and {...} put it in quotes: "${env:NAME}"'
    if "escape character" in problem:
        return "in double quotes a backslash starts an escape: use 'single quotes'"
    if "single document" in problem:
        return "one run, one document: remove the second '---'"
    if "mapping values are not allowed" in problem:
        return "put a value with ': ' in quotes, or check the indentation of this line"
    if "undefined alias" in problem or "alphabetic or numeric" in problem:
        return "put a value that begins with * or & in quotes"
    if "block end" in problem or "expected ':'" in problem:
        return "check the indentation and the ':' of this line and of the one above"
    return ""


def file_fault(error: Exception, path: Path, where: str) -> ConfigError:
    """The error for a file that cannot be read, or is not UTF-8.

    Args:
        error: What reading or decoding it raised.
        path: The file.
        where: Where it is named; empty for the command line.
    """
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return ConfigError(
            f"not UTF-8: byte 0x{error.object[error.start]:02x}",
            where=f"{path}:{line}",
            remedy="save the file as UTF-8",
        )
    if isinstance(error, FileNotFoundError):
        what = f"there is no file {str(path)!r}"
        likely = tuple(filter(None, (_example(path), _files_like(path))))
        return ConfigError(what, where=where or str(path), remedy=likely)
    if isinstance(error, IsADirectoryError):
        what = f"{str(path)!r} is a folder, not a YAML file"
        return ConfigError(what, where=where or str(path), remedy=_files_like(path))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ConfigError(
        f"cannot read {str(path)!r}: {reason}",
        where=where or str(path),
        remedy=f"see that it is a file that you may read: ls -l {path}",
    )


def _example(path: Path) -> str:
    from rlvr_core.examples.catalog import find_example

    example = find_example(path.as_posix())
    return (
        f"an example of this name can be had: rlvr examples copy {example.name}" if example else ""
    )


def _files_like(path: Path) -> str:
    folder = path if path.is_dir() else path.parent
    names = sorted(p.name for p in folder.glob("*.y*ml")) if folder.is_dir() else []
    if path.is_dir():
        return (
            "name a file; in it: " + ", ".join(names[:5]) if names else "name a file, not a folder"
        )
    close = difflib.get_close_matches(path.name, names, n=3)
    if close:
        return "did you mean: " + ", ".join(str(folder / name) for name in close) + "?"
    if not folder.is_dir():
        return f"correct the path: there is no folder {str(folder)!r} either"
    return (
        f"correct the path: {str(folder.absolute())!r} has {', '.join(names[:5]) or 'no YAML file'}"
    )
