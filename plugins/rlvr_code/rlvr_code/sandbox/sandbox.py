"""The sandbox: programs in, results out, from any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import TracebackType
from typing import TypeVar

from rlvr_code.sandbox.backends import Choice, choose
from rlvr_code.sandbox.launch import Plan
from rlvr_code.sandbox.limits import Limits, Result
from rlvr_code.sandbox.server import BrokenError, Run, Server
from rlvr_code.sandbox.session import Session
from rlvr_core.api import MachineError, RunError

T = TypeVar("T")

DEFAULT = Limits()


class Sandbox:
    """Runs untrusted programs.

    It may be used from several threads; as many programs as its size run at once, others wait.

    Args:
        backend: ``auto``, or the name of one; see ``rlvr doctor``.
        size: Programs at once. Each has a server process, started when first needed.
        python: Interpreter that runs them; by default this one, without its packages.
        packages: Folders with packages they may import.
        warm: Modules of these packages that are imported once, before any program is there.
        show: More paths that programs may read, and run programs from; with them they may also
            run what they have in their own folder.
        disk_mb: Room for the files of one program.
        image: Image of a container backend; its Python is 3.11 or newer.

    Raises:
        MachineError: If the machine has no such sandbox, or none at all.
    """

    def __init__(
        self,
        backend: Choice = "auto",
        *,
        size: int = 1,
        python: str | None = None,
        packages: tuple[str, ...] = (),
        warm: tuple[str, ...] = (),
        show: tuple[str, ...] = (),
        disk_mb: int = 64,
        image: str = "python:3.11-slim",
    ) -> None:
        self.plan: Plan = choose(
            backend,
            python=python,
            packages=packages,
            warm=warm,
            show=show,
            disk_mb=disk_mb,
            image=image,
        )
        self._idle: list[Server] = []
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(size)
        self._closed = False

    def run(
        self,
        program: str,
        *,
        stdin: str = "",
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits = DEFAULT,
    ) -> Result:
        """Run a program as ``python main.py`` would, in a fresh process.

        Args:
            program: Its text.
            stdin: What it reads from standard input.
            files: What lies in its working folder, by relative path.
            limits: What it may use.

        Raises:
            MachineError: If the sandbox cannot be had any more.
        """
        content = encode_files(files or {})

        def once(server: Server) -> Result:
            server.open("script", as_bytes(program), content, limits)
            return Run(server, limits, as_bytes(stdin), last=True).finish()

        return self.attempt(once, Result("", "", -9, "broke"), limits)

    def session(
        self,
        *,
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits = DEFAULT,
    ) -> Session:
        """A process that keeps its state from one piece of code to the next.

        It takes one of the sandbox's places until it is closed; its limits are those of its whole
        life.
        """
        self.check(limits)
        self._places.acquire()
        try:
            server = self._take()
        except BaseException:
            self._places.release()
            raise
        return Session(server, encode_files(files or {}), limits, self._return)

    def attempt(self, work: Callable[[Server], T], broke: T, limits: Limits) -> T:
        """Do something with a server; if the server breaks, once more with a fresh one.

        Args:
            work: What to do; it leaves the server without an open job.
            broke: The answer if it breaks both times, which is then the program's doing.
            limits: Of the program, to see whether this sandbox can keep them.
        """
        self.check(limits)
        for _ in range(2):
            with self.server() as server:
                try:
                    return work(server)
                except BrokenError:
                    server.close()
                except BaseException:
                    server.close()  # its state is unknown
                    raise
        return broke

    @contextmanager
    def server(self) -> Iterator[Server]:
        """A server for a while; one that is closed by then is replaced."""
        with self._places:
            server = self._take()
            try:
                yield server
            finally:
                self._keep(server)

    def close(self) -> None:
        """End all servers. Programs that are running now end with their own call."""
        with self._lock:
            self._closed = True
            servers, self._idle = self._idle, []
        for server in servers:
            server.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def check(self, limits: Limits) -> None:
        """See that programs can be run with these limits.

        Raises:
            MachineError: If they are to have children, and the sandbox could not end those.
        """
        if limits.processes > 1 and self.plan.variant in ("landlock", "unsafe"):
            raise MachineError(
                f"the sandbox {self.plan.variant} has no process namespaces, so a program can have "
                f"one process only, not {limits.processes}",
                remedy="take one that has: bwrap, namespaces, podman or docker; rlvr doctor "
                "lists what this machine has",
            )

    def _take(self) -> Server:
        with self._lock:
            if self._closed:
                raise RunError("the sandbox is closed")
            if self._idle:
                return self._idle.pop()
        try:
            return Server(self.plan)
        except BrokenError as error:
            raise MachineError(str(error), remedy="rlvr doctor says more") from error

    def _keep(self, server: Server) -> None:
        with self._lock:
            if server.alive and not self._closed:
                self._idle.append(server)
                return
        server.close()

    def _return(self, server: Server) -> None:
        self._keep(server)
        self._places.release()


def as_bytes(text: str) -> bytes:
    """UTF-8, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def encode_files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """Files by name, as bytes.

    Raises:
        ValueError: If a name leads out of the folder.
    """
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise ValueError(f"{name!r} is no relative path of a file")
    return {
        name: as_bytes(content) if isinstance(content, str) else content
        for name, content in files.items()
    }
