"""Runs agent programs: a command in a process of its own, or a Python function in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlvr_core.api import Json

_TAIL = 800
"""Characters of what a program that failed wrote on standard error, at its end."""


class ProgramError(Exception):
    """An agent program failed."""


async def run_command(command: Sequence[str], task: Json, url: str, key: str) -> None:
    """Run a command with the task as JSON on standard input, until it ends.

    Raises:
        ProgramError: If it cannot be started, or its exit code is not 0.
    """
    given = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | given,
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError(f"the agent program {command[0]} cannot be started: {error}") from error
    try:
        _, errors = await process.communicate(json.dumps(task).encode())
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too
    if process.returncode != 0:
        tail = errors.decode(errors="replace").strip()[-_TAIL:]
        raise ProgramError(f"the agent program ended with code {process.returncode}: {tail}")


async def run_function(
    function: Callable[..., Any], threads: ThreadPoolExecutor, task: Json, url: str, key: str
) -> None:
    """Call a function in a thread, as ``function(task, base_url=..., api_key=...)``."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(threads, lambda: function(task, base_url=url, api_key=key))
