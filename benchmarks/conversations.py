"""Scripted conversations with tools, some of which hang: throughput, and that nothing is lost.

    python benchmarks/conversations.py [--conversations 1000] [--at-a-time 32] [--hung 0.01]

The model is a script, so what is measured is everything around it: turns, worker processes, and
how the calls that hang are ended. Each conversation calls a tool and then answers. The tool is a
function, which hangs in ``time.sleep`` and is ended with its worker process by the environment's
time limit; or it runs a program in rlvr_code's sandbox, which loops, sleeps or waits for input that
never comes, and is ended by the sandbox's limit, after which the conversation goes on.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil

from rlvr_code.sandbox import Limits, Sandbox
from rlvr_core.api import (
    ComponentConfig,
    Done,
    Generation,
    GenerationRequest,
    Message,
    Observation,
    Problem,
    Reply,
    SamplingParams,
    Transcript,
    Verdict,
)
from rlvr_core.config.model import EnvironmentSection
from rlvr_core.workers.process import ComponentSpec
from rlvr_env.environments.plan import EnvironmentPlan
from rlvr_env.environments.turns import TurnTaking

NAME = "benchmark/slow-tool"


class SlowTool:
    """One call that takes a while, or for ever; then the answer."""

    class Config(ComponentConfig):
        """How long the tool takes."""

        seconds: float = 0.0
        """Seconds of a call."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self, problem: Problem, seed: int) -> dict[str, Any]:
        """See ``Environment.start``."""
        return {"hangs": bool(problem.spec["hangs"]), "called": False}

    def step(self, state: dict[str, Any], reply: Reply) -> Observation | Done:
        """See ``Environment.step``."""
        if state["called"]:
            return Done(Verdict(1.0, passed=True))
        state["called"] = True
        time.sleep(1e9 if state["hangs"] else self.config.seconds)
        return Observation((Message("tool", " result "),))


PROGRAM = "print(sum(n * n for n in range(1000)))"
NEVER = (
    "while True: pass",
    "import time\ntime.sleep(1e9)",
    "import os\nos.read(os.pipe()[0], 1)",
)


class Programs:
    """One call that runs a program in the sandbox, which may never end; then the answer."""

    class Config(ComponentConfig):
        """How long a program may take."""

        wall_seconds: float = 2.0
        """Seconds after which the sandbox ends it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._sandbox: Sandbox | None = None

    def start(self, problem: Problem, seed: int) -> dict[str, Any]:
        """See ``Environment.start``."""
        program = NEVER[seed % len(NEVER)] if problem.spec["hangs"] else PROGRAM
        return {"program": program, "called": False}

    def step(self, state: dict[str, Any], reply: Reply) -> Observation | Done:
        """See ``Environment.step``."""
        if state["called"]:
            return Done(Verdict(1.0, passed=True))
        state["called"] = True
        self._sandbox = self._sandbox or Sandbox()
        limits = Limits(wall_seconds=self.config.wall_seconds, cpu_seconds=3600)
        result = self._sandbox.run(state["program"], limits=limits)
        return Observation((Message("tool", f" {result.reason} {result.stdout}"),))


class Script:
    """An engine that calls the tool first and then answers."""

    def __init__(self) -> None:
        self.queue: list[tuple[GenerationRequest, Future[tuple[Generation, ...]]]] = []

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """See ``Engine.submit``."""
        future: Future[tuple[Generation, ...]] = Future()
        self.queue.append((request, future))
        return future

    def drain(self, timeout: float | None = None) -> None:
        """See ``Engine.drain``."""
        jobs, self.queue = self.queue, []
        for request, future in jobs:
            text = "answer" if len(request.prompt_ids) > 1 else "call"
            ids = tuple(text.encode())
            said = Generation(ids, (-1.0,) * len(ids), text, "stop", 0)
            future.set_result((said,) * len(request.seeds))

    def close(self) -> None:
        """See ``Engine.close``."""


def play(
    conversations: int,
    at_a_time: int,
    hung: float,
    seconds: float,
    timeout: float,
    workers: int,
    wall: float | None = None,
) -> dict[str, Any]:
    """Play them all and count.

    Args:
        conversations: How many.
        at_a_time: How many are going on at a time.
        hung: Share of them whose tool hangs.
        seconds: How long a tool takes that does not.
        timeout: Seconds after which a call is ended.
        workers: Processes.
        wall: Seconds after which the sandbox ends a program; the tool is a function if absent.

    Returns:
        Seconds, conversations a second, how they ended, how their programs did, and processes left
        afterwards.
    """
    section = EnvironmentSection(
        use=NAME, concurrent=at_a_time, timeout=timeout, workers=workers, straggler_timeout=0.1
    )
    kind, options = SlowTool, {"seconds": seconds}
    if wall is not None:
        kind, options = Programs, {"wall_seconds": wall}
    spec = ComponentSpec(f"{Path(__file__).stem}:{kind.__name__}", options)
    instance = kind(kind.Config(**options))
    plan = EnvironmentPlan(section, {NAME: spec}, {}, {NAME: instance}, NAME)
    taking = TurnTaking(Script(), plan, _suffix)  # type: ignore[arg-type]
    every = round(1 / hung) if hung else 0
    params = SamplingParams(max_tokens=100)
    begun = time.perf_counter()
    futures = []
    for i in range(conversations):
        spec_i = {"hangs": bool(every) and i % every == every // 2}
        problem = Problem(f"c{i}", "?", "v", spec_i, "benchmark")
        futures.append(
            taking.submit(GenerationRequest(problem.id, (0,), params, (i,), problem=problem))
        )
    taking.drain(3600.0)
    spent = time.perf_counter() - begun
    pids = taking._pool.pids()
    tree = [one for pid in pids for one in _tree(pid)]
    taking.close()
    _, left = psutil.wait_procs(tree, timeout=10.0)
    answers = [answer for future in futures for answer in future.result(0)]
    scripts = [answer.transcript for answer in answers if answer.transcript is not None]
    return {
        "seconds": spent,
        "per_second": conversations / spent,
        "ended": dict(Counter(script.ended for script in scripts)),
        "answers": len(answers),
        "programs": dict(Counter(_reason(script) for script in scripts)),
        "left_running": len(left),
    }


def _suffix(problem: Problem, reply: Any, messages: Any) -> tuple[int, ...]:
    return tuple("".join(message.content for message in messages).encode())


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all below it, sandboxes too."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _reason(script: Transcript) -> str:
    """How the program of a conversation ended, as the tool said."""
    said = [word for turn in script.turns if turn.role == "tool" for word in turn.text.split()]
    return said[0] if said else ""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--at-a-time", type=int, default=32)
    parser.add_argument("--hung", type=float, default=0.01)
    parser.add_argument("--timeout", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=8)
    given = parser.parse_args()
    print(f"{given.conversations} conversations of two turns, {given.at_a_time} at a time,")
    print(f"{given.workers} processes, calls ended after {given.timeout:g} s")
    head = f"{'the tool':>14}{'hung':>7}{'seconds':>10}{'a second':>10}{'ratio':>7}"
    print(f"{head}  ended, programs, left running")
    for name, seconds, wall in (
        ("0 ms", 0.0, None),
        ("50 ms", 0.05, None),
        ("a program", 0.0, given.timeout),
    ):
        # the sandbox ends its programs, the environment nothing
        timeout = given.timeout if wall is None else given.timeout + 60.0
        rate = 0.0
        for hung in (0.0, given.hung):
            found = play(
                given.conversations, given.at_a_time, hung, seconds, timeout, given.workers, wall
            )
            rate = rate or found["per_second"]
            said = [found["ended"], *([found["programs"]] if wall is not None else [])]
            ended = "; ".join(
                ", ".join(f"{n} {how}" for how, n in sorted(one.items())) for one in said
            )
            print(
                f"{name:>14}{hung:>7.1%}{found['seconds']:>10.1f}{found['per_second']:>10.0f}"
                f"{found['per_second'] / rate:>7.2f}  {ended}; {found['left_running']} left"
            )
            assert found["answers"] == given.conversations, "a conversation was lost"
            assert found["left_running"] == 0, "a process was left running"


if __name__ == "__main__":
    main()
