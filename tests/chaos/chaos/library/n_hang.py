"""Something never answers. A run that goes on in silence is killed, and counts as missed."""

from __future__ import annotations

import threading
import time
from typing import Any

from chaos.changes import FOREVER, at_call
from chaos.registry import Patch, fault

ENGINE = "rlvr_core.engines.transformers:TransformersEngine"


@fault("hang", "engine", shape="impatient", dtypes=("float32",))
def engine_hangs_at_first_drain(patch: Patch) -> None:
    """The engine never comes back from its first batch."""
    at_call(patch, f"{ENGINE}.drain", 1)


@fault("hang", "engine", shape="impatient", dtypes=("float32",))
def engine_hangs_at_third_drain(patch: Patch) -> None:
    """The engine never comes back from its third batch."""
    at_call(patch, f"{ENGINE}.drain", 3)


@fault("hang", "engine", "lock", shape="impatient", dtypes=("float32",))
def engine_waits_for_its_own_lock(patch: Patch) -> None:
    """The engine takes a lock twice."""
    lock = threading.Lock()
    count = [0]

    def make(original: Any) -> Any:
        def drain(self: Any, timeout: Any = None) -> Any:
            count[0] += 1
            if count[0] == 2:
                lock.acquire()
                lock.acquire()
            return original(self, timeout)

        return drain

    patch.wrap(f"{ENGINE}.drain", make)


@fault("hang", "engine", "sync", "weights", shape="impatient", dtypes=("float32",))
def engine_hangs_at_sync(patch: Patch) -> None:
    """The engine never takes its second weights."""
    at_call(patch, f"{ENGINE}.load_weights", 2)


@fault("hang", "verif", "verdict", shape="impatient", dtypes=("float32",))
def verifier_hangs(patch: Patch) -> None:
    """The verifier never answers from its hundredth call on."""
    count = [0]

    def make(original: Any) -> Any:
        def verify(*args: Any) -> Any:
            count[0] += 1
            if count[0] > 100:
                time.sleep(FOREVER)
            return original(*args)

        return verify

    patch.wrap("rlvr_chaos:Brackets.verify", make)


@fault("hang", "verif", "verdict", shape="impatient", dtypes=("float32",))
def verdicts_never_come(patch: Patch) -> None:
    """The pool loses the verdicts of the twentieth group."""
    from concurrent.futures import Future

    count = [0]

    def make(original: Any) -> Any:
        def submit(self: Any, problem: Any, completions: Any) -> Any:
            count[0] += 1
            return Future() if count[0] == 20 else original(self, problem, completions)

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


@fault("hang", "engine", "request", shape="impatient", dtypes=("float32",))
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

    patch.wrap(f"{ENGINE}.submit", make)


@fault("hang", "engine", backends=("child",), shape="impatient", dtypes=("float32",))
def engine_process_hangs(patch: Patch) -> None:
    """The engine's process stops to answer."""
    at_call(patch, f"{ENGINE}.drain", 3)


@fault(
    "hang", "engine", "sync", "weights", backends=("child",), shape="impatient", dtypes=("float32",)
)
def engine_process_hangs_at_sync(patch: Patch) -> None:
    """The engine's process never takes its second weights."""
    at_call(patch, f"{ENGINE}.load_weights", 2)


@fault("hang", "gpu", "kernel", "train", "step", "backward", shape="impatient", dtypes=("float32",))
def backward_hangs(patch: Patch) -> None:
    """The third backward pass never ends."""
    at_call(patch, "rlvr_core.step.optim:Optimizer.backward", 3)
