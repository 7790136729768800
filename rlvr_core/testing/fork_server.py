"""Run ``rlvr`` commands in forks of a process that has imported torch and rlvr once.

A command of its own process spends seconds on imports; a fork spends none. What a command does is
the same: own process, working directory, environment, output and exit code. Take a true process
where the test is about signals, ``kill -9``, or what is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

PRELOADED = ("torch", "transformers", "rlvr_core.cli.run", "rlvr_core.testing.random_model")
"""Imported before the first fork; importing them must start no threads."""

READ_AT_IMPORT: Final = ("HF_", "OMP_", "MKL_", "TORCH", "TRANSFORMERS_", "CUDA_", "VLLM_", "LD_")
"""Prefixes of variables that libraries read once; commands that differ in one share no server."""


class ForkServer:
    """A process that forks to run commands, one at a time, and ends with this one."""

    def __init__(self, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._lines = ours.makefile("rw", encoding="utf-8")
        ours.close()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env={**env, "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``rlvr`` with these words to its end.

        Args:
            words: The command line after ``rlvr``.
            cwd: Working directory.
            env: All variables of its environment.
            timeout: Seconds; then the command and its children are killed.

        Raises:
            TimeoutExpired: It took longer.
        """
        with self._lock, tempfile.TemporaryDirectory(prefix="rlvr-fork-") as name:
            out, err = Path(name, "out"), Path(name, "err")
            request = {"words": words, "cwd": str(cwd), "env": dict(env)}
            self._send(request | {"out": str(out), "err": str(err)})
            pid = self._receive()["pid"]
            expired = threading.Event()
            timer = threading.Timer(timeout, _kill_tree, [pid, expired])
            timer.start()
            code = self._receive()["code"]
            timer.cancel()
            texts = [path.read_text(encoding="utf-8", errors="replace") for path in (out, err)]
        if expired.is_set():
            raise subprocess.TimeoutExpired(["rlvr", *words], timeout, *texts)
        return subprocess.CompletedProcess(["rlvr", *words], code, *texts)

    def close(self) -> None:
        """End the server."""
        self._lines.close()
        self._process.wait(30)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()

    def _receive(self) -> dict[str, int]:
        line = self._lines.readline()
        if not line:
            raise RuntimeError(f"the fork server ended with exit code {self._process.wait()}")
        message: dict[str, int] = json.loads(line)
        return message


_servers: dict[tuple[tuple[str, str], ...], ForkServer] = {}


def run_rlvr(
    *words: object, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run ``rlvr`` in a fork; servers start when first needed and end with this process.

    Args:
        words: The command line after ``rlvr``.
        cwd: Working directory.
        env: All variables of its environment; None for this process's.
        timeout: Seconds.

    Raises:
        TimeoutExpired: It took longer.
    """
    full = dict(os.environ if env is None else env)
    key = tuple(sorted(item for item in full.items() if item[0].startswith(READ_AT_IMPORT)))
    if key not in _servers:
        _servers[key] = ForkServer(full)
        atexit.register(_servers[key].close)
    return _servers[key].run([str(word) for word in words], cwd=cwd, env=full, timeout=timeout)


def _kill_tree(pid: int, expired: threading.Event) -> None:
    expired.set()
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in [*parent.children(recursive=True), parent]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _serve(fd: int) -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    lines = socket.socket(fileno=fd).makefile("rw", encoding="utf-8")
    for line in lines:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.close(fd)
            _become(request)
        lines.write(json.dumps({"pid": pid}) + "\n")
        lines.flush()
        status = os.waitpid(pid, 0)[1]
        lines.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
        lines.flush()


def _become(request: Mapping[str, Any]) -> None:
    """Run the command in this fork, and end it as the interpreter would."""
    code = 1
    try:
        for fd, name in ((1, "out"), (2, "err")):
            target = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, fd)
            os.close(target)
        sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8")  # noqa: SIM115
        sys.stderr = io.TextIOWrapper(
            open(2, "wb", closefd=False),  # noqa: SIM115
            "utf-8",
            "backslashreplace",
            write_through=True,
        )
        os.chdir(request["cwd"])
        # the server was started for another command, whose places are not this one's
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ.clear()
        os.environ.update(request["env"])
        places = [request["cwd"], *request["env"].get("PYTHONPATH", "").split(os.pathsep)]
        base = [place for place in sys.path if place not in others]
        sys.path[:] = [*dict.fromkeys(filter(None, places)), *base]
        importlib.invalidate_caches()
        sys.argv = ["rlvr", *request["words"]]
        from rlvr_core.cli.main import main

        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]  # as at an interpreter's end
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
