"""Transport ``tcp``: the last weights sent, mapped on this machine and fetched once by each other.

See ``docs/engines.md``. The weights are kept as ``files`` keeps them; ``tcp_server`` serves them,
``tcp_fetch`` fetches them, ``tcp_copy`` is what the receivers of another machine share.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_core.api import (
    ComponentConfig,
    Json,
    MachineError,
    NamedTensors,
    OutgoingWeights,
    TransportLink,
    TransportTraits,
)
from rlvr_core.builtin.vllm.addresses import local_address
from rlvr_core.builtin.vllm.files import Files, read_files
from rlvr_core.builtin.vllm.tcp_copy import MachineCopy
from rlvr_core.builtin.vllm.tcp_fetch import Fetch
from rlvr_core.builtin.vllm.tcp_relay import Relay
from rlvr_core.builtin.vllm.tcp_server import WeightServer
from rlvr_core.builtin.vllm.tcp_wire import Place, replaced

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the sender, and what tells it from any other of the same name elsewhere."""

    path: str
    size: int
    device: int
    inode: int

    @classmethod
    def of(cls, path: str) -> _File:
        found = Path(path).stat()
        return cls(path, found.st_size, found.st_dev, found.st_ino)

    def is_here(self) -> bool:
        """Whether this process sees this very file."""
        with contextlib.suppress(OSError):
            return _File.of(self.path) == self
        return False


class Tcp:
    """The weights are served over TCP by the process that sends them."""

    traits = TransportTraits(lasting=True)

    class Config(ComponentConfig):
        """Where copies are, and how they are fetched."""

        folder: str | None = None
        """Where the sender, and each other machine, keeps its copy. null: shared memory, or where
        that is too small the temporary folder."""
        connections: Annotated[int, Field(gt=0, le=64)] = 8
        """Connections of one machine to the sender."""
        timeout: Annotated[float, Field(gt=0)] = 60.0
        """Seconds without a byte until a machine gives up."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files = Files(Files.Config(folder=config.folder))
        self._sender, self._key = secrets.token_hex(8), secrets.token_bytes(32)
        self._number = 0
        self._server: WeightServer | None = None
        self._received: _Received | None = None

    def send(self, weights: OutgoingWeights, link: TransportLink) -> None:
        """Keep the weights, serve them, and say where they are.

        Raises:
            MachineError: If there is no room for them, or no port.
        """
        server = self._listen(link)
        server.withdraw()
        for _ in self._files.keep(weights):
            pass
        self._number += 1
        server.publish(self._number, [Path(file) for file in self._files.files])
        link.deliver(
            {
                "sender": self._sender,
                "number": self._number,
                "boot": _boot_id(),
                "files": [asdict(_File.of(file)) for file in self._files.files],
                "host": server.place.host,
                "port": server.place.port,
                "key": self._key.hex(),
            }
        )

    def receive(self, message: Json, load: Callable[[NamedTensors], None], index: int) -> None:
        """Map the files: the sender's, or this machine's copy of them.

        Raises:
            RunError: If they do not come, or newer ones have taken their place.
            MachineError: If there is no room for a copy.
        """
        content: Any = message
        files = [_File(**one) for one in content["files"]]
        here = content["boot"] == _boot_id() and all(one.is_here() for one in files)
        paths = [one.path for one in files] if here else self._fetched(content, files)
        try:
            load(read_files(paths))
        except FileNotFoundError as error:
            raise replaced(content["number"]) from error

    def close(self) -> None:
        """Stop serving, and remove the files."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._files.close()
        received, self._received = self._received, None
        if received is not None:
            received.close()

    def _listen(self, link: TransportLink) -> WeightServer:
        """Serve at the address by which others reach this machine, which may change."""
        host = local_address(link.remote_hosts)
        if self._server is not None and self._server.place.host != host:
            self._server.close()
            self._server = None
        if self._server is None:
            try:
                self._server = WeightServer(host, self._key)
            except OSError as error:
                raise MachineError(
                    f"weights cannot be served at {host}: {error}",
                    where="engine.transport",
                    remedy="engine.transport: {use: files, with: {folder: ...}} goes through a "
                    "folder that all machines see",
                ) from error
        return self._server

    def _fetched(self, content: Any, files: list[_File]) -> list[str]:
        sender = str(content["sender"])
        place = Place(content["host"], content["port"])
        if self._received is None or (sender, place) != self._received.of:
            if self._received is not None:
                self._received.close()
            self._received = _Received(self._config, sender, place, bytes.fromhex(content["key"]))
        return self._received.files(content["number"], [one.size for one in files])


class _Received:
    """What a receiver on another machine has of one sender.

    Args:
        config: Options of the transport.
        sender: Its name.
        place: Where it serves.
        key: Its key.
    """

    def __init__(self, config: Tcp.Config, sender: str, place: Place, key: bytes) -> None:
        self._config, self._place, self._key = config, place, key
        self.of = (sender, place)
        self._relay = Relay(place, key)
        folder = config.folder
        self._copy = MachineCopy(None if folder is None else Path(folder), sender, _boot_id())

    def files(self, number: int, sizes: Sequence[int]) -> list[str]:
        """Return the files of some weights, fetched if no receiver of this machine has."""
        return self._copy.files(number, sizes, partial(self._fetch, number))

    def close(self) -> None:
        """Serve no longer, and leave the copy."""
        self._relay.close()
        self._copy.close()

    def _fetch(self, number: int, files: Sequence[tuple[Path, int]]) -> None:
        source = self._relay.source(number)
        limits = (self._config.connections, self._config.timeout)
        transfer = Fetch(source, self._place, self._key, number, files, *limits)
        transfer.run()
        self._relay.serve(
            number,
            [path for path, _ in files],
            partial(self._copy.drop, number),
            source_failed=transfer.fell_back,
        )


def _boot_id() -> str:
    """Which start of which machine this is, the same in all of its containers; or nothing."""
    with contextlib.suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""
