"""Stand-ins for what rollouts need: an engine that answers when told to, a judge of letters."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from rlvr_core.api import Generation, Prompt, Verdict
from rlvr_core.rollout.collect import Generator

PATIENCE = 60.0
"""Seconds after which a test gives up."""


class HeldEngine:
    """An engine in the background that holds requests until the test has it answer."""

    in_flight = frozenset({"drain", "abort", "keep"})

    def __init__(self):
        self.changed = threading.Condition()
        self.open = {}
        self.requests = []
        self.version = 0
        self.launched = 0
        self.aborted = 0
        self.scripts = {}
        self.fault = None

    def start(self, context): ...
    def drain(self, timeout=None): ...
    def sleep(self): ...
    def wake(self): ...
    def close(self): ...

    def begin(self):
        if self.fault:
            raise self.fault
        self.launched += 1

    def submit(self, request):
        future = Future()
        with self.changed:
            self.requests.append(request)
            self.open[request.id] = (request, future, self.version)
            self.changed.notify_all()
        return future

    def abort(self):
        with self.changed:
            gone, self.open = self.open, {}
            self.aborted += len(gone)
        for _, future, _ in gone.values():
            future.cancel()

    def load_weights(self, version, source):
        self.version = version

    def wait_for(self, n):
        """Problems of the requests that are open, when there are so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.open) >= n, PATIENCE), list(self.open)
            assert len(self.open) == n
            return [request.id.partition("@")[0] for request, _, _ in self.open.values()]

    def answer(self, *problems, text="PF"):
        """Answer the requests of these problems; of all without."""
        with self.changed:
            names = [
                name
                for name, (request, *_) in self.open.items()
                if not problems or request.id.partition("@")[0] in problems
            ]
            picked = [self.open.pop(name) for name in names]
        for request, future, version in picked:
            script = self.scripts.get(request.id.partition("@")[0], text)
            letters = [script[i % len(script)] for i in range(len(request.seeds))]
            future.set_result(
                tuple(Generation((9,), (-0.5,), letter, "stop", version) for letter in letters)
            )

    def fail(self, error):
        with self.changed:
            _, (_, future, _) = self.open.popitem()
        future.set_exception(error)


class LetterJudge:
    """P passes, F fails, E is an error of the verifier, U cannot be judged."""

    def submit(self, problem, completions):
        future = Future()
        future.set_result([{"v": self.verdict(done.text)} for done in completions])
        return future

    @staticmethod
    def verdict(letter):
        if letter == "E":
            return Verdict(None, "error")
        if letter == "U":
            return Verdict(None, "unscorable")
        return Verdict(float(letter == "P"), passed=letter == "P")

    def reward(self, completion, verdicts, step):
        return verdicts["v"].score, verdicts["v"].passed


def generator_of(engine, *, deadline=PATIENCE):
    """A generator for problems whose prompts are numbers."""
    return Generator(
        engine=engine,
        judge=LetterJudge(),
        prompt=lambda problem: Prompt((int(problem.prompt),), problem.prompt),
        seed=3,
        deadline=deadline,
        say_waiting=lambda label: None,
    )
