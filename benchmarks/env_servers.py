"""How long conversations with slow tools take, against the floor that the latency sets.

    OMP_NUM_THREADS=1 python benchmarks/env_servers.py --conversations 200 --latency 1 --turns 3

A server of environments runs in a process of its own, as `rlvr env serve` does; its environment
sleeps in every call of a tool. Conversations are played by the run's own turn taking, on an engine
that answers at once. The floor is turns * latency: what one conversation takes by itself.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

from rlvr_core.api import (
    ComponentConfig,
    Done,
    EngineTraits,
    Generation,
    Message,
    Observation,
    Problem,
    Reply,
    SamplingParams,
    Verdict,
)
from rlvr_core.api.services import EnvironmentSection, load_host


class Slow:
    """An environment whose tool takes a while, in an ordinary blocking call."""

    class Config(ComponentConfig):
        """Options."""

        latency: float = 1.0
        turns: int = 3

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self, problem: Problem, seed: int) -> list[str]:
        """Begin without turns."""
        del problem, seed
        return []

    def step(self, said: list[str], reply: Reply) -> Observation | Done:
        """Answer after the latency."""
        time.sleep(self.config.latency)
        said.append(reply.text)
        if len(said) >= self.config.turns:
            return Done(Verdict(1.0, passed=True, detail=f"{len(said)} turns"))
        return Observation((Message("tool", "wait"),))


class Instant:
    """An engine that says one token at once."""

    traits = EngineTraits(continuous=True)

    def start(self, context: object) -> None:
        """Nothing to start."""

    def submit(self, request: object) -> Future[tuple[Generation, ...]]:
        """Answer each seed."""
        future: Future[tuple[Generation, ...]] = Future()
        seeds = request.seeds  # type: ignore[attr-defined]
        future.set_result(tuple(Generation((1,), (0.0,), "x", "stop", 0) for _ in seeds))
        return future

    def drain(self, timeout: float | None = None) -> None:
        """Everything is answered."""

    def close(self) -> None:
        """Nothing to close."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    command = [str(Path(sys.executable).with_name("rlvr")), "env", "serve", f"{__file__}:Slow"]
    command += ["--port", "0", "--set", f"latency={args.latency}", "--set", f"turns={args.turns}"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split(": ", 1)[1].split()[0]
        for _ in range(args.repeats):
            measure(url, args)
    finally:
        server.terminate()


def measure(url: str, args: argparse.Namespace) -> None:
    """Play all conversations once and print how long they took."""
    from rlvr_core.api import GenerationRequest

    section = EnvironmentSection.model_validate(
        {"use": "core/remote", "with": {"url": url}, "concurrent": args.conversations}
    )
    n = args.conversations // args.group
    problems = [Problem(f"p{i}", "?", "core/environment", {}, "bench") for i in range(n)]
    host = load_host()
    plan = host.entry("service", "core/conversations", "").load()(section, problems, host)
    engine = plan.play(Instant(), lambda problem, reply, messages: (2,), background=False)
    params = SamplingParams(max_tokens=1000)
    try:
        began, spent = time.monotonic(), time.process_time()
        futures = [
            engine.submit(GenerationRequest(p.id, (1,), params, tuple(range(args.group)), (), p, 0))
            for p in problems
        ]
        engine.drain()
        took = time.monotonic() - began
        cpu = time.process_time() - spent
    finally:
        engine.close()
    found = [one for future in futures for one in future.result()]
    done = sum(one.transcript is not None and one.transcript.ended == "done" for one in found)
    floor = args.latency * args.turns
    print(
        f"{done} of {len(found)} conversations done in {took:.2f} s; floor {floor:.2f} s; "
        f"ratio {took / floor:.2f}; {cpu:.2f} CPU s in the run's process"
    )


if __name__ == "__main__":
    main()
