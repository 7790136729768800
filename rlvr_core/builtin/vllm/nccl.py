"""Weights to vLLM servers over NCCL: the trainer's end of vLLM's own weight transfer.

One NCCL group holds the trainer as rank 0 and behind it the workers of all servers, so a tensor is
broadcast to all of them at once. It is made anew when a server was replaced: a communicator cannot
outlive one of its members.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor

from rlvr_core.api import RunError
from rlvr_core.builtin.vllm.outgoing import Meta, Outgoing
from rlvr_core.builtin.vllm.pool import Server
from rlvr_core.builtin.vllm.process import first_line, import_vllm, untouched_process


class FanOut:
    """vLLM's control calls, made to every server at once and waited for.

    vLLM's trainer side calls this from a thread that is not the loop's.

    Args:
        loop: Where the clients live.
        servers: In the order of their workers' ranks.
        seconds: Any one call may take.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, servers: Sequence[Server], seconds: float
    ) -> None:
        self._loop, self._servers, self._seconds = loop, servers, seconds

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have each server's workers join, behind those of the servers before it."""
        offset, bodies = int(init_info["rank_offset"]), []
        for server in self._servers:
            bodies.append({"init_info": {**init_info, "rank_offset": offset}})
            offset += server.world
        self._all("/init_weight_transfer_engine", bodies)

    def start_weight_update(self) -> None:
        """Have them expect weights."""
        self._all("/start_weight_update", [{}] * len(self._servers))

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Have them receive what is described; returns when it is there."""
        self._all("/update_weights", [{"update_info": update_info}] * len(self._servers))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have them use it."""
        body = {} if weight_version is None else {"weight_version": weight_version}
        self._all("/finish_weight_update", [body] * len(self._servers))

    def leave(self) -> None:
        """Have those that still live leave the group."""
        with contextlib.suppress(Exception):  # whoever is gone has left
            self._all("/shutdown_weight_transfer_engine", [{}] * len(self._servers))

    def _all(self, path: str, bodies: Sequence[dict[str, Any]]) -> None:
        async def ask() -> None:
            calls = [
                server.client.call("POST", path, seconds=self._seconds, body=body)
                for server, body in zip(self._servers, bodies, strict=True)
            ]
            await asyncio.gather(*calls)

        asyncio.run_coroutine_threadsafe(ask(), self._loop).result()


class LabelledFanOut(FanOut):
    """The same, and the weights get their label as they are put to use."""

    label = ""

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have them use it under ``label``: vLLM's trainer side names none."""
        super().finish_weight_update(weight_version or self.label)


class NcclSender:
    """Sends the trainer's weights to all servers over NCCL.

    Args:
        loop: Where the clients live.
        seconds: A connection, and a transfer, may take.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop, self._seconds = loop, seconds
        self._members: tuple[tuple[str, int], ...] = ()
        self._client: LabelledFanOut | None = None
        self._engine: Any = None

    def send(
        self, servers: Sequence[Server], outgoing: Outgoing, meta: list[Meta], label: str
    ) -> None:
        """Start, broadcast and finish an update of all servers, which were paused before.

        A broadcast to a server that died cannot be called back: it is left to a thread that ends
        with the process, and the run ends with an error.

        Raises:
            RunError: If it failed, or was not finished in time.
        """
        done: Future[None] = Future()
        device = torch.cuda.current_device()

        def work() -> None:
            try:
                torch.cuda.set_device(device)
                self._send(servers, _Stream(outgoing, meta), label)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=work, name="nccl-weights", daemon=True).start()
        try:
            done.result(self._seconds)
        except TimeoutError as error:
            raise RunError(
                f"weights were not sent over NCCL within {self._seconds:g} s",
                remedy=(
                    "a server was lost in the middle of it, or NCCL finds no way to it: "
                    "NCCL_DEBUG=INFO tells, NCCL_SOCKET_IFNAME chooses the network",
                    "engine.with.transfer: files goes through files instead",
                ),
            ) from error
        except Exception as error:
            raise RunError(f"sending weights over NCCL failed: {first_line(error)}") from error

    def _send(self, servers: Sequence[Server], source: _Stream, label: str) -> None:
        members = tuple((server.name, server.born) for server in servers)
        if members != self._members or self._engine is None:
            self.close()
            self._connect(servers, source)
            self._members = members
        assert self._client is not None
        self._client.label = label
        self._engine.source = source
        torch.cuda.synchronize()  # what is sent was computed on another thread's stream
        with torch.no_grad():
            self._engine.send_weights()

    def _connect(self, servers: Sequence[Server], source: _Stream) -> None:
        import_vllm()
        with untouched_process():
            from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

            address, port = meeting_place(servers)
            self._client = LabelledFanOut(self._loop, servers, self._seconds)
            self._engine = WeightTransferTrainerFactory.trainer_init(
                NCCLTrainerInitInfo(
                    master_address=address,
                    master_port=port,
                    world_size=1 + sum(server.world for server in servers),
                    rank=0,
                ),
                client=self._client,
                source=source,
            )

    def close(self) -> None:
        """Leave the group; safe to call twice."""
        engine, self._engine, self._members = self._engine, None, ()
        if engine is not None:
            assert self._client is not None
            self._client.leave()
            engine.shutdown()


class _Stream:
    """Outgoing weights as vLLM's trainer side wants them."""

    def __init__(self, outgoing: Outgoing, meta: list[Meta]) -> None:
        self._outgoing, self._meta = outgoing, meta

    def metadata(self) -> list[Meta]:
        """Name, type and shape of each tensor, in order."""
        return self._meta

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors."""
        return iter(self._outgoing)


def meeting_place(servers: Sequence[Server]) -> tuple[str, int]:
    """An address of this machine that all servers reach, and a free port there (T31).

    The address is the one that packets to the first server elsewhere would leave from.
    """
    address = "127.0.0.1"
    hosts = [urlsplit(server.name).hostname for server in servers if server.process is None]
    for host in hosts:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((str(host), 9))  # sends nothing
            found = str(way.getsockname()[0])
            if not found.startswith("127."):
                address = found
                break
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])
