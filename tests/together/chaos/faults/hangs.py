"""Something never answers. A run that goes on in silence is killed, and counts as missed."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from tests.together.chaos.changes import ENGINE, FOREVER, OPTIM, at_call, second
from tests.together.chaos.registry import TWO, Patch, fault

HANGS = {"shape": "impatient", "dtypes": ("float32",), "hangs": True}


@fault("watchdog", **HANGS)
def engine_hangs_at_third_drain(patch: Patch) -> None:
    """The engine never comes back from its third batch."""
    at_call(patch, f"{ENGINE}:TransformersEngine.drain", 3)


@fault("watchdog", "sync", **HANGS)
def engine_hangs_at_sync(patch: Patch) -> None:
    """The engine never takes its second weights."""
    at_call(patch, f"{ENGINE}:TransformersEngine.load_weights", 2)


@fault("watchdog", "completions", "sync", **HANGS)
def engine_forgets_a_request(patch: Patch) -> None:
    """The engine drops one request of its second batch without a word."""
    count = [0]

    def make(original: Any) -> Any:
        def submit(self: Any, request: Any) -> Any:
            count[0] += 1
            future = original(self, request)
            if count[0] == 12:
                self._queue.pop()
            return future

        return submit

    patch.wrap(f"{ENGINE}:TransformersEngine.submit", make)


@fault("watchdog", **HANGS)
def verdicts_never_come(patch: Patch) -> None:
    """The pool loses the verdicts of the tenth group."""
    count = [0]

    def make(original: Any) -> Any:
        def submit(self: Any, problem: Any, answers: Any) -> Any:
            count[0] += len(answers) == 8  # known answers are judged in smaller groups
            lost = len(answers) == 8 and count[0] == 10
            return Future() if lost else original(self, problem, answers)

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


@fault("watchdog", **HANGS)
def backward_hangs(patch: Patch) -> None:
    """The third backward pass never ends."""
    at_call(patch, f"{OPTIM}:Optimizer.backward", 3)


@fault("watchdog", **HANGS)
def model_never_loads(patch: Patch) -> None:
    """The model's files never come."""
    at_call(patch, "rlvr_core.run.learner:load_policy", 1)


@fault("watchdog", **HANGS | {"backends": ("child",)})
def engine_process_hangs(patch: Patch) -> None:
    """The engine's process stops to answer."""
    at_call(patch, f"{ENGINE}:TransformersEngine.drain", 3)


@fault("watchdog", **HANGS | {"backends": TWO})
def second_process_never_comes_to_an_exchange(patch: Patch) -> None:
    """The second process does not come to the exchange of the third update's numbers."""

    def hang() -> None:
        if second():
            time.sleep(FOREVER)

    at_call(patch, "rlvr_core.step.mini_batches:Totals.gather", 3, hang)
