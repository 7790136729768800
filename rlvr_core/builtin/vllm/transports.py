"""The transports of vLLM servers: files that they read, and NCCL from GPU to GPU.

Both ends make a ``Fingerprint`` of what passes, so that a lost or changed tensor is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.api import (
    ComponentConfig,
    Json,
    MachineError,
    NamedTensors,
    OutgoingWeights,
    RlvrError,
    RunError,
    TensorMeta,
    TransportLink,
    TransportTraits,
)
from rlvr_core.builtin.vllm.process import first_line, import_vllm, untouched_process

_PART_BYTES = 1 << 30
_SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "rlvr-weights-"
_LOCK = "lock"
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Fingerprint:
    """A fingerprint of a stream of weights: equal at both ends of a transfer, or it went wrong.

    Tensors come in any order. Of each it takes the name, type, shape and the sum of its bits as
    integers: exact, so the same on every device whatever the order of the additions, and cheap.
    """

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        """Add a tensor of any dtype and shape."""
        bits = tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])
        total = int(bits.sum(dtype=torch.int64))
        self._parts[name] = f"{name} {tensor.dtype} {tuple(tensor.shape)} {total}"

    def __len__(self) -> int:
        """Number of tensors added."""
        return len(self._parts)

    def digest(self) -> str:
        """Return 32 hexadecimal digits over everything added."""
        text = "\n".join(self._parts[name] for name in sorted(self._parts))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Files:
    """Transport ``files``: the last weights sent, in safetensors files of one gigabyte.

    In shared memory where there is room, so that nothing is written to a disk. What is old is
    removed before the new comes: one copy exists at a time.
    """

    traits = TransportTraits(lasting=True)

    class Config(ComponentConfig):
        """Where the files are."""

        folder: str | None = None
        """A folder that trainer and engine see at the same place. null: shared memory, or where
        that is too small the temporary folder."""

    def __init__(self, config: Config) -> None:
        self._parent = None if config.folder is None else Path(config.folder)
        self._folder: Path | None = None
        self._part: dict[str, Tensor] = {}
        self._bytes = 0
        self._lock = -1
        self.files: list[str] = []

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Write the files, and say where they are.

        Raises:
            MachineError: If there is no room for them.
        """
        for _ in self.keep(weights):
            pass
        link.deliver(self.message())

    def message(self) -> dict[str, Json]:
        """The message that names the files."""
        return {"files": list(self.files)}

    def keep(self, weights: OutgoingWeights) -> Iterator[tuple[str, Tensor]]:
        """Hand weights on while they are written.

        Raises:
            MachineError: If there is no room for them.
        """
        self._place(n_bytes(weights.tensors))
        for file in self.files:
            Path(file).unlink(missing_ok=True)
        self.files, self._part, self._bytes = [], {}, 0
        for name, tensor in weights:
            # a copy: what shares memory cannot be saved, and what is trained on will change
            self._part[name] = tensor.detach().to("cpu", copy=True).contiguous()
            self._bytes += tensor.numel() * tensor.element_size()
            if self._bytes >= _PART_BYTES:
                self._write()
            yield name, tensor
        if self._part:
            self._write()

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Read the files."""
        content: Any = message
        load(_from_files(content["files"]))

    def close(self) -> None:
        """Remove the files."""
        self.files = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None

    def _place(self, needed: int) -> None:
        """Choose a folder with room for so many bytes, before the first weights."""
        if self._folder is not None:
            return
        candidates = [_SHARED_MEMORY, Path(tempfile.gettempdir())]
        candidates = [self._parent] if self._parent is not None else candidates
        for parent in candidates:
            if parent.is_dir() and shutil.disk_usage(parent).free > 1.05 * needed:
                _sweep(parent)
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                self._lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                return
        raise _no_room(needed, candidates)

    def _write(self) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        assert self._folder is not None
        file = self._folder / f"part-{len(self.files):05d}.safetensors"
        try:
            save_file(self._part, file)
        except (OSError, SafetensorError) as error:
            raise _no_room(self._bytes, [self._folder], f": {first_line(error)}") from error
        self.files.append(str(file))
        self._part, self._bytes = {}, 0


def _no_room(needed: int, folders: Sequence[Path], why: str = "") -> MachineError:
    return MachineError(
        f"no room for a copy of the weights, {needed / 2**30:.2f} GiB, in "
        f"{' or '.join(map(str, folders))}{why}",
        where="engine",
        remedy="engine.transport: {use: files, with: {folder: ...}} names a folder with room, "
        "which the servers can read",
    )


def folder_on_disk(messages: Sequence[Json]) -> str | None:
    """Return the folder of sent files that lie outside shared memory; None of others."""
    content: Any = messages[-1] if messages else None
    files = content.get("files") if isinstance(content, dict) else None
    folder = Path(files[0]).parent if files else None
    return str(folder) if folder is not None and folder.parent != _SHARED_MEMORY else None


def n_bytes(tensors: Sequence[TensorMeta]) -> int:
    """Total size of the tensors in bytes."""
    return sum(math.prod(meta.shape) * meta.dtype.itemsize for meta in tensors)


def _from_files(files: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                yield name, tensors.get_tensor(name)


def _sweep(parent: Path) -> None:
    """Remove the files of trainers that were killed: nobody holds their lock any more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or being made or removed right now
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


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
            raise RunError(f"sending weights over NCCL failed: {first_line(error)}") from error

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


class GroupClient:
    """vLLM's control calls, made to every receiver; vLLM calls these from threads of its own."""

    def __init__(self, link: TransportLink) -> None:
        self._link = link

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have the receivers join the group."""
        self._link.deliver({"join": init_info})

    def start_weight_update(self) -> None:
        """Nothing: the engine opens the transaction."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Have them receive what is described; returns when it is there."""
        self._link.deliver({"tensors": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Nothing: the engine ends the transaction."""


class _VllmSource:
    """Outgoing weights as vLLM's trainer side wants them."""

    def __init__(self, weights: OutgoingWeights) -> None:
        self._weights = weights

    def metadata(self) -> list[TensorMeta]:
        """Name, type and shape of each tensor, in order."""
        return list(self._weights.tensors)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._weights)


def meeting_place(hosts: Sequence[str]) -> tuple[str, int]:
    """An address of this machine that all these hosts reach, and a free port there (T31).

    The address is the one that packets to the first host elsewhere would leave from.
    """
    address = "127.0.0.1"
    for host in hosts:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((host, 9))  # sends nothing
            candidate = str(way.getsockname()[0])
            if not candidate.startswith("127."):
                address = candidate
                break
    with socket.socket() as probe:
        probe.bind((address, 0))
        return address, int(probe.getsockname()[1])
