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
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from rlvr_core.api import (
    ComponentConfig,
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    Metric,
    RlvrError,
    RunError,
    WeightSource,
)
from rlvr_core.builtin.vllm.client import ServerClient, label_of
from rlvr_core.builtin.vllm.fit import check_server, declared_eos, gpus_of, key_of, over_nccl
from rlvr_core.builtin.vllm.fleet import Fleet, Patience
from rlvr_core.builtin.vllm.giving import Giving
from rlvr_core.builtin.vllm.io import room_for
from rlvr_core.builtin.vllm.lora import check_rank
from rlvr_core.builtin.vllm.lora import room_for as rank_room_for
from rlvr_core.builtin.vllm.nccl import NcclSender
from rlvr_core.builtin.vllm.outgoing import Snapshot
from rlvr_core.builtin.vllm.pool import Pool, Server
from rlvr_core.builtin.vllm.probe import Probe
from rlvr_core.builtin.vllm.process import first_line
from rlvr_core.builtin.vllm.serve import ServerProcess, arguments, private_folder
from rlvr_core.builtin.vllm.server_lora import NAME, AdapterFolder
from rlvr_core.builtin.vllm.server_lora import options as lora_options
from rlvr_core.builtin.vllm.sync import Sent, Weights
from rlvr_core.engines.loop_thread import LoopThread
from rlvr_core.engines.stop import StopStrings
from rlvr_core.parallel.ranks import Ranks


@dataclass(slots=True)
class _Running:
    """What exists between ``start`` and ``close``."""

    context: EngineContext
    ranks: Ranks
    run: str
    thread: LoopThread
    pool: Pool
    fleet: Fleet
    giving: Giving
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

    class Config(ComponentConfig):
        """Options of engine ``vllm-server``. Precision, lengths and seed are the run's."""

        servers: Annotated[int, Field(gt=0)] | None = None
        """Servers to start on this machine. null: one, or one per ``tensor_parallel`` engine
        GPUs."""
        urls: list[str] = []
        """Servers that run already, like ``http://gpu-7:8000``, instead of starting some."""
        gpus: list[Annotated[int, Field(ge=0)]] | None = None
        """GPUs of the started servers. null: those of ``rlvr launch --engine-gpus``."""
        tensor_parallel: Annotated[int, Field(gt=0)] = 1
        """GPUs of each started server."""
        transfer: Literal["auto", "files", "nccl"] = "auto"
        """How weights get there. ``files``: through shared memory or a folder. ``nccl``: over
        NCCL, from GPU to GPU. ``auto``: ``nccl`` if trainer and servers are on GPUs."""
        folder: str | None = None
        """Folder for ``files``, which the servers see at the same place. null: shared memory, or
        where that is too small the temporary folder."""
        restarts: Annotated[int, Field(ge=0)] = 3
        """How often each started server is started again in a run when it dies or hangs. With
        ``nccl`` and a number above 0 a copy of the weights is kept in ``folder`` for that."""
        deadline: Annotated[float, Field(gt=0)] = 600.0
        """Seconds a server may take to start, and for each step of taking weights; if others run
        it, also to come back."""
        hang_after: Annotated[float, Field(gt=0)] = 120.0
        """Seconds a server's engine may say nothing before it is taken for hung."""
        max_in_flight: Annotated[int, Field(gt=0)] = 256
        """Completions that one process has at one server at a time; the others wait for the server
        with least to do."""
        api_key_env: str | None = None
        """Environment variable with the key that servers of ``urls`` want."""
        gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
        """Share of a GPU's memory for a started server. Not used on a CPU."""
        kv_cache_mb: Annotated[int, Field(gt=0)] | None = None
        """Size of a started server's KV cache in MiB. null: what ``gpu_memory_utilization`` leaves
        on a GPU, 512 on a CPU."""
        block_size: Annotated[int, Field(gt=0)] | None = None
        """Tokens per block of the KV cache. null: vLLM's choice on a GPU, 32 on a CPU."""
        enforce_eager: bool | None = None
        """No compilation and no CUDA graphs. null: true on a CPU, false on a GPU."""
        max_num_seqs: Annotated[int, Field(gt=0)] | None = None
        """Completions a started server generates at a time. null: vLLM's choice."""
        lora: Literal["merged", "adapter"] = "merged"
        """How a run with ``model.lora`` brings its weights here: ``merged`` into the base model, or
        the ``adapter`` alone, which vLLM then computes beside the base."""

        @model_validator(mode="after")
        def _one_kind(self) -> VllmServerEngine.Config:
            if self.urls:
                ours = {"servers", "gpus", "tensor_parallel", "gpu_memory_utilization"}
                ours |= {"kv_cache_mb", "block_size", "enforce_eager", "max_num_seqs", "restarts"}
                if extra := sorted(ours & self.model_fields_set):
                    raise ValueError(f"urls are of running servers, so {extra[0]} has no effect")
                if len(set(self.urls)) != len(self.urls):
                    raise ValueError("urls names a server twice")
            elif self.api_key_env is not None:
                raise ValueError("api_key_env is for urls: servers that are started want no key")
            if self.lora == "adapter" and self.urls:
                raise ValueError("an adapter goes to servers that are started here: for urls merge")
            if self.lora == "adapter" and self.transfer == "nccl":
                raise ValueError("an adapter goes through files: leave transfer out, or merge it")
            return self

    traits = EngineTraits(separate=True)

    def __init__(self, config: Config) -> None:
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
            ConfigError: If a server does not fit the run, or it is to take adapters and there are
                none.
        """
        if self._running is not None:
            raise RuntimeError("engine vllm-server was started twice")
        if self.config.lora == "adapter":
            check_rank(context.adapter_rank, "vllm-server")
        ranks = _ranks()
        machine = os.environ.get("GROUP_RANK", "0")
        leads = ranks.main if self.config.urls else os.environ.get("LOCAL_RANK", "0") == "0"
        thread = LoopThread()
        try:
            self._running = thread.spawn(self._build(context, ranks, thread, leads)).result(
                self.config.deadline
            )
            fleet = self._running.fleet
            if leads:
                thread.spawn(fleet.start()).result()
            told = {"machine": machine, "leads": leads, "run": self._running.run}
            told["sockets"] = [str(one.process.socket) for one in fleet.servers if one.process]
            told["strange"] = [one.name for one in fleet.servers if one.strange]
            every = ranks.gather(told)
            if not leads:
                of_all = bool(self.config.urls)
                leader = next(
                    one for one in every if one["leads"] and (of_all or one["machine"] == machine)
                )
                thread.spawn(self._follow(leader)).result()
        except BaseException:
            self.close()
            thread.close()
            raise

    async def _build(
        self, context: EngineContext, ranks: Ranks, thread: LoopThread, leads: bool
    ) -> _Running:
        config = self.config
        folder: Path | None = None
        adapter: AdapterFolder | None = None
        servers: list[Server] = []
        if config.urls:
            key = key_of(config.api_key_env)
            servers = [Server(url, ServerClient(url, key)) for url in config.urls]
        elif leads:
            places = gpus_of(config)
            folder = private_folder()
            if config.lora == "adapter":
                adapter = AdapterFolder(folder)
                adapter.write_zero(context)
            for index, gpus in enumerate(places):
                words = arguments(config, context, cpu=not gpus)
                if adapter is not None:
                    words = (*words, *lora_options(adapter.zero, rank_room_for(context)))
                process = ServerProcess(f"server {index}", folder, words, gpus)
                client = ServerClient(process.socket, model=self._model)
                servers.append(Server(process.name, client, process))
        stop_strings = StopStrings(context.tokenizer)
        pool = Pool(servers, stop_strings, declared_eos(context), config.max_in_flight)
        nccl = None
        if config.lora == "merged" and over_nccl(config) and leads:
            nccl = NcclSender(thread.loop, config.deadline)
        keeps = leads and (nccl is None or (config.restarts > 0 and not config.urls))
        place = None if config.folder is None else Path(config.folder)
        snapshot = Snapshot(place) if keeps and adapter is None else None
        probe = Probe(context.tokenizer, context.dtype, context.max_model_len)
        run = secrets.token_hex(4)
        fleet = Fleet(
            pool=pool,
            patience=Patience(config.deadline, config.hang_after, config.restarts),
            check=partial(check_server, context, probe, nccl is not None),
            leads=leads,
            weights=Weights(Sent(label_of(run, 0)), snapshot, probe, config.deadline, adapter),
        )
        pool.run = run
        giving = Giving(context, thread, pool, fleet, nccl, alone=config.lora == "adapter")
        return _Running(context, ranks, run, thread, pool, fleet, giving, folder)

    async def _follow(self, leader: Mapping[str, Any]) -> None:
        """Use the servers that another process leads."""
        running = self._running
        assert running is not None
        running.run = running.pool.run = leader["run"]
        running.fleet.weights.sent.label = label_of(running.run, 0)
        if not self.config.urls:
            for socket in map(Path, leader["sockets"]):
                name = socket.stem.replace("-", " ")
                client = ServerClient(socket, model=self._model)
                running.pool.servers.append(Server(name, client))
        for server in running.pool.servers:
            server.strange = server.name in leader["strange"]
        await running.fleet.start()

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; see ``Engine.submit``. Its future is resolved by another thread.

        A completion ends by length where prompt and completion reach the engine's limit.

        Raises:
            RunError: If the prompt is empty, or leaves no room for a token; or if no server is
                left.
        """
        running = self._ready()
        room = room_for(request, running.context.max_model_len)
        strange = [one.name for one in running.fleet.servers if one.strange]
        if strange:
            raise RunError(
                f"vLLM server {strange[0]} holds the weights of an earlier run",
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
        label = label_of(running.run, version)
        try:
            running.pool.hold(version)
            self._on_loop(running.fleet.hold())
            running.ranks.gather(None)  # nobody takes a server with new weights for a lost one
            if running.fleet.leads:
                running.giving.lead(version, label, source)
            else:
                running.fleet.weights.sent = Sent(label, "known to the leader")
                if source.sharded:
                    running.giving.along(source)
            running.ranks.gather(None)  # all servers have the new ones
            self._on_loop(running.fleet.release())
            running.pool.release()
        except RlvrError as error:
            self._break(running, error)
            raise
        except BaseException as error:  # another process was lost, or the user has enough
            self._break(running, RunError(f"a weight sync was cut short: {first_line(error)}"))
            raise

    @property
    def _model(self) -> str | None:
        return NAME if self.config.lora == "adapter" else None

    def _on_loop(self, work: Any) -> Any:
        """The result of a coroutine; each of its waits has a deadline of its own."""
        assert self._running is not None
        return self._running.thread.spawn(work).result()

    @property
    def in_flight(self) -> frozenset[str]:
        """What it can do with unfinished requests at a sync."""
        return frozenset({"drain", "abort", "keep"})

    def begin(self) -> None:
        """Nothing to do: what is submitted is begun at once."""

    def abort(self) -> None:
        """Cancel the future of every request that is not finished, before it returns."""
        self._ready().pool.cancel()

    def metrics(self) -> dict[str, float]:
        """What became of the servers, since this was asked before; see ``Engine``."""
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
        """What happened to the servers, in words, since this was asked before.

        The process that leads them tells; what the others see is the same.
        """
        running = self._running
        if running is None:
            return []
        events = running.fleet.events
        taken = events[:]
        del events[: len(taken)]
        return taken if running.fleet.leads else []

    def sleep(self) -> None:
        """Nothing to give back: the servers have devices of their own."""

    def wake(self) -> None:
        """Nothing to undo."""

    def close(self) -> None:
        """Stop the servers that were started here; see ``Engine.close``."""
        running, self._running = self._running, None
        if running is None:
            return
        error = RunError("the engine was closed before the request was finished")
        running.pool.fail(error)
        if running.giving.nccl is not None:
            running.giving.nccl.close()
        clients = [server.client.close() for server in running.fleet.servers]
        running.thread.close(clients)
        for server in running.fleet.servers:
            if server.process is not None:
                server.process.kill()
        if running.fleet.weights.snapshot is not None:
            running.fleet.weights.snapshot.close()
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
