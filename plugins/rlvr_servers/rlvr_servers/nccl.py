"""Transport ``nccl``: weights from GPU to GPU, to the workers of vLLM servers."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.api import (
    ComponentConfig,
    Json,
    NamedTensors,
    OutgoingWeights,
    RlvrError,
    RunError,
    TensorMeta,
    TransportLink,
    TransportTraits,
    one_line,
)
from rlvr_core.engines.vllm.process import import_vllm, untouched_process


class Nccl:
    """Transport ``nccl``: every tensor is broadcast to the workers of all servers at once.

    One NCCL group holds the trainer as rank 0 and behind it the receivers. It is made anew when
    one of them was replaced: a communicator cannot outlive one of its members. A broadcast to a
    receiver that died cannot be called back: it is left to a thread that ends with the process,
    and the run ends with an error.
    """

    traits = TransportTraits()

    class Config(ComponentConfig):
        """How long is waited."""

        timeout: Annotated[float, Field(gt=0)] = 600.0
        """Seconds that connecting and one transfer may take together."""

    def __init__(self, config: Config) -> None:
        self._timeout = config.timeout
        self._members: tuple[str, ...] = ()
        self._sender: Any = None
        self._group: Any = None
        self._connection: Any = None

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Broadcast the weights.

        Raises:
            RunError: If it failed, or was not finished in time.
        """
        done: Future[None] = Future()
        device = torch.cuda.current_device()

        def work() -> None:
            try:
                torch.cuda.set_device(device)
                self._broadcast(_VllmSource(weights), link)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=work, name="nccl-weights", daemon=True).start()
        try:
            done.result(self._timeout)
        except TimeoutError as error:
            raise RunError(
                f"weights were not sent over NCCL within {self._timeout:g} s",
                remedy=(
                    "a server was lost in the middle of it, or NCCL finds no way to it: "
                    "NCCL_DEBUG=INFO tells, NCCL_SOCKET_IFNAME chooses the network",
                    "engine.transport: files goes through files instead",
                ),
            ) from error
        except RlvrError:
            raise
        except Exception as error:
            raise RunError(f"sending weights over NCCL failed: {one_line(error)}") from error

    def _broadcast(self, source: _VllmSource, link: TransportLink) -> None:
        if link.members != self._members or self._sender is None:
            if self._sender is not None:
                link.deliver({"leave": True})
                self._sender.shutdown()
            self._sender, self._members = _connect(source, link), link.members
        self._sender.client, self._sender.source = GroupClient(link), source
        torch.cuda.synchronize()  # what is sent was computed on another thread's stream
        with torch.no_grad():
            self._sender.send_weights()

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Join the trainer's group, take part in its broadcast, or leave it.

        Raises:
            RuntimeError: If weights are to come, and no trainer has connected.
        """
        content: Any = message
        if "leave" in content or "join" in content:
            self.close()
        if "join" in content:
            from vllm.distributed.weight_transfer.nccl_common import stateless_init_process_group

            self._connection = content["join"]
            self._group = stateless_init_process_group(
                self._connection["master_address"],
                self._connection["master_port"],
                self._connection["rank_offset"] + index,
                self._connection["world_size"],
                torch.cuda.current_device(),
            )
        if "tensors" in content:
            self._take_part(content["tensors"], load)

    def _take_part(self, content: dict[str, Any], load: Callable[[NamedTensors], None]) -> None:
        from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_consumer

        if self._group is None:
            raise RuntimeError("weights are to come over NCCL, and no trainer has connected")
        described = zip(content["names"], content["dtype_names"], content["shapes"], strict=True)
        packed_nccl_broadcast_consumer(
            iterator=((name, (shape, getattr(torch, dtype))) for name, dtype, shape in described),
            group=self._group,
            src=0,
            post_unpack_func=load,
            buffer_size_bytes=self._connection["packed_buffer_size_bytes"],
            num_buffers=self._connection["packed_num_buffers"],
            device=torch.device("cuda", torch.cuda.current_device()),
        )

    def close(self) -> None:
        """Leave the group."""
        sender, self._sender, self._members = self._sender, None, ()
        group, self._group = self._group, None
        if sender is not None:
            sender.shutdown()
        if group is not None:
            group.destroy()


def _connect(source: _VllmSource, link: TransportLink) -> Any:
    """VLLM's trainer side of a new group with the receivers."""
    import_vllm()
    with untouched_process():
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        address, port = meeting_place(link.remote_hosts)
        return WeightTransferTrainerFactory.trainer_init(
            NCCLTrainerInitInfo(
                master_address=address,
                master_port=port,
                world_size=1 + link.receivers,
                rank=0,
            ),
            client=GroupClient(link),
            source=source,
        )


def meeting_place(hosts: Sequence[str]) -> tuple[str, int]:
    """An address of this machine that these hosts reach, and a free port there."""
    address = next(filter(None, map(_source, hosts)), "127.0.0.1")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])


def _source(host: str) -> str | None:
    """The address that packets to a host leave from; None for this machine's loopback."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, place in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as way:
                way.connect(place)  # sends nothing
                address = str(way.getsockname()[0])
                if not ipaddress.ip_address(address).is_loopback:
                    return address
    return None


class GroupClient:
    """vLLM's control calls, made to every receiver; vLLM calls these from threads of its own."""

    def __init__(self, link: TransportLink) -> None:
        self._link = link

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have the receivers join the group."""
        self._link.deliver({"join": init_info})

    def start_weight_update(self) -> None:
        """Do nothing: the engine opens the transaction."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Have them receive what is described; returns when it is there."""
        self._link.deliver({"tensors": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Do nothing: the engine ends the transaction."""


class _VllmSource:
    """Outgoing weights as vLLM's trainer side wants them."""

    def __init__(self, weights: OutgoingWeights) -> None:
        self._weights = weights

    def metadata(self) -> list[TensorMeta]:
        """Name, type and shape of each tensor, in order."""
        return list(self._weights.tensors)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._weights)
