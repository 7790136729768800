"""Background generation in several processes: rank 0 decides, every process generates.

Rank 0 has the sampler, the buffer and the one producer. It assigns each draw to the least loaded
process, whose engine, environments and verifiers turn it into a judged group; so groups,
keep-or-drop decisions, ledger and checkpoints are those of a single-process run. A completion's
seed does not depend on the process that samples it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rlvr_core.api import Draw, RlvrError, RunError, SamplingParams, one_line
from rlvr_core.engines.child.link import Link, Message, Replies
from rlvr_core.parallel.ranks import LostError, fault_of
from rlvr_core.rollout.collect import Answered, Generator, Judgement


class Worker:
    """Generates and judges, in a process other than rank 0, the draws that rank 0 assigns.

    Args:
        generator: The generator of this process.
        link: Connection to rank 0.
        rank: Rank of this process.
    """

    def __init__(self, generator: Generator, link: Link, rank: int) -> None:
        self._generator = generator
        self._link = link
        self._rank = rank
        # without rank 0 there is nothing to do, and the main thread detects its loss itself
        link.start(self._take, lambda error: None)

    def close(self) -> None:
        """Stop accepting work."""
        self._link.close()

    def _take(self, message: Message) -> None:
        kind, number, *rest = message
        try:
            if kind == "draw":
                self._draw(number, *rest)
                return
            act = {"launch": self._generator.launch, "abort": self._generator.abort}[kind]
            act()
            self._link.send("done", number, None)
        except Exception as error:
            self._link.send("failed", number, self._as_fault(error))

    def _draw(self, number: int, draw: Draw, params: SamplingParams, version: int) -> None:
        answered, judged = self._generator.begin(draw, params, version=version)

        def tell(done: Judgement) -> None:
            if done.cancelled():
                self._link.send("cancelled", number)
            elif (error := done.exception()) is not None:
                self._link.send("failed", number, self._as_fault(error))
            else:
                self._link.send("done", number, (answered.completions, done.result()))

        judged.add_done_callback(tell)

    def _as_fault(self, error: BaseException) -> RlvrError:
        """Convert an exception to the error that rank 0 will report."""
        if not isinstance(error, RlvrError):
            error = RunError(one_line(error))
        return fault_of(self._rank, error.exit_code, error.complaints)


class Peer:
    """Rank 0's handle on a worker.

    Args:
        link: Connection to the worker.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._replies = Replies()
        link.start(self._replies.take, lambda error: self._replies.fail(LostError(late=False)))

    def ask(self, kind: str, *arguments: Any) -> Future[Any]:
        """Send a task to the worker; the future gets its answer."""
        try:
            number, future = self._replies.expect()
        except Exception as error:
            future = Future()
            future.set_exception(error)
        else:
            self._link.send(kind, number, *arguments)
        return future

    def launch(self) -> None:
        """Have the worker generate the submitted draws; if that fails, all of them fail."""

        def launched(done: Future[Any]) -> None:
            if (error := done.exception()) is not None:
                self._replies.fail(error)

        self.ask("launch").add_done_callback(launched)

    def close(self) -> None:
        """Stop sending work."""
        self._link.close()


@dataclass(frozen=True)
class BalancedGenerator(Generator):
    """Rank 0's generator for a producer: it assigns each draw to the least loaded process.

    Attributes:
        peers: Handles on the workers in the other processes.
    """

    peers: Sequence[Peer]
    _load: list[int] = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_load", [0] * (1 + len(self.peers)))

    def begin(
        self,
        draw: Draw,
        params: SamplingParams,
        *,
        version: int,
        each: Callable[[Answered], None] | None = None,
    ) -> tuple[Answered, Judgement]:
        """Submit one draw to a process; see ``Generator.begin``."""
        with self._lock:
            rank = self._load.index(min(self._load))
            self._load[rank] += draw.n

        def settled(_: Judgement) -> None:
            with self._lock:
                self._load[rank] -= draw.n

        if rank == 0:
            answered, judged = super().begin(draw, params, version=version, each=each)
        else:
            assert each is None, "nobody asks for it"
            answered, judged = Answered(draw, self.prompt(draw.problem), []), Judgement()
            reply = self.peers[rank - 1].ask("draw", draw, params, version)
            reply.add_done_callback(lambda done: _put_in(answered, judged, done))
        judged.add_done_callback(settled)
        return answered, judged

    def launch(self) -> None:
        """Start generating the submitted draws, in every process."""
        for peer in self.peers:
            peer.launch()
        super().launch()

    def abort(self) -> None:
        """Cancel all unfinished work, in every process.

        Raises:
            RunError: If a process does not finish this within the deadline.
        """
        pending = [peer.ask("abort") for peer in self.peers]
        super().abort()
        for done in pending:
            try:
                done.result(self.deadline)
            except TimeoutError as error:
                raise RunError(
                    f"unfinished requests were not aborted within {self.deadline:g} s by all "
                    f"processes",
                    remedy="raise run.timeout if they were at work on long completions",
                ) from error


def _put_in(answered: Answered, judged: Judgement, done: Future[Any]) -> None:
    if done.cancelled():
        judged.cancel()
    elif (error := done.exception()) is not None:
        judged.set_exception(error)
    else:
        completions, verdicts = done.result()
        answered.completions.extend(completions)
        judged.set_result(verdicts)
