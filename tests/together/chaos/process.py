"""Forks of a process that has imported everything once: runs, their workers, their engines."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from socket import recv_fds, send_fds, socket, socketpair
from typing import Any

WARM = (
    "transformers.models.qwen3.modeling_qwen3",
    "rlvr_core.cli.run",
    "rlvr_core.run.build",
    "rlvr_core.workers.child",
    "rlvr_core.record.view",
    "rlvr_core.testing.random_model",
)


def warm() -> None:
    """Import what runs import, before the first fork."""
    for name in WARM:
        importlib.import_module(name)


def load(model: Path) -> None:
    """Do once what every run does first and keeps: find plugins, load a model and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr_core.plugins.host import load_host

    load_host()
    AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, output_loading_info=True
    )[0]
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            loaded(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    gc.collect()
    gc.freeze()


class _Spawned:
    """A child of the spawner, as ``subprocess.Popen`` shows a child; how it ended is not known."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and not Path(f"/proc/{self.pid}").exists():
            self.returncode = 0
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode


def fork_children() -> None:
    """Let the processes that a run starts be forks: no second import, and faults included.

    They are forked by a process that has no threads, as a run soon has: a lock that another thread
    holds at a fork stays locked in the fork.
    """
    from rlvr_core.workers import process

    ours, theirs = socketpair()
    spawner = os.fork()
    if spawner == 0:
        ours.close()
        _spawn(theirs)
    theirs.close()
    lock = threading.Lock()

    def start(
        self: process.Child,
        module: str,
        descriptors: Sequence[int],
        env: Mapping[str, str],
        output: int = subprocess.DEVNULL,
    ) -> None:
        self.socket, other_end = socketpair()
        with other_end, Path(os.devnull).open("r+b") as nowhere:
            sink = nowhere.fileno() if output == subprocess.DEVNULL else output
            passed = [other_end.fileno(), *descriptors]
            request = json.dumps({"module": module, "env": dict(env), "at": passed}).encode()
            with lock:
                ours.sendall(len(request).to_bytes(4, "big"))
                ours.sendall(request)
                send_fds(ours, [b"."], [sink, *passed])
                pid = int.from_bytes(ours.recv(4), "big")
        self.process = _Spawned(pid)  # type: ignore[assignment]

    process.Child.__init__ = start  # type: ignore[method-assign]


def _spawn(requests: socket) -> None:
    """Fork children as they are asked for, until nobody can ask any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        while head := requests.recv(4):
            size, body = int.from_bytes(head, "big"), b""
            while len(body) < size:
                body += requests.recv(size - len(body))
            asked = json.loads(body)
            _, fds, _, _ = recv_fds(requests, 1, 16)
            spawner, pid = os.getpid(), os.fork()
            if pid == 0:
                _live(fds[0], fds[1:], asked, spawner)
            for fd in fds:
                os.close(fd)
            requests.sendall(pid.to_bytes(4, "big"))
    finally:
        os._exit(0)


def _live(sink: int, given: Sequence[int], asked: Mapping[str, Any], parent: int) -> None:
    """Be a child: nothing of the parent's but the descriptors and the module's ``main``."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        # first out of the way of the numbers that they are to have
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 1000) for fd in (sink, *given)]
        for number in (1, 2):
            os.dup2(high[0], number)
        os.closerange(3, 1000)
        for fd, number in zip(high[1:], asked["at"], strict=True):
            os.dup2(fd, number)
        os.closerange(1000, 4096)
        os.environ.clear()
        os.environ.update(asked["env"])
        importlib.import_module(asked["module"]).main(*asked["at"], parent)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def forked(work: Callable[[], int], folder: Path) -> int:
    """Start ``work`` in a fork, in a folder with its output in ``out`` there; the process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        target = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in (1, 2):
            os.dup2(target, number)
        streams = [open(number, "wb", closefd=False) for number in (1, 2)]  # noqa: SIM115
        sys.stdout = io.TextIOWrapper(streams[0], "utf-8")
        sys.stderr = io.TextIOWrapper(streams[1], "utf-8", "backslashreplace", write_through=True)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        (folder / "code").write_text(str(code))
        os._exit(code if 0 <= code < 256 else 1)


def command(*words: str) -> int:
    """The ``rlvr`` command in this process; its exit code."""
    from rlvr_core.cli.main import main

    sys.argv = ["rlvr", *words]
    return main()


def of_two(work: Callable[[], int]) -> int:
    """Do the work in two processes of one run, as a launcher starts them; the first one's code."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port)}  # fmt: skip
    other = os.fork()
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), "0" if other else "1")
    fork_children()
    if other == 0:
        code = 70
        try:
            code = work()
        finally:
            os._exit(code)
    code = work()
    os.waitpid(other, 0)
    return code


def notes_of_last() -> None:
    """Write the notes that ``rlvr show`` has of the run in this folder into ``notes``."""
    from rlvr_core.record.view import RunView

    runs = sorted(Path("runs").glob("[!.]*"))
    if runs:
        Path("notes").write_text(json.dumps(RunView(runs[-1]).notes))
