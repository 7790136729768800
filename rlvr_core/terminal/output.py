"""Prints the output of commands: results on stdout, errors and progress on stderr.

On a terminal, rich draws tables; elsewhere they are plain aligned lines, never truncated, so that
``grep`` and ``cut`` work on them. Colour never carries meaning alone, and ``NO_COLOR`` is honoured.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from logging import ERROR, getLogger
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console

    from rlvr_core.api import RlvrError


def console(*, stderr: bool = False) -> Console:
    """Return a rich console on stdout (results) or stderr (progress)."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=not is_terminal(stderr=stderr))


def is_terminal(*, stderr: bool = False) -> bool:
    """Whether the stream is a terminal."""
    return (sys.stderr if stderr else sys.stdout).isatty()


def print_json(value: Any) -> None:
    """Print one JSON value on stdout; non-finite numbers become null."""
    _print_json(value, indent=2)


def _print_json(value: Any, indent: int | None) -> None:
    from rlvr_core.record.jsonl import finite_json

    click.echo(json.dumps(finite_json(value), indent=indent, allow_nan=False))


def print_line(text: str = "", *, stderr: bool = False) -> None:
    """Print text literally, without interpreting markup."""
    click.echo(text, err=stderr)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows on stdout under column headers."""
    if not is_terminal():
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        for row in (headers, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip())
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def print_error(error: RlvrError) -> None:
    """Print every complaint of an error on stderr: fault, location and remedy."""
    for complaint in error.complaints:
        click.echo(f"{_red('error:')} {_hidden(str(complaint))}", err=True)


def print_json_error(error: RlvrError) -> None:
    """Print an error as one JSON object on one line of stdout."""
    from rlvr_core.record.text import Redactor

    errors = [Redactor().tree(asdict(complaint)) for complaint in error.complaints]
    _print_json({"ok": False, "errors": errors}, indent=None)


def print_exception(error: BaseException) -> None:
    """Print an exception's traceback on stderr, without secrets."""
    click.echo(_hidden("".join(traceback.format_exception(error))), err=True, nl=False)


def print_usage_error(error: click.ClickException) -> None:
    """Print a usage error, and how to get help."""
    click.echo(f"{_red('error:')} {_hidden(error.format_message())}", err=True)
    context = getattr(error, "ctx", None)
    if context is not None:
        click.echo(f"  see: {context.command_path} --help", err=True)


def _hidden(text: str) -> str:
    """Mask credentials that a message quotes, as in 'must be a number, not …'."""
    from rlvr_core.record.text import Redactor

    return Redactor().known(text)


class Redacting:
    """A text stream that takes the secrets out of what is written to it, line by line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._line, self._lock = stream, "", threading.RLock()

    def write(self, text: str) -> int:
        """Write the lines that are whole; the rest waits for its end or for ``flush``."""
        with self._lock:
            lines, newline, self._line = (self._line + text).rpartition("\n")
            self._stream.write(_hidden(lines + newline))
        return len(text)

    def flush(self) -> None:
        """Write what has no end yet."""
        with self._lock:
            line, self._line = self._line, ""
            self._stream.write(_hidden(line))
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def no_secrets_printed() -> Iterator[None]:
    """Take secrets out of all that this process prints in the block, whoever prints it."""
    with (
        contextlib.redirect_stdout(Redacting(sys.stdout)),
        contextlib.redirect_stderr(Redacting(sys.stderr)),
    ):
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


def quiet_libraries() -> None:
    """Disable progress bars of other libraries, and one's warning of what nothing here uses."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # peft imports it, and on some processors it misses a kernel for 4 bits
    getLogger("bitsandbytes").setLevel(ERROR)


def _red(text: str) -> str:
    plain = "NO_COLOR" in os.environ or not is_terminal(stderr=True)
    return text if plain else click.style(text, fg="red", bold=True)
