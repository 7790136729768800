"""Completions per second of 1, 2 and 4 rollout actors whose engine takes 2 seconds for a batch.

    python benchmarks/ray_actors.py [--actors 1 2 4] [--seconds 2] [--batch 8] [--completions 64]

The engine waits instead of computing, so that the figures show what is lost between actors, on
however few cores: the dealing of requests, Ray's messages, and the end of each step, when some
actors have nothing left. A cluster of this machine is started for it and ended afterwards. Needs
``pip install rlvr-core[ray]``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rlvr_cluster.ray.engine import RayEngine
from rlvr_core.api import (
    ComponentConfig,
    EngineContext,
    EngineTraits,
    Generation,
    GenerationRequest,
    SamplingParams,
    WeightSource,
)
from rlvr_core.testing.contexts import tiny_context

TOKENS = 64
STEPS = 3


class Waiting:
    """An engine that takes a while for each batch, and no processor."""

    traits = EngineTraits(own_weights=True)

    class Config(ComponentConfig):
        """How long, for how much."""

        seconds: float
        """Seconds a batch takes."""
        batch: int
        """Completions in a batch."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._queue: list = []

    def start(self, context: EngineContext) -> None:
        """Nothing to start."""

    def submit(self, request: GenerationRequest) -> Future:
        """See ``Engine.submit``."""
        future: Future = Future()
        self._queue.append((request, future))
        return future

    def drain(self, timeout: float | None = None) -> None:
        """Take the time of as many batches as the queue makes."""
        queue, self._queue = self._queue, []
        n = sum(len(request.seeds) for request, _ in queue)
        time.sleep(self._config.seconds * -(-n // self._config.batch))
        ids = tuple(range(TOKENS))
        one = Generation(ids, (-1.0,) * TOKENS, "x" * TOKENS, "stop", 0)
        for request, future in queue:
            future.set_result((one,) * len(request.seeds))

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Nothing to load."""

    def sleep(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """Nothing to undo."""

    def close(self) -> None:
        """Nothing to close."""


def seconds_a_step(
    context: EngineContext, address: str, actors: int, args: argparse.Namespace
) -> float:
    """Mean seconds to generate all completions of a step, over three steps."""
    options = {"seconds": args.seconds, "batch": args.batch}
    engine = {"use": f"{Path(__file__).resolve()}:Waiting", "with": options}
    config = RayEngine.Config(
        engine=engine, actors=actors, address=address, max_in_flight=args.batch
    )
    made = RayEngine(config)
    made.start(context)
    try:
        begun = time.perf_counter()
        for step in range(STEPS):
            futures = [
                made.submit(
                    GenerationRequest(
                        f"r{step}.{i}", (5, 6), SamplingParams(max_tokens=TOKENS), (1, 2, 3, 4)
                    )
                )
                for i in range(args.completions // 4)
            ]
            made.drain(600)
            assert sum(len(future.result(0)) for future in futures) == args.completions
        return (time.perf_counter() - begun) / STEPS
    finally:
        made.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--completions", type=int, default=64)
    args = parser.parse_args()
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        while len(cluster.list_all_nodes()) * 2 < max(args.actors):
            cluster.add_node(**node)
        with tempfile.TemporaryDirectory() as folder:
            context = tiny_context(Path(folder))
            print("| actors | seconds a step | completions per second | times one actor |")
            print("|---|---|---|---|")
            first = None
            for actors in args.actors:
                spent = seconds_a_step(context, cluster.address, actors, args)
                first = first or spent
                rate = args.completions / spent
                print(f"| {actors} | {spent:.2f} | {rate:.2f} | {first / spent:.2f} |", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
