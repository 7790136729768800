"""Weights by transports ``files`` and ``tcp`` over this machine's loopback, against a plain copy.

    OMP_NUM_THREADS=1 python benchmarks/weights_tcp.py [--megabytes 512] [--rounds 5]

Seconds of the clock and of processor time (both ends together) for a gigabyte; the median of
interleaved rounds. On a busy machine the ratios of processor time are what repeats.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from rlvr_core.api import Json, TensorMeta
from rlvr_core.builtin.vllm.files import Files
from rlvr_core.builtin.vllm.tcp import Tcp


class Weights:
    """See ``OutgoingWeights``."""

    def __init__(self, megabytes: int) -> None:
        self._named = {f"w{i}": torch.randn(megabytes * 2**20 // 32) for i in range(8)}
        self.tensors = [
            TensorMeta(name, one.dtype, tuple(one.shape)) for name, one in self._named.items()
        ]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._named.items())


class Link:
    """See ``TransportLink``."""

    receivers, members, remote_hosts = 1, ("receiver",), ()

    def deliver(self, message: Json) -> None:
        """Keep a message."""
        self.message: Any = message


def receive(pipe: Connection, connections: int) -> None:
    """Receive what each message brings; say how much processor time it took."""
    transport = Tcp(Tcp.Config(connections=connections))
    while (message := pipe.recv()) is not None:
        began = time.process_time()
        read: deque[tuple[str, Tensor]] = deque(maxlen=0)
        transport.receive(message, read.extend, 0)
        pipe.send(time.process_time() - began)
    transport.close()


def fill(copy: list[Tensor], weights: Weights) -> None:
    """Copy the weights to memory that is there."""
    for one, (_, tensor) in zip(copy, weights, strict=True):
        one.copy_(tensor)


def timed(work: Callable[[], float | None]) -> tuple[float, float]:
    """Seconds of the clock, and of processor time with what the work returns."""
    clock, processor = time.perf_counter(), time.process_time()
    other = work() or 0.0
    return time.perf_counter() - clock, time.process_time() - processor + other


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    weights, link = Weights(args.megabytes), Link()
    copy = [torch.empty_like(one) for _, one in weights]
    files, tcp = Files(Files.Config()), Tcp(Tcp.Config())
    found: dict[str, list[tuple[float, float]]] = {}

    def measure(name: str, work: Callable[[], Any]) -> None:
        found.setdefault(name, []).append(timed(work))

    for _ in range(args.rounds):
        measure("plain copy", lambda: fill(copy, weights))
        measure("files: send", lambda: files.send(weights, link))
        measure("tcp: send", lambda: tcp.send(weights, link))
        for connections in (0, 1, 8):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(
                target=receive, args=(theirs, connections or 1), daemon=True
            )
            process.start()
            message = link.message | ({"boot": "another machine"} if connections else {})

            def ask(message: Any = message, pipe: Connection = ours) -> float:
                pipe.send(message)
                return float(pipe.recv())

            where = f"fetch, {connections} connections" if connections else "map"
            measure(f"tcp: {where}", ask)
            ours.send(None)
            process.join()
    files.close()
    tcp.close()
    gigabytes = args.megabytes * 2**20 / 1e9
    for name, rounds in found.items():
        clock, processor = (statistics.median(one) / gigabytes for one in zip(*rounds, strict=True))
        print(f"{name:28} {clock:8.3f} s {processor:8.3f} s of processor time a gigabyte")


if __name__ == "__main__":
    main()
