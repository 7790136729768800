"""Requests of several processes in one vLLM engine that they share.

Each process queues its own requests. Before every step of the engine the processes exchange what
is new, and each gives vLLM the requests of all, in the order of the processes; so their schedulers
stay alike. Each process keeps the answers to its own requests.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Generation, GenerationRequest, RunError, ScoreRequest, Scores
from rlvr_core.engines.vllm.process import VERBOSE
from rlvr_core.engines.vllm.requests import Pending, Requests

if TYPE_CHECKING:
    from rlvr_core.engines.sampling import StopStrings
    from rlvr_servers.shared.group import Group


@dataclass(slots=True)
class _Owned(Pending):
    """A request of one process, which alone gets the answers."""

    owner: int = 0


class SharedRequests(Requests):
    """Submitted requests of one process, in an engine of several.

    Args:
        llm: vLLM's ``LLMEngine`` of this process.
        stop_strings: Of the run's tokenizer.
        eos_ids: Tokens that end a completion.
        group: The processes of the engine.
    """

    def __init__(
        self, llm: Any, stop_strings: StopStrings, eos_ids: tuple[int, ...], group: Group
    ) -> None:
        super().__init__(llm, stop_strings, eos_ids)
        self._group = group
        self._new: list[Pending] = []
        # kept between runs: processes that have once disagreed are not in step again
        self._finished = 0

    def __len__(self) -> int:
        """Number of unfinished completions of all processes, and of what is not exchanged yet."""
        return super().__len__() + sum(len(new.answers) for new in self._new)

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request of this process.

        What vLLM refuses is an error of the future: vLLM sees the request in ``run``.
        """
        pending = _Owned(request, owner=self._group.index)
        pending.finish()
        if request.seeds:
            self._new.append(pending)
        return pending.future

    def run(self, timeout: float | None, between: Callable[[], None] | None = None) -> None:
        """Step the engine until the requests of all processes are finished. A collective.

        Args:
            timeout: Seconds it may take; the first process to reach its limit ends the others'.
            between: Not called: a process cannot do anything to the engine by itself.

        Raises:
            RunError: If it took too long, or processes sampled different tokens.
            Exception: Whatever vLLM raised, or the connection to another process.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with _without_notice():
            while self._exchange(deadline, timeout):
                outputs = self._llm.step()
                self._finished = hash(
                    tuple((int(done.request_id), *done.outputs[0].token_ids) for done in outputs)
                )
                for output in outputs:
                    self._record_answer(output)
                self._resubmit_lost()
            self._finish_scheduled()

    def abort(self) -> None:
        """Cancel every open future of this process; outside of ``run`` no other is open."""
        new, self._new = self._new, []
        for pending in new:
            pending.future.cancel()

    def fail(self, error: RunError) -> None:
        """Fail every open future of this process with this error."""
        super().fail(error)
        new, self._new = self._new, []
        for pending in new:
            pending.fail(error)

    def score(self, requests: Sequence[ScoreRequest], timeout: float | None) -> list[Scores]:
        """Score the texts of all processes, and return those of this one. A collective."""
        parts = self._group.gather(list(requests))
        first = sum(len(part) for part in parts[: self._group.index])
        together = [request for part in parts for request in part]
        with _without_notice():
            scores = super().score(together, timeout)
        return scores[first : first + len(requests)]

    def _exchange(self, deadline: float, timeout: float | None) -> bool:
        """Take over what is new in all processes; return whether anything is unfinished.

        Args:
            deadline: When the time of this process is over.
            timeout: How long that was, for the message.
        """
        late = max(1, round((timeout or 0) * 1000)) if time.monotonic() > deadline else 0
        rows = self._group.numbers([len(self._new), late, self._finished])
        if len({tokens for *_, tokens in rows}) > 1:
            raise RunError(
                "the processes of one vLLM engine sampled different tokens from the same requests",
                remedy=("engine.with.tensor_parallel_size: 1 needs no agreement", VERBOSE),
            )
        if any(new for new, *_ in rows):
            self._add_all()
        limits = [milliseconds / 1000 for _, milliseconds, _ in rows if milliseconds]
        if self._samples and limits:
            raise self._abandon(min(limits))
        return bool(self._samples)

    def _add_all(self) -> None:
        """Give vLLM the new requests of all processes, in the order of the processes."""
        new, self._new = self._new, []
        # no process but its own needs the problem of a request
        parts = self._group.gather([replace(pending.request, problem=None) for pending in new])
        for owner, requests in enumerate(parts):
            for place, request in enumerate(requests):
                mine = owner == self._group.index
                pending = new[place] if mine else _Owned(request, owner=owner)
                try:
                    self._begin(pending)
                except RunError as error:
                    pending.fail(error)

    def _text(self, pending: Pending) -> Callable[[Sequence[int]], str]:
        others = isinstance(pending, _Owned) and pending.owner != self._group.index
        return _no_text if others else super()._text(pending)

    def _late(self, mine: bool) -> bool:
        return any(row[0] for row in self._group.numbers([int(mine)]))


def _no_text(token_ids: Sequence[int]) -> str:
    return ""


@contextmanager
def _without_notice() -> Iterator[None]:
    """Silence torch about the collective that vLLM's CPU build calls by its old name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.distributed.all_gather", FutureWarning)
        yield
