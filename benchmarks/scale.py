"""Where a run on hundreds of GPUs would wait: its steps simulated, with costs measured here.

    python benchmarks/scale.py --measure costs.json
    python benchmarks/scale.py --simulate costs.json --gpus 8 64 256 1024
    python benchmarks/scale.py --validate costs.json

``--measure`` takes the costs of single units on this machine: a token recorded, a token sent, a
problem drawn, a completion counted, a verdict fetched, a byte of weights written. ``--simulate``
follows every completion of a step through engines, the training process 0 (one thread), verifier
workers and the trainer. ``--validate`` holds the simulation against two Ray actors of this machine
whose engine waits. What GPUs do is assumed (``Speeds``), not measured.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import multiprocessing
import os
import pickle
import random
import tempfile
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.api import Group

os.environ.setdefault("OMP_NUM_THREADS", "1")

TOKENS = 32_768
DRAWN_FROM = 100_000


@dataclass(frozen=True)
class Costs:
    """Seconds of one unit, on one thread of process 0 unless said otherwise.

    Attributes:
        record: Of a token in ``rollouts.jsonl``: a judged group's line as JSON, and the write.
        receive: Of a token that arrives from an engine: unpickled.
        draw: Of a problem drawn by ``core/difficulty`` from ``DRAWN_FROM``, and its outcome.
        count: Of a completion in the ledger.
        ask: Of a verdict asked and fetched over a pipe, without the verifier.
        verify: Of a verifier worker, for a verdict.
        publish: Of a byte of weights written to shared memory.
    """

    record: float
    receive: float
    draw: float
    count: float
    ask: float
    verify: float
    publish: float


@dataclass(frozen=True)
class Speeds:
    """Assumed: a model of 7e9 parameters on cards of 80 GB.

    Attributes:
        generate: Tokens a second of one completion.
        slots: Completions that one GPU makes at a time.
        train: Tokens a second of one GPU in training.
        weights: Bytes of the weights.
        fetch: Bytes a second that the engines of one machine read weights with.
        share: GPUs that generate, of all.
        completions: Completions of a step for each GPU.
        workers: Verifier workers for each GPU.
        mean: Mean tokens of a completion; the longest is ``TOKENS``.
    """

    generate: float = 40.0
    slots: int = 64
    train: float = 8_000.0
    weights: float = 14e9
    fetch: float = 5e9
    share: float = 0.75
    completions: int = 16
    workers: int = 1
    mean: float = 12_000.0


@dataclass
class Step:
    """Seconds of a simulated step, and for how long process 0 worked on what."""

    seconds: float
    generated: float
    driver: dict[str, float]


def simulate(costs: Costs, speeds: Speeds, gpus: int, seed: int = 0) -> Step:
    """Follow every completion of one step; generation and training take turns."""
    rng = random.Random(seed)
    n = gpus * speeds.completions
    engines = max(1, int(gpus * speeds.share))
    lengths = [min(TOKENS, max(16, int(rng.expovariate(1 / speeds.mean)))) for _ in range(n)]
    driver = {"draw": n / 16 * costs.draw}
    now = driver["draw"]
    # engines: each slot takes the next completion when it is free
    slots = [now] * min(n, engines * speeds.slots)
    arrivals = []
    for length in lengths:
        free = heapq.heappop(slots)
        heapq.heappush(slots, free + length / speeds.generate)
        arrivals.append((free + length / speeds.generate, length))
    arrivals.sort()
    generated = arrivals[-1][0]
    # process 0 takes what arrives in its order; verifier workers judge beside it
    workers = [0.0] * max(1, gpus * speeds.workers)
    taken = judged = 0.0
    for at, length in arrivals:
        taken = max(taken, at) + length * costs.receive + costs.ask
        start = max(heapq.heappop(workers), taken)
        heapq.heappush(workers, start + costs.verify)
        judged = max(judged, start + costs.verify)
    tokens = sum(lengths)
    driver |= {
        "receive": tokens * costs.receive,
        "ask": n * costs.ask,
        "count": n * costs.count,
        "record": tokens * costs.record,
        "publish": speeds.weights * costs.publish,
    }
    train = tokens / (gpus * (1 - speeds.share) * speeds.train)
    fetch = speeds.weights / speeds.fetch
    end = max(taken, judged) + driver["count"] + driver["record"] + train
    return Step(end + driver["publish"] + fetch, generated, driver)


def measure() -> Costs:
    """Measure one unit of everything, on this machine."""
    from rlvr_core.api import Outcome, Problem, Source
    from rlvr_core.builtin.samplers.difficulty import Difficulty
    from rlvr_core.record.ledger import Ledger

    group = _group()
    one = group.members[0].completion
    sent = pickle.dumps((one.token_ids, one.logprobs, one.text))
    problems = tuple(Problem(f"p{i}", "?", "core/exact", {}, "d") for i in range(DRAWN_FROM))
    sampler = Difficulty(Difficulty.Config())
    sampler.start([Source("d", problems)], n=16, prompts_per_step=64, seed=0)

    def draw() -> None:
        draws = sampler.draw(64, step=0)
        sampler.update([Outcome(one.index, one.problem.id, 3, 13, True) for one in draws])

    def count() -> None:
        ledger = Ledger()
        for _ in range(1000):
            ledger.draw(16)
            ledger.settle("trained", 16)

    return Costs(
        record=_recorded(group),
        receive=best(lambda: pickle.loads(sent)) / TOKENS,
        draw=best(draw) / 64,
        count=best(count) / 1000 / 16,
        ask=_asked(one.text),
        verify=2e-3,
        publish=_published(),
    )


def _group() -> Group:
    """Four judged completions of the greatest length, with log-probs as a model's float32."""
    from rlvr_core.api import Completion, Group, Judged, Problem, Verdict

    rng = random.Random(0)
    text = "so x = 3 + 4. " * (TOKENS // 4)
    verdict = Verdict(1.0, passed=True, extracted="7")

    def completion() -> Completion:
        ids = tuple(rng.randrange(150_000) for _ in range(TOKENS))
        logprobs = array("f", (-rng.expovariate(3.0) for _ in range(TOKENS)))
        return Completion((1, 2), ids, tuple(logprobs), (True,) * TOKENS, text, "stop", 3)

    members = tuple(Judged(completion(), {"core/exact": verdict}, 1.0, True) for _ in range(4))
    return Group(Problem("p1", "?", "core/exact", {}, "d"), members, 3)


def _recorded(group: Group) -> float:
    """Seconds a token to record a group, on the thread that records."""
    from rlvr_core.record.recorder import Recorder
    from rlvr_core.record.rundir import RunFolder

    n = len(group.members)
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder.create(name, "scale", config_text="", resolved={})
        with Recorder(folder) as recorder:
            spent = best(lambda: recorder.rollout(0, 3, group, "?", ["trained"] * n, [0.5] * n, 0))
    return spent / n / TOKENS


def best(act: Callable[[], object], times: int = 7) -> float:
    """The least seconds of several tries, of this thread: others may have the cores."""
    found = math.inf
    for _ in range(times):
        begun = time.thread_time()
        act()
        found = min(found, time.thread_time() - begun)
    return found


def _asked(text: str) -> float:
    """Seconds of process 0 for a response sent to a worker and its verdict read."""
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=_echo, args=(there,), daemon=True)
    worker.start()

    def ask() -> None:
        for _ in range(50):
            here.send(text)
            here.recv()

    found = best(ask) / 50
    here.send(None)
    worker.join()
    return found


def _echo(pipe: Connection) -> None:
    while pipe.recv() is not None:
        pipe.send((1.0, True, "scored"))


def _published(size: int = 256 << 20) -> float:
    """Seconds a byte to write weights into shared memory."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir="/dev/shm") as file:

        def write() -> None:
            file.seek(0)
            for _ in range(size >> 20):
                file.write(block)

        return best(write, 3) / size


def ranked(costs: Costs, speeds: Speeds, gpus: int) -> list[tuple[str, float]]:
    """Seconds that a step would gain if a cost of process 0 were nothing, largest first."""
    whole = simulate(costs, speeds, gpus).seconds
    gains = {
        name: whole - simulate(replace(costs, **{name: 0.0}), speeds, gpus).seconds
        for name in asdict(costs)
    }
    return sorted(gains.items(), key=lambda one: -one[1])


def table(costs: Costs, speeds: Speeds, counts: list[int]) -> None:
    """Print a line for each number of GPUs."""
    print("| GPUs | s a step | of which generating | process 0 alone | first three |")
    print("|---|---|---|---|---|")
    for gpus in counts:
        step = simulate(costs, speeds, gpus)
        alone = sum(step.driver.values())
        first = ", ".join(f"{name} {gain:.1f} s" for name, gain in ranked(costs, speeds, gpus)[:3])
        print(f"| {gpus} | {step.seconds:.0f} | {step.generated:.0f} | {alone:.1f} | {first} |")


def validate(costs: Costs) -> float:
    """Two Ray actors that wait, and the simulation of the same; returns the relative error."""
    from ray.cluster_utils import Cluster
    from ray_actors import seconds_a_step

    from rlvr_core.builtin.conformance.engines import tiny_context

    asked = argparse.Namespace(seconds=2.0, batch=8, completions=64)
    node = {"num_cpus": 2, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        with tempfile.TemporaryDirectory() as folder:
            real = seconds_a_step(tiny_context(Path(folder)), cluster.address, 2, asked)
    finally:
        cluster.shutdown()
    # 64 tokens in 2 s, eight at a time, by two engines, and nothing trained, judged or recorded
    none = replace(costs, record=0.0, draw=0.0, count=0.0, ask=0.0, verify=0.0, publish=0.0)
    like = _Fixed(generate=32.0, slots=8, share=1.0, completions=32, weights=0.0, mean=64)
    simulated = like.seconds(none, 2)
    error = abs(simulated - real) / real
    print(f"two actors: {real:.2f} s a step, simulated {simulated:.2f} s, error {error:.1%}")
    return error


class _Fixed(Speeds):
    """Speeds of engines whose completions are all of one length."""

    def seconds(self, costs: Costs, gpus: int) -> float:
        """Seconds until all completions of a step have arrived."""
        slots, taken = [0.0] * (gpus * self.slots), 0.0
        for _ in range(gpus * self.completions):
            free = heapq.heappop(slots) + self.mean / self.generate
            heapq.heappush(slots, free)
            taken = max(taken, free) + self.mean * costs.receive
        return taken


def main() -> None:
    """Measure, simulate or validate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="FILE")
    parser.add_argument("--simulate", type=Path, metavar="FILE")
    parser.add_argument("--validate", type=Path, metavar="FILE")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64, 256, 1024])
    args = parser.parse_args()
    if args.measure:
        args.measure.write_text(json.dumps(asdict(measure()), indent=1) + "\n")
        print(args.measure.read_text(), end="")
    for file, act in ((args.simulate, table), (args.validate, validate)):
        if file:
            costs = Costs(**json.loads(file.read_text()))
            act(costs, Speeds(), args.gpus) if act is table else validate(costs)


if __name__ == "__main__":
    main()
