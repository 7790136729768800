"""Servers of environments that Ray starts on the nodes of a cluster, and starts again when lost.

Each is an actor with an ``EnvironmentServer`` in it, on a port of its node that was free. Ray
itself replaces an actor whose process or node is lost; where the new one listens is asked of it.
The actors end with the process that created them.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_core.api import ComponentConfig, MachineError
from rlvr_core.toolkit import ComponentRef, __version__, build, describe, load_host

WHERE = "environment.with.ray"
Count = Annotated[int, Field(gt=0)]


class RayServers(ComponentConfig):
    """Servers on the nodes of a Ray cluster."""

    environment: ComponentRef
    """The environment that they serve, with its options."""
    servers: Count = 1
    """How many, of each training process; spread over the nodes. A conversation goes to the one
    with the fewest."""
    cpus: Annotated[float, Field(ge=0)] = 1
    """Processors of each."""
    address: str | None = None
    """``host:port`` of the cluster's head. null: that of RAY_ADDRESS, else the cluster that runs on
    this machine."""
    restarts: Annotated[int, Field(ge=0)] = 3
    """How often a server that is lost is started again."""
    deadline: Annotated[float, Field(gt=0)] = 600
    """Seconds for a server to have its place and to start, again too."""
    conversations: Count = 512
    """Maximum concurrent conversations of a server."""
    timeout: Annotated[float, Field(gt=0)] = 30
    """Seconds one answer of the environment may take, by the server's clock."""


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """The settings of a server.

    Attributes:
        use: Full name of the environment.
        options: The environment's options.
        timeout: Seconds one answer may take.
        conversations: Most at a time.
        path: Where the run finds modules: an environment may be a file of the user.
        version: The run's version of rlvr-core.
    """

    use: str
    options: dict[str, Any]
    timeout: float
    conversations: int
    path: Sequence[str]
    version: str


class ServerActor:
    """A server on some node; nothing is raised to Ray, so that its exceptions mean a lost actor."""

    def __init__(self, args: ServerArgs) -> None:
        self._url = self._fault = ""
        self._up = threading.Event()
        threading.Thread(target=self._serve, args=(args,), daemon=True).start()

    def where(self) -> tuple[str, str]:
        """Return the URL once it listens, and what is wrong if it cannot."""
        self._up.wait()
        return self._url, self._fault

    def _serve(self, args: ServerArgs) -> None:
        try:
            asyncio.run(self._server(args))
        except BaseException as error:
            self._fault = f"{type(error).__name__}: {error}"
        if self._up.is_set():
            os._exit(1)  # for Ray to start another one
        self._up.set()

    async def _server(self, args: ServerArgs) -> None:
        import ray

        if args.version != __version__:
            raise MachineError(f"it has rlvr-core {__version__}, and the run {args.version}")
        sys.path += [
            folder for folder in args.path if folder not in sys.path and Path(folder).is_dir()
        ]
        from rlvr_env.servers.server import EnvironmentServer

        ref = ComponentRef.model_validate({"use": args.use, "with": args.options})
        made = build(load_host(), "environment", ref, f"{WHERE}.environment")
        server = EnvironmentServer(made, args.use, timeout=args.timeout, most=args.conversations)
        node = ray.util.get_node_ip_address()

        def ready(port: int) -> None:
            self._url = f"ws://{node}:{port}"
            self._up.set()

        await server.run(node, 0, ready)


class Fleet:
    """The servers of one environment. Methods may be called from any thread.

    Args:
        config: The options.

    Raises:
        MachineError: If Ray is missing, no cluster answers, or a server cannot start in time.
    """

    def __init__(self, config: RayServers) -> None:
        from rlvr_cluster.ray.cluster import connect

        host = load_host()
        connect(config.address, "env/remote", f"{WHERE}.address")
        import ray

        self._config = config
        name = host.entry("environment", config.environment.use, f"{WHERE}.environment").name
        options = dict(config.environment.with_)
        path = tuple(sys.path)
        args = ServerArgs(name, options, config.timeout, config.conversations, path, __version__)

        def start() -> Any:
            made = ray.remote(ServerActor).options(
                num_cpus=config.cpus,
                max_restarts=config.restarts,
                max_task_retries=config.restarts,
                scheduling_strategy="SPREAD",
            )
            return made.remote(args)

        self._actors = [start() for _ in range(config.servers)]
        self._open: Counter[int] = Counter()
        self._lock = threading.Lock()
        for place in range(config.servers):
            self.url(place)

    def take(self) -> int:
        """Return the place of the server with the fewest conversations, for one more."""
        with self._lock:
            place = min(range(len(self._actors)), key=lambda number: self._open[number])
            self._open[place] += 1
            return place

    def give_back(self, place: int) -> None:
        """Note that a conversation is over."""
        with self._lock:
            self._open[place] -= 1

    def url(self, place: int) -> str:
        """Return where a server listens; waits for one that is being started.

        Raises:
            MachineError: If it cannot start, or is lost for good.
        """
        import ray

        try:
            url, fault = ray.get(self._actors[place].where.remote(), timeout=self._config.deadline)
        except ray.exceptions.GetTimeoutError as error:
            raise self._error(
                f"is not there after {self._config.deadline:g} s: the cluster has no room, or "
                f"cannot start it",
                f"add nodes, lower {WHERE}.servers or .cpus, or raise {WHERE}.deadline",
            ) from error
        except ray.exceptions.RayError as error:
            why = describe(error).splitlines()[0]
            raise self._error(
                f"was lost more than {self._config.restarts} times: {why}",
                "look at what ends it in Ray's logs",
            ) from error
        if fault:
            raise self._error(
                f"cannot be started: {fault}", "install the same packages on every node"
            )
        return str(url)

    def _error(self, what: str, remedy: str) -> MachineError:
        return MachineError(
            f"the server of {self._config.environment.use} that Ray is to start from "
            f"{platform.node()} {what}",
            where=WHERE,
            remedy=remedy,
        )
