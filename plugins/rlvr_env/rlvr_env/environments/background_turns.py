"""Conversations with a background engine, during training.

The rounds are those of ``TurnTaking``, played in a separate thread. Requests that begin together
are submitted together, so that the engine gets the same requests in the same order as without
background generation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from rlvr_core.api import BackgroundEngine, EngineContext, Generation, RunError, WeightSource
from rlvr_core.api.rollouts import Suffix
from rlvr_env.environments.conversation import Conversation, Ticket, seconds_left
from rlvr_env.environments.plan import EnvironmentPlan
from rlvr_env.environments.turns import TurnTaking

_FAREWELL = 30.0
"""Seconds the thread may take to end."""


class BackgroundTurns(TurnTaking):
    """A ``BackgroundEngine`` whose requests may be conversations.

    Args:
        engine: The engine that generates.
        plan: The environment of each problem.
        suffix: Returns the tokens between two turns.
    """

    def __init__(self, engine: BackgroundEngine, plan: EnvironmentPlan, suffix: Suffix) -> None:
        super().__init__(engine, plan, suffix)
        self._background = engine
        self._eager = self._continuous
        # the separate thread submits turns, not the one that delivers answers
        self._continuous = False
        self._queued: list[Ticket] = []
        self._unanswered = 0
        self._closing = False
        # held while turns are submitted, and while weights change
        self._submitting = threading.Lock()
        self._thread = threading.Thread(target=self._play, name="turns", daemon=True)

    @property
    def in_flight(self) -> frozenset[str]:
        """See ``BackgroundEngine``; environments do not matter here."""
        return self._background.in_flight

    def start(self, context: EngineContext) -> None:
        """See ``Engine.start``."""
        super().start(context)
        self._thread.start()

    def begin(self) -> None:
        """Begin all submitted requests; see ``BackgroundEngine``.

        Single-turn requests are sent together with the first turns, if there are any.
        """
        with self._changed:
            queued, self._queued = self._queued, []
        if queued:
            self._enter(queued)
        else:
            self._background.begin()

    def abort(self) -> None:
        """Cancel every request and close the conversations; see ``BackgroundEngine``."""
        with self._submitting:
            with self._changed:
                queued, self._queued = self._queued, []
            tickets = queued + self._drop()
            self._background.abort()
        for ticket in tickets:
            ticket.future.cancel()

    def drain(self, timeout: float | None = None) -> None:
        """Wait until every submitted request is finished; see ``Engine.drain``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.begin()
        try:
            with self._changed:
                while self._open:
                    self._changed.wait(seconds_left(deadline, timeout))
            self.wrapped.drain(seconds_left(deadline, timeout))
        except BaseException as error:
            self._abandon(error)
            raise

    def load_weights(self, version: int, source: WeightSource) -> None:
        """Load weights while no turn is being submitted; see ``Engine.load_weights``."""
        with self._submitting:
            super().load_weights(version, source)

    def close(self) -> None:
        """End the thread, the environment processes and the engine."""
        self._closing = True
        self._abandon(RunError("the engine was closed before the conversation was finished"))
        with self._changed:
            self._changed.notify_all()
        super().close()
        if self._thread.is_alive():
            self._thread.join(_FAREWELL)

    def _submitted(self, ticket: Ticket) -> None:
        with self._changed:
            self._queued.append(ticket)

    # -- the thread ------------------------------------------------------------------------------

    def _play(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._open)
                if self._closing:
                    return
            try:
                self._wait_for_round()
                with self._submitting:
                    self._ask_ready()
                    self._background.begin()
            except BaseException as error:
                self._abandon(error)

    def _wait_for_round(self) -> None:
        """Wait until turns can be submitted and no submitted turn is unanswered.

        A continuous engine, which accepts requests while it generates, gets them at once.
        """
        with self._changed:
            if self._eager:
                self._changed.wait_for(lambda: self._ready or not self._open)
                return
            self._changed.wait_for(lambda: not (self._unanswered and self._open))
        self._wait(None, None)

    def _ask(self, group: Sequence[Conversation]) -> None:
        with self._changed:
            self._unanswered += 1
        try:
            super()._ask(group)
        except BaseException:
            self._was_answered()
            raise

    def _heard(self, group: Sequence[Conversation], done: Future[tuple[Generation, ...]]) -> None:
        super()._heard(group, done)
        self._was_answered()

    def _was_answered(self) -> None:
        with self._changed:
            self._unanswered -= 1
            self._changed.notify_all()
