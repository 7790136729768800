"""Engine ``vllm-server``: dedicated vLLM servers, one or many, shared by all processes of a run.

What they are, how they take weights and what happens when one dies: ``docs/engines.md``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from rlvr_core.api import (
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    MachineError,
    Metric,
    RlvrError,
    RunError,
    WeightSource,
    one_line,
)
from rlvr_core.engines.sampling import StopStrings
from rlvr_core.engines.transport import ChosenTransport
from rlvr_core.engines.vllm.files import FILES, Files
from rlvr_core.engines.vllm.requests import room_for
from rlvr_core.parallel.ranks import Ranks
from rlvr_servers.client import Probe, ServerClient, label_of
from rlvr_servers.fleet import Fleet
from rlvr_servers.nccl import Nccl
from rlvr_servers.pool import LoopThread, Server, ServerPool
from rlvr_servers.process import (
    ServerConfig,
    ServerProcess,
    arguments,
    check_server,
    declared_eos,
    gpus_of,
    private_folder,
)
from rlvr_servers.publisher import SentWeights, ServerWeights, WeightPublisher


@dataclass(slots=True)
class _Running:
    """State of the engine between ``start`` and ``close``."""

    context: EngineContext
    ranks: Ranks
    thread: LoopThread
    pool: ServerPool
    fleet: Fleet
    publisher: WeightPublisher
    folder: Path | None
    counted: dict[str, int] = field(default_factory=dict)


class VllmServerEngine:
    """Generates with vLLM servers, in processes of their own."""

    reports = (
        Metric("engine/servers", "vLLM servers that answer and hold the weights.", "servers"),
        Metric("engine/restarts", "vLLM servers started again since the last step.", "restarts"),
        Metric(
            "engine/resent",
            "Completions asked for again, as their server was lost or aborted them.",
            "completions",
        ),
    )

    Config = ServerConfig
    traits = EngineTraits(separate=True, takes_transport=True)

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.traits = replace(type(self).traits, elsewhere=_all_elsewhere(config.urls))
        self._running: _Running | None = None
        self._broken: str | None = None

    def start(self, context: EngineContext) -> None:
        """Start the servers, or reach them; see ``Engine.start``.

        In a run of several processes the first of each machine starts servers for all of that
        machine; servers of ``urls`` are led by the first process of the run.

        Raises:
            MachineError: If one does not come up, or lacks what it needs.
            ConfigError: If a server does not fit the run.
        """
        transport = chosen_transport(self.config, context)
        ranks = _ranks()
        machine = os.environ.get("GROUP_RANK", "0")
        leads = ranks.main if self.config.urls else os.environ.get("LOCAL_RANK", "0") == "0"
        thread = LoopThread()
        try:
            self._running = self._build(context, transport, ranks, thread, leads)
            fleet = self._running.fleet
            if leads:
                thread.run(fleet.start())
            facts = {"machine": machine, "leads": leads, "run": self._running.pool.run}
            facts["sockets"] = [str(s.process.socket) for s in fleet.servers if s.process]
            facts["other_weights"] = [s.name for s in fleet.servers if s.holds_other_weights]
            of_all_ranks = ranks.gather(facts)
            if not leads:
                anywhere = bool(self.config.urls)
                leader = next(
                    rank
                    for rank in of_all_ranks
                    if rank["leads"] and (anywhere or rank["machine"] == machine)
                )
                self._follow(leader)
        except BaseException:
            self.close()
            thread.close()
            raise

    def _build(
        self,
        context: EngineContext,
        transport: ChosenTransport,
        ranks: Ranks,
        thread: LoopThread,
        leads: bool,
    ) -> _Running:
        config = self.config
        folder: Path | None = None
        servers: list[Server] = []
        if config.urls:
            servers = [Server(url, ServerClient(url)) for url in config.urls]
        elif leads:
            places = gpus_of(config)
            folder = private_folder()
            for index, gpus in enumerate(places):
                flags = arguments(config, context, cpu=not gpus)
                process = ServerProcess(f"server {index}", folder, flags, gpus)
                servers.append(Server(process.name, ServerClient(process.socket), process))
        run = secrets.token_hex(4)
        stop_strings, ends = StopStrings(context.tokenizer), declared_eos(context)
        pool = ServerPool(thread.loop, servers, stop_strings, ends, config.max_in_flight)
        pool.run = run
        probe = Probe(context.tokenizer, context.dtype, context.max_model_len)
        weights = ServerWeights(SentWeights(label_of(run, 0)), probe, config.deadline)
        over_nccl = leads and transport.target == NCCL.target
        fleet = Fleet(
            pool=pool,
            config=config,
            check=partial(check_server, context, probe, over_nccl),
            leads=leads,
            weights=weights,
        )
        publisher = WeightPublisher(context, thread, pool, weights)
        if leads:
            restarts = config.restarts > 0 and not config.urls
            copy = Files(Files.Config(folder=config.folder)) if restarts else None
            publisher.use(transport, copy)
        return _Running(context, ranks, thread, pool, fleet, publisher, folder)

    def _follow(self, leader: Mapping[str, Any]) -> None:
        """Use the servers that another process leads."""
        running = self._running
        assert running is not None
        running.pool.run = leader["run"]
        running.fleet.weights.sent.label = label_of(leader["run"], 0)
        if not self.config.urls:
            for path in map(Path, leader["sockets"]):
                running.pool.servers.append(Server(path.stem.replace("-", " "), ServerClient(path)))
        for server in running.pool.servers:
            server.holds_other_weights = server.name in leader["other_weights"]
        running.thread.run(running.fleet.start())

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; see ``Engine.submit``. Its future is resolved by another thread.

        A completion ends by length where prompt and completion reach the engine's limit.

        Raises:
            RunError: If the prompt is empty, or leaves no room for a token; or if no server is
                left.
        """
        running = self._ready()
        room = room_for(request, running.context.max_model_len)
        foreign = [s.name for s in running.fleet.servers if s.holds_other_weights]
        if foreign:
            raise RunError(
                f"vLLM server {foreign[0]} holds the weights of an earlier run",
                where="engine",
                remedy="start it again, so that it has the model's",
            )
        most = min(request.params.max_tokens, room)
        params = replace(request.params, max_tokens=most)
        return running.pool.submit(replace(request, params=params))

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every request is answered; see ``Engine.drain``.

        Raises:
            RunError: If that took longer than ``timeout`` seconds, or no server is left.
        """
        self._ready().pool.wait(timeout)

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Give the servers the trainer's weights, in one transaction; see ``Engine.load_weights``.

        Every process of the run has to take part. What servers are in the middle of goes on under
        the new weights, and is labelled with the version it began under.

        Raises:
            RunError: If any part of it failed. The engine then refuses all further work.
        """
        running = self._ready()
        label = label_of(running.pool.run, version)
        try:
            running.pool.hold(version)
            running.thread.run(running.fleet.hold())
            running.ranks.gather(None)  # nobody takes a server with new weights for a lost one
            if running.fleet.leads:
                running.publisher.lead(version, label, source, running.fleet.participants)
            else:
                running.fleet.weights.sent = SentWeights(label, "known to the leader")
                if source.sharded:
                    running.publisher.gather_along(source)
            running.ranks.gather(None)  # all servers have the new ones
            running.thread.run(running.fleet.release())
            running.pool.release()
        except RlvrError as error:
            self._break(running, error)
            raise
        except BaseException as error:  # another process was lost, or the user has enough
            self._break(running, RunError(f"a weight sync was cut short: {one_line(error)}"))
            raise

    def fingerprint(self) -> dict[str, int]:
        """See ``FingerprintsWeights``; nothing in a process that does not lead the servers.

        Raises:
            RunError: If a server cannot read its weights back, or servers hold different ones.
        """
        running = self._ready()
        if not running.fleet.leads:
            return {}
        checksums: dict[str, int] = running.thread.run(running.fleet.fingerprint())
        return checksums

    @property
    def in_flight(self) -> frozenset[str]:
        """Supported treatments of unfinished requests at a sync."""
        return frozenset({"drain", "abort", "keep"})

    def begin(self) -> None:
        """Do nothing: submitted requests begin at once."""

    def abort(self) -> None:
        """Cancel the future of every request that is not finished, before it returns."""
        self._ready().pool.cancel()

    def metrics(self) -> dict[str, float]:
        """Servers, restarts and completions sent again since the last call; see ``Engine``."""
        running = self._running
        if running is None:
            return {}
        now = {
            "restarts": sum(server.restarts for server in running.fleet.servers),
            "resent": running.pool.resent,
        }
        since = {f"engine/{k}": float(v - running.counted.get(k, 0)) for k, v in now.items()}
        running.counted = now
        if running.fleet.leads:  # the others see the same servers
            ready = sum(server.ready for server in running.fleet.servers)
            since["engine/servers"] = float(ready)
        return since

    def take_events(self) -> list[str]:
        """Messages about lost and restarted servers since the last call.

        Only the process that leads the servers returns any: the others see the same servers.
        """
        running = self._running
        if running is None:
            return []
        events = running.fleet.events
        taken = events[:]
        del events[: len(taken)]
        return taken if running.fleet.leads else []

    def sleep(self) -> None:
        """Do nothing: the servers have devices of their own."""

    def wake(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Stop the servers that were started here; see ``Engine.close``."""
        running, self._running = self._running, None
        if running is None:
            return
        error = RunError("the engine was closed before the request was finished")
        running.pool.fail(error)
        running.publisher.close()
        clients = [server.client.close() for server in running.fleet.servers]
        running.thread.close(clients)
        for server in running.fleet.servers:
            if server.process is not None:
                server.process.kill()
        if running.folder is not None:
            shutil.rmtree(running.folder, ignore_errors=True)

    def _ready(self) -> _Running:
        if self._broken is not None:
            raise RunError(
                f"engine vllm-server is out of order since: {self._broken}",
                remedy="rlvr run --resume goes on from the last checkpoint",
            )
        if self._running is None:
            raise RuntimeError("engine vllm-server is not started")
        return self._running

    def _break(self, running: _Running, error: RlvrError) -> None:
        self._broken = error.complaints[0].what
        running.pool.fail(error)


NCCL = ChosenTransport("servers/nccl", f"{Nccl.__module__}:{Nccl.__name__}", "servers", {})
"""Transport between GPUs if the configuration names none."""


def chosen_transport(config: ServerConfig, context: EngineContext) -> ChosenTransport:
    """The transport of weights to the servers: as configured, else NCCL on GPUs, else files.

    Raises:
        MachineError: If it needs what this process has not.
    """
    configured: Any = context.transport
    if configured is None:
        if torch.cuda.is_available():
            return replace(NCCL, options={"timeout": config.deadline})
        return replace(FILES, options={"folder": config.folder})
    chosen: ChosenTransport = configured
    if chosen.target == NCCL.target and not torch.cuda.is_available():
        raise MachineError(
            "transport nccl needs a GPU, and this process has none",
            where="engine.transport",
            remedy="set engine.transport: files",
        )
    return chosen


def _all_elsewhere(urls: Sequence[str]) -> bool:
    """Whether all servers are on other machines, and this one's cores are the trainer's."""
    here = {"localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()}
    hosts = {urlsplit(url).hostname for url in urls}
    return bool(hosts) and not hosts & here


def _ranks() -> Ranks:
    """The processes that share the servers."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return Ranks()
    return Ranks(dist.get_rank(), dist.get_world_size())
