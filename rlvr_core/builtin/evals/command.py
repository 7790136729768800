"""Runs an external command: logs its output to a file and ends its whole process group."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from rlvr_core.api import RunError

GRACE = 10.0
"""Seconds between asking a process group to end and killing it."""
SHOWN = 20
"""Number of last log lines shown in an error."""


def run_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    timeout: float,
    name: str,
) -> None:
    """Run a command until it ends.

    Args:
        command: Program and arguments.
        env: Its complete environment.
        log: File that its output is appended to.
        timeout: Time limit in seconds.
        name: Name for messages.

    Raises:
        RunError: If it cannot be started, exits with a nonzero code, or takes too long.
        KeyboardInterrupt: On Ctrl-C or SIGTERM, after the command has been ended.
    """
    with _terminable():
        process = _start(command, env, log, name)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise _failed(name, f"was stopped after {timeout:g} s", log) from error
        finally:
            end_group(process)
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise _failed(name, how, log)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of a process and of all processes it started."""
    deadline = time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError):  # raised once no process is left
        try:
            os.killpg(process.pid, signal.SIGTERM)
            while time.monotonic() < deadline:
                process.poll()  # an ended process counts as alive until it is waited for
                os.killpg(process.pid, 0)
                time.sleep(0.02)
        finally:  # also on a further interruption
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(
    command: Sequence[str], env: Mapping[str, str], log: Path, name: str
) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        try:
            return subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(
                f"external task '{name}' cannot be started: {error}",
                remedy="name the program by its full path, or give its environment's PATH in env",
            ) from error


def tail(log: Path, lines: int = SHOWN) -> list[str]:
    """Return the last lines of a log of any length."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 16384))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]


def _failed(name: str, how: str, log: Path) -> RunError:
    return RunError(
        f"external task '{name}' {how}",
        where=str(log),
        remedy=("its last lines:", *tail(log)),
    )


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM interrupt like Ctrl-C, so that no child outlives this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
