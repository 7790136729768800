"""Generation during training: a thread that keeps the buffer filled.

The thread gets draws from the sampler, submits them to a background engine, and decides whether to
keep the resulting groups. The trainer takes the groups of its step, and pauses generation while
weights change. With ``drain`` the thread submits the draws of one step at a time and decides on
them together, in draw order, so that with ``max_staleness: 1`` nothing depends on timing; with
``abort`` and ``keep`` it decides on each group as it arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Literal

from rlvr_core.api import (
    ConfigError,
    Draw,
    Drop,
    Extend,
    Json,
    Outcome,
    Problem,
    RunError,
    Sampler,
    SamplingParams,
)
from rlvr_core.api.progress import progress
from rlvr_core.api.rollouts import Rollouts, Sampled
from rlvr_core.rollout.ahead.buffer import GroupBuffer
from rlvr_core.rollout.collect import Answered, Generator, Judgement, joined, outcome_of
from rlvr_core.rollout.replay import Reading
from rlvr_core.rollout.source import sampler_metrics

InFlight = Literal["drain", "abort", "keep"]

_GLANCE = 1.0
"""Seconds between checks of deadlines while nothing happens."""
_FAREWELL = 30.0
"""Seconds the thread may take to end."""


@dataclass(slots=True)
class _Pending:
    """A draw in flight."""

    draw: Draw
    answered: Answered
    judged: Judgement
    version: int
    since: float


class Producer:
    """Fills a buffer from a background thread.

    Args:
        generator: Produces judged groups; its engine works in the background.
        sampler: The sampler; used only by the background thread once that runs.
        params: Sampling parameters.
        buffer: The buffer to fill.
        in_flight: Handling of unfinished requests at a weight sync.
        check: Called after verdicts; raises ``RunError`` if too many of them failed.
    """

    def __init__(
        self,
        generator: Generator,
        sampler: Sampler,
        params: SamplingParams,
        buffer: GroupBuffer,
        *,
        in_flight: InFlight,
        check: Callable[[], None],
    ) -> None:
        self._generator = generator
        self._sampler = sampler
        self._params = params
        self._buffer = buffer
        self._in_flight = in_flight
        self._check = check
        self._deadline = generator.deadline
        self._changed = threading.Condition()  # guards all below, the buffer and the sampler
        self._thread: threading.Thread | None = None
        self._pending: dict[int, _Pending] = {}
        self._landed: list[int] = []
        self._begun: dict[int, Sampled] = {}
        self._extended: list[Draw] = []
        self._outcomes: list[Outcome] = []
        self._drawn = 0
        self._version = 0
        self._paused = False
        self._last: int | None = None
        self._stopping = False
        self._error: BaseException | None = None

    # -- methods for the trainer -----------------------------------------------------------------

    def start(self, step: int, version: int, readings: Iterable[Reading] = ()) -> None:
        """Start generating for a step and version; ``readings`` as for ``hold``."""
        self._version = version
        self._buffer.reread(readings)
        self._buffer.advance(step, version)
        self._thread = threading.Thread(target=self._run, name="rollouts", daemon=True)
        self._thread.start()

    def take(self, step: int) -> Rollouts:
        """Wait for all groups of a step, and return them.

        Raises:
            RunError: If it takes longer than the deadline, or generation failed.
        """
        needed = self._sampler.prompts_per_step
        with self._changed, progress("groups", lambda: self._buffer.count(step), needed):
            self._await(lambda: self._buffer.ready(step), f"step {step} waits for its groups", step)
            return self._buffer.take(step)

    def drawn(self) -> int:
        """Return the number of completions that arrived since the last call."""
        with self._changed:
            drawn, self._drawn = self._drawn, 0
            return drawn

    def hold(self, step: int, readings: Iterable[Reading] = (), *, updated: bool) -> None:
        """Advance to a step: pause generation until ``release``, so that weights can change.

        Args:
            step: The next step.
            readings: Earlier groups that the step can train on again.
            updated: Whether weights change.

        Raises:
            RunError: If unfinished requests do not end in time, or generation failed.
        """
        with self._changed:
            # one deadline for both waits: other processes wait for both together
            until = time.monotonic() + self._deadline
            # with ``drain`` the expected readings apply until all groups are there: otherwise the
            # draws would depend on the timing of this call
            self._finish(step, until)
            self._buffer.reread(readings)
            self._changed.notify_all()
            self._finish(step, until)
            self._paused = True
        if updated and self._in_flight == "abort":
            self._generator.abort()

    def _finish(self, step: int, until: float) -> None:
        """With ``drain``, wait for all unfinished requests and all groups of a step."""
        if self._in_flight != "drain":
            return
        self._last = step
        self._await(
            lambda: not (self._pending or self._extended) and self._has_all(step),
            f"the weight sync before step {step} waits for unfinished groups",
            step,
            until,
        )

    def go_on(self, step: int, version: int) -> None:
        """Set step and version, after ``hold`` and with the weights loaded."""
        with self._changed:
            self._raise()
            self._buffer.advance(step, version)
            self._version = version

    def quiet(self) -> None:
        """Pause generation, and wait until no request is unfinished.

        Raises:
            RunError: If it takes longer than the deadline, or generation failed.
        """
        with self._changed:
            self._paused = True
            self._await(
                lambda: not self._pending,
                "an evaluation or checkpoint waits for unfinished groups",
                None,
            )

    def release(self) -> None:
        """Resume generation."""
        with self._changed:
            self._paused, self._last = False, None
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread and discard unfinished requests. Safe to call twice."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_FAREWELL)

    def sampler_metrics(self) -> dict[str, float]:
        """Return the sampler's metrics, for the step's line."""
        with self._changed:
            return sampler_metrics(self._sampler)

    def state_dict(self) -> dict[str, Json]:
        """Return the state; generation must be paused and no request unfinished."""
        assert not self._pending, "groups are on their way"
        return self._buffer.state_dict()

    def load_state_dict(self, state: Mapping[str, Json], problems: Mapping[str, Problem]) -> None:
        """Restore the state from ``state_dict``; call before ``start``."""
        self._buffer.load_state_dict(state, problems)

    def _has_all(self, step: int) -> bool:
        return not self._buffer.expects(step) or self._buffer.ready(step)

    def _await(
        self,
        reached: Callable[[], bool],
        what: str,
        step: int | None,
        until: float | None = None,
    ) -> None:
        """Wait for the thread until a deadline: ``until``, or ``run.timeout`` from now.

        Raises:
            RunError: If the deadline passes; the message says what the thread was doing.
        """
        until = time.monotonic() + self._deadline if until is None else until
        self._raise()
        while not reached():
            left = until - time.monotonic()
            if left <= 0:
                raise RunError(
                    f"{what}, for {self._deadline:g} s now; {self._account_of(step)}",
                    remedy="raise run.timeout, or ask for fewer or shorter completions",
                )
            self._changed.wait(min(left, _GLANCE))
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _account_of(self, step: int | None) -> str:
        """Describe the progress of generation, for timeout messages."""
        parts = []
        if step is not None and self._buffer.expects(step):
            parts.append(f"{self._buffer.count(step)} of its groups are there")
        judging = sum(bool(pending.answered.completions) for pending in self._pending.values())
        parts.append(f"{len(self._pending) - judging} are being generated, {judging} judged")
        parts.append(f"{self._buffer.again} wait to be drawn again")
        if self._pending:
            oldest = min(self._pending.values(), key=lambda pending: pending.since)
            age = time.monotonic() - oldest.since
            parts.append(
                f"the oldest is {oldest.draw.problem.id} of version {oldest.version}, "
                f"{age:.0f} s old"
            )
        return "; ".join(parts)

    # -- methods of the thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._round():
                pass
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _round(self) -> bool:
        """Process finished groups and submit more draws; return False when it is time to end."""
        with self._changed:
            if self._stopping:
                return False
            self._take_in()
            draws = self._draws()
            for draw in draws:
                self._launch(draw)
            if draws:
                self._generator.launch()
            elif not self._can_take_in():
                self._check_deadlines()
                self._changed.wait(_GLANCE)
            return True

    def _can_take_in(self) -> bool:
        if self._in_flight == "drain":
            return bool(self._landed) and len(self._landed) == len(self._pending)
        return bool(self._landed)

    def _take_in(self) -> None:
        """Decide on the judged groups: keep, drop or extend."""
        if not self._can_take_in():
            return
        landed, self._landed = self._landed, []
        if self._in_flight == "drain":
            landed.sort()
        for index in landed:
            self._decide(self._pending.pop(index))
        if self._outcomes and not (self._extended and self._in_flight == "drain"):
            outcomes = sorted(self._outcomes, key=lambda outcome: outcome.index)
            self._outcomes = []
            self._sampler.update(outcomes)
        self._check()
        self._changed.notify_all()

    def _decide(self, pending: _Pending) -> None:
        try:
            verdicts = pending.judged.result(0)
        except CancelledError:
            self._buffer.give_back(pending.draw)
            return
        answered = replace(pending.answered, verdicts=verdicts)
        # the version the engine reports; a sync may have come between submission and start
        version = min((c.version for c in answered.completions), default=pending.version)
        part = self._generator.sampled(answered, version, self._buffer.lot().step)
        whole = joined(self._begun.pop(pending.draw.index, None), part)
        decision = self._sampler.observe(whole.group)
        if isinstance(decision, Extend):
            first = len(whole.group.members)
            self._begun[pending.draw.index] = whole
            self._extended.append(replace(whole.draw, n=decision.n, first=first))
            return
        if isinstance(decision, Drop):
            whole = replace(whole, drop=decision)
        elif decision.reads > self._buffer.reads:
            raise ConfigError(
                f"the sampler wants a group trained on in {decision.reads} steps, and generation "
                f"runs so far ahead that it is too old after {self._buffer.reads}",
                where="sampler",
                remedy="give the sampler traits = SamplerTraits(max_reads=MOST READS IT ASKS FOR)",
            )
        else:
            whole = replace(whole, reads=decision.reads)
        self._drawn += len(whole.group.members)
        self._outcomes.append(outcome_of(whole))
        self._buffer.arrive(whole)

    def _draws(self) -> list[Draw]:
        """Return the draws to submit now."""
        if self._paused:
            return []
        in_turn = self._in_flight == "drain"
        if in_turn and self._pending:
            return []
        extended, self._extended = self._extended, []
        if extended and in_turn:
            return extended
        draws = extended + self._buffer.launch_again()
        for step, needed in self._buffer.orders():
            if self._last is not None and step > self._last:
                break
            if in_turn and draws:
                break
            new = self._sampler.draw(needed, step=step)
            if not new and not (draws or self._pending):
                self._buffer.exhausted(step)
                self._changed.notify_all()
            self._buffer.launch(new)
            draws += new
        return draws

    def _launch(self, draw: Draw) -> None:
        answered, judged = self._generator.begin(draw, self._params, version=self._version)
        self._pending[draw.index] = _Pending(
            draw, answered, judged, self._version, time.monotonic()
        )
        judged.add_done_callback(lambda _: self._land(draw.index))

    def _land(self, index: int) -> None:
        with self._changed:
            self._landed.append(index)
            self._changed.notify_all()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        late = [
            pending for pending in self._pending.values() if now - pending.since > self._deadline
        ]
        if late:
            raise RunError(
                f"{late[0].draw.problem.id}, asked for under version {late[0].version}, did not "
                f"come within {self._deadline:g} s; {self._account_of(None)}",
                remedy="raise run.timeout, or ask for fewer or shorter completions",
            )
