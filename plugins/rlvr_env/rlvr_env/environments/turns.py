"""Plays conversations: an engine wrapper in which environments answer the model, turn by turn.

The model's turns stay the tokens that were sampled; an environment's messages are appended as the
tokens that the template produces, without log-probs and masked in the loss. So a multi-turn
completion is one sequence, exactly as the model saw it, and later stages need not know of turns.

Turns are played in rounds: all conversations that wait for the model are generated in one batch,
then every environment answers. A round waits briefly for slow environments and proceeds without the
slowest, which join a later round. ``continuous`` engines get each turn as soon as it is ready.
"""

from __future__ import annotations

import base64
import pickle
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from rlvr_core.api import (
    ClosesConversations,
    Ended,
    Engine,
    EngineContext,
    EngineTraits,
    EnvironmentTraits,
    Generation,
    GenerationRequest,
    Json,
    JudgesUnfinished,
    Message,
    Reply,
    RunError,
    Verdict,
    WeightSource,
    traits_of,
)
from rlvr_core.api.rollouts import Suffix
from rlvr_core.toolkit import from_plain
from rlvr_env.environments.conversation import Branch, Conversation, Ticket, seconds_left
from rlvr_env.environments.faults import EnvironmentFailedError, EnvironmentTimeoutError
from rlvr_env.environments.health import Health
from rlvr_env.environments.observations import cut_to_fit, shortened
from rlvr_env.environments.opening import opening_ids, opening_texts, unlike_prompt
from rlvr_env.environments.plan import EnvironmentPlan
from rlvr_env.environments.pool import EnvironmentPool
from rlvr_env.environments.seeds import turn_seed
from rlvr_env.environments.worker import Call

_LONGEST_ERROR = 2000
"""Maximum characters of a tool's error that the model reads."""


class TurnTaking:
    """An engine whose requests may be conversations; others are passed to the wrapped engine.

    Args:
        engine: The engine that generates, available as ``wrapped``.
        plan: The environment of each problem.
        suffix: Returns the tokens between two turns.
    """

    def __init__(self, engine: Engine, plan: EnvironmentPlan, suffix: Suffix) -> None:
        self.wrapped = engine
        self._plan = plan
        self._suffix = suffix
        section = plan.section
        self._section = section
        self._pool = EnvironmentPool(
            plan.specs, plan.instances, workers=section.workers, timeout=section.timeout
        )
        traits = traits_of(engine, EngineTraits)
        self._text_only = traits.text_only
        self._takes_turns = traits.takes_turns
        self._continuous = traits.continuous
        self._collective = traits.collective
        self._changed = threading.Condition(threading.RLock())
        self._numbers = 0
        self._version = 0
        self._waiting: deque[Conversation] = deque()
        self._playing: set[Conversation] = set()
        self._ready: list[Conversation] = []
        self._calls: Counter[Conversation] = Counter()
        self._late: set[Conversation] = set()
        self._open: dict[Ticket, None] = {}
        self._dropped: set[Conversation] = set()
        self._health = Health()
        self._context: EngineContext | None = None

    # -- engine interface --------------------------------------------------------------------------

    def start(self, context: EngineContext) -> None:
        """See ``Engine.start``."""
        self.wrapped.start(context)
        self._context = context

    def submit(self, request: GenerationRequest) -> Future[tuple[Generation, ...]]:
        """Queue a request; see ``Engine.submit``. Conversations are played in ``drain``."""
        problem = request.problem
        name = None if problem is None else self._plan.name(problem)
        if problem is None or name is None:
            return self.wrapped.submit(request)
        shown = self._plan.present(problem)
        ticket = Ticket(
            request,
            name,
            pickle.dumps(problem, pickle.HIGHEST_PROTOCOL),
            tuple(dict.fromkeys((*request.params.stop, *shown.stop))),
            [None] * len(request.seeds),
        )
        if not request.seeds:
            ticket.future.set_result(())
            return ticket.future
        self._submitted(ticket)
        return ticket.future

    def _submitted(self, ticket: Ticket) -> None:
        self._enter([ticket])

    def _enter(self, tickets: Sequence[Ticket]) -> None:
        """Begin the conversations of these requests."""
        with self._changed:
            for ticket in tickets:
                self._open[ticket] = None
                for index in range(len(ticket.finished)):
                    # if it fails before its first turn, it keeps the version it would have been
                    # sampled under
                    talk = Conversation(self._numbers, ticket, index, Branch(self._version))
                    self._waiting.append(talk)
                    self._numbers += 1
        self._admit()

    def drain(self, timeout: float | None = None) -> None:
        """Play every conversation to its end; see ``Engine.drain``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            # the first round also waits for all: otherwise its members would depend on timing
            self._wait(deadline, timeout)
            while True:
                self._ask_ready()
                self.wrapped.drain(seconds_left(deadline, timeout))
                if not self._anywhere(self._wait(deadline, timeout)):
                    return
        except BaseException as error:
            self._abandon(error)
            raise

    def load_weights(self, version: int, source: WeightSource) -> None:
        """See ``Engine.load_weights``."""
        self.wrapped.load_weights(version, source)
        self._version = version

    def sleep(self) -> None:
        """See ``Engine.sleep``."""
        self.wrapped.sleep()

    def wake(self) -> None:
        """See ``Engine.wake``."""
        self.wrapped.wake()

    def close(self) -> None:
        """End the environment processes, then the engine."""
        self._pool.close()
        self.wrapped.close()

    def __getattr__(self, name: str) -> Any:
        """Delegate all other attributes to the wrapped engine."""
        return getattr(self.wrapped, name)

    # -- rounds, in the thread that drains ---------------------------------------------------------

    def _wait(self, deadline: float | None, timeout: float | None) -> bool:
        """Wait until a turn can be generated; return False when everything is finished."""
        patience = time.monotonic() + self._section.straggler_timeout
        with self._changed:
            while self._open:
                if self._ready and self._calls.keys() <= self._late:
                    return True
                waits = [seconds_left(deadline, timeout)]
                waits += [max(patience - time.monotonic(), 0.0)] if self._ready else []
                known = [wait for wait in waits if wait is not None]
                if self._changed.wait(min(known, default=None)) or not self._ready:
                    continue
                if self._pool.starting:
                    patience = time.monotonic() + self._section.straggler_timeout
                else:
                    self._late |= self._calls.keys()
            return False

    def _anywhere(self, ready: bool) -> bool:
        """Return whether a turn can be generated here or by a collective engine's other process."""
        if not self._collective:
            return ready
        import torch

        count = torch.tensor(int(ready))
        torch.distributed.all_reduce(count)
        return bool(count)

    def _ask_ready(self) -> None:
        with self._changed:
            ready, self._ready = self._ready, []
        together: dict[tuple[Any, ...], list[Conversation]] = {}
        for talk in sorted(ready, key=lambda talk: talk.number):
            try:
                if talk in self._playing and self._speak(talk):
                    room = talk.room(text_only=self._text_only)
                    talk.limit = min(self._section.max_turn_tokens or room, room)
                    read = (talk.now.prompt, tuple(talk.now.ids), self._turns_of(talk))
                    key = (talk.ticket, *read, talk.limit)
                    together.setdefault(key, []).append(talk)
            except BaseException as error:
                self._break(talk.ticket, error)
        for group in together.values():
            try:
                self._ask(group)
            except BaseException as error:
                self._break(group[0].ticket, error)

    def _speak(self, talk: Conversation) -> bool:
        """Append the environment's messages; return False if no room for an answer is left.

        Messages that are too long are cut to half of the room. If even that leaves no room, they
        are left out: the model did not see them.
        """
        messages, talk.unsaid = talk.unsaid, ()
        if talk.heading is not None:
            heading, talk.heading = talk.heading, None
            talk.turn_to(heading["number"], heading["fork"])
            if heading["opening"] is not None:
                return self._open_branch(talk, heading["opening"], messages)
        if not messages:
            return True
        problem = talk.ticket.request.problem
        assert problem is not None
        render = partial(self._suffix, problem, talk.now.reply_ids)
        ids: Sequence[int] = () if self._text_only else render(messages)
        room = talk.room(text_only=self._text_only)
        if len(ids) >= room > 0:
            messages, ids = cut_to_fit(messages, ids, room // 2, render)
        if len(ids) >= room:
            self._end(talk, "budget")
            return False
        talk.hear(messages, ids)
        return True

    def _open_branch(
        self, talk: Conversation, opening: dict[str, Json], messages: Sequence[Message]
    ) -> bool:
        """Begin a branch with its own messages; return False if it cannot continue."""
        if self._text_only or self._context is None:
            raise RunError(
                f"environment '{talk.ticket.environment}' begins conversations itself, which needs "
                f"an engine that takes tokens",
                remedy="use an engine other than checks/openai",
            )
        prompt, tokenizer = talk.ticket.request.prompt_ids, self._context.tokenizer
        ids = opening_ids(tokenizer, opening, prompt)
        if ids[: len(prompt)] == prompt:
            ids = ids[len(prompt) :]
            if len(ids) >= talk.room(text_only=False):
                self._end(talk, "budget")
                return False
            talk.hear(messages if ids else (), ids)
        elif talk.branch == 0:
            self._end(talk, "error", unlike_prompt(tokenizer, ids, prompt))
            return False
        else:
            talk.now.prompt = ids
            if talk.room(text_only=False) <= 0:
                self._end(talk, "budget")
                return False
            talk.hear(messages, ())
        return True

    def _turns_of(self, talk: Conversation) -> tuple[Message, ...]:
        """Return the messages so far for a text engine; for others, the request's own."""
        if not self._text_only:
            return talk.ticket.request.turns
        return talk.as_text(in_turns=self._takes_turns)

    def _ask(self, group: Sequence[Conversation]) -> None:
        """Generate the next turn of conversations that share the same prefix."""
        first = group[0]
        original = first.ticket.request
        request = replace(
            original,
            id=f"{original.id}/{first.index}.{first.n_turns}",
            prompt_ids=(*(first.now.prompt or original.prompt_ids), *first.now.ids),
            params=replace(original.params, max_tokens=first.limit, stop=first.ticket.stop),
            seeds=tuple(turn_seed(original.seeds[talk.index], talk.n_turns) for talk in group),
            turns=self._turns_of(first),
            problem=None,
        )
        future = self.wrapped.submit(request)
        future.add_done_callback(lambda done: self._heard(group, done))

    def _heard(self, group: Sequence[Conversation], done: Future[tuple[Generation, ...]]) -> None:
        try:
            for talk, generation in zip(group, done.result(), strict=True):
                if talk in self._playing:
                    self._take(talk, generation)
            if self._continuous:
                self._ask_ready()
        except BaseException as error:
            self._break(group[0].ticket, error)

    def _take(self, talk: Conversation, generation: Generation) -> None:
        """Process a turn of the model."""
        if generation.finish_reason not in ("stop", "length"):
            raise RunError(
                f"the engine gave a turn that ended by '{generation.finish_reason}', which is no "
                f"turn to answer",
                remedy="an engine samples again what it aborted, or fails",
            )
        turn, before = talk.n_turns, talk.n_tokens
        talk.say(generation)
        if generation.finish_reason == "length":
            # not passed to the environment: a truncated turn is no reply, and must not be run as
            # code
            left = talk.room(text_only=self._text_only)
            self._end(talk, "turn_length" if left > 0 else "budget")
            return
        left, n = self._section.max_turns - turn - 1, len(generation.token_ids)
        reply = Reply(generation.text, turn, left, before if n else 0, n)
        assert talk.state is not None
        call = Call("step", talk.ticket.environment, talk.state, reply)
        self._call(talk, call, self._answered, self._step_failed)

    # -- answers of environments, in the threads of their pool -------------------------------------

    def _admit(self) -> None:
        """Start conversations up to the concurrency limit."""
        with self._changed:
            free = self._section.concurrent - len(self._playing)
            admitted = [self._waiting.popleft() for _ in range(min(free, len(self._waiting)))]
            self._playing.update(admitted)
        for talk in admitted:
            ticket = talk.ticket
            seed = ticket.request.world_seed
            call = Call("start", ticket.environment, ticket.problem, seed)
            self._call(talk, call, self._started)

    def _call(
        self,
        talk: Conversation,
        call: Call,
        then: Callable[[Conversation, dict[str, Json]], None],
        otherwise: Callable[[Conversation, EnvironmentFailedError], None] | None = None,
    ) -> bool:
        """Call the environment; return False if the conversation was cancelled meanwhile."""

        def back(done: Future[dict[str, Json]]) -> None:
            with self._changed:
                self._late.discard(talk)
            try:
                if talk in self._playing:
                    then(talk, done.result())
                elif "state" in done.result():
                    talk.state = base64.b85decode(done.result()["state"])
            except EnvironmentFailedError as error:
                (otherwise or self._failed)(talk, error)
            except BaseException as error:
                self._break(talk.ticket, error)
            with self._changed:
                self._calls[talk] -= 1
                if not self._calls[talk]:
                    del self._calls[talk]
                over = talk in self._dropped and talk not in self._calls
                self._changed.notify_all()
            if over:
                self._let_go(talk)

        with self._changed:
            if talk not in self._playing:
                return False
            self._calls[talk] += 1
        self._pool.submit(call).add_done_callback(back)
        return True

    def _started(self, talk: Conversation, answer: dict[str, Json]) -> None:
        talk.state = base64.b85decode(answer["state"])
        if "opening" in answer:
            talk.heading = {"number": 0, "opening": answer["opening"], "fork": None}
            texts = [Message("user", text) for text in opening_texts(answer["opening"])]
            talk.unsaid = tuple(texts)
        self._go_on(talk)

    def _answered(self, talk: Conversation, answer: dict[str, Json]) -> None:
        self._health.called(talk.ticket.environment, failed=False)
        talk.state = base64.b85decode(answer["state"])
        talk.counts.update(answer["counts"])
        if "done" in answer:
            plain = answer["done"]
            self._end(talk, "done", verdict=None if plain is None else from_plain(plain))
        elif talk.n_turns >= self._section.max_turns:
            self._end(talk, "max_turns")
        else:
            talk.unsaid = tuple(Message(role, text) for role, text in answer["messages"])
            talk.heading = answer.get("branch")
            self._go_on(talk)

    def _step_failed(self, talk: Conversation, error: EnvironmentFailedError) -> None:
        """End the conversation or report the error to the model, depending on ``on_error``."""
        name = talk.ticket.environment
        traits = traits_of(self._plan.instances[name], EnvironmentTraits)
        broken = self._health.called(name, failed=True)
        if traits.on_error == "end" or broken or talk.state is None or not error.in_call:
            self._failed(talk, error)
            return
        talk.counts["failed_calls"] += 1
        if talk.n_turns >= self._section.max_turns:
            self._end(talk, "max_turns")
            return
        what = shortened(str(error), min(traits.max_characters, _LONGEST_ERROR))
        text = traits.error_text.replace("{error}", what.encode(errors="replace").decode())
        talk.unsaid = (Message(traits.role, text),)
        self._go_on(talk)

    def _go_on(self, talk: Conversation) -> None:
        with self._changed:
            self._ready.append(talk)

    def _failed(self, talk: Conversation, error: EnvironmentFailedError) -> None:
        ended: Ended = "timeout" if isinstance(error, EnvironmentTimeoutError) else "error"
        self._end(talk, ended, str(error))

    # -- ends --------------------------------------------------------------------------------------

    def _end(
        self,
        talk: Conversation,
        ended: Ended,
        detail: str = "",
        verdict: Verdict | None = None,
    ) -> None:
        """End a conversation: get a verdict if it was cut off, and release its resources."""
        name = talk.ticket.environment
        if ended in ("max_turns", "turn_length", "budget") and verdict is None:
            if isinstance(self._plan.instances[name], JudgesUnfinished):
                assert talk.state is not None
                self._call(
                    talk,
                    Call("cut", name, talk.state, ended),
                    lambda ended_talk, answer: self._close(
                        ended_talk, ended, detail, from_plain(answer["verdict"])
                    ),
                )
                return
            verdict = Verdict(0.0, passed=False, detail=f"not finished: {ended}")
        self._close(talk, ended, detail, verdict)

    def _close(
        self, talk: Conversation, ended: Ended, detail: str, verdict: Verdict | None
    ) -> None:
        call = self._farewell(talk)
        if call is None:
            self._finish(talk, ended, detail, verdict)
            return
        called = self._call(
            talk,
            call,
            lambda ended_talk, _: self._finish(ended_talk, ended, detail, verdict),
            lambda ended_talk, error: self._finish(
                ended_talk, "error", f"{detail} {error}".strip(), None
            ),
        )
        if not called:
            self._pool.submit(call)

    def _farewell(self, talk: Conversation) -> Call | None:
        """Return the call that releases a conversation's resources: once, if there are any."""
        with self._changed:
            state, talk.state = talk.state, None
        name = talk.ticket.environment
        closes = isinstance(self._plan.instances[name], ClosesConversations)
        if state is None or not (closes or self._pool.holds(name)):
            return None
        return Call("close", name, state)

    def _drop(self) -> list[Ticket]:
        """Drop every request, to be cancelled; resources of the conversations are released."""
        with self._changed:
            tickets, self._open = list(self._open), {}
            for ticket in tickets:
                ticket.settled = True
            gone, self._playing = self._playing, set()
            self._waiting.clear()
            self._ready = []
            self._dropped |= {talk for talk in gone if talk in self._calls}
            self._changed.notify_all()
        for talk in gone - self._dropped:
            self._let_go(talk)
        return tickets

    def _let_go(self, talk: Conversation) -> None:
        """Release a dropped conversation's resources without waiting."""
        self._dropped.discard(talk)
        call = self._farewell(talk)
        if call is not None:
            self._pool.submit(call)

    def _finish(
        self, talk: Conversation, ended: Ended, detail: str, verdict: Verdict | None
    ) -> None:
        ticket = talk.ticket
        ticket.finished[talk.index] = talk.whole(ended, detail, verdict)
        with self._changed:
            self._playing.discard(talk)
            finished = [generation for generation in ticket.finished if generation is not None]
            whole = len(finished) == len(ticket.finished) and not ticket.settled
            ticket.settled |= whole
        self._admit()
        if not whole:
            return
        error = self._health.played(ticket.environment, finished)
        if error is None:
            ticket.future.set_result(tuple(finished))
        else:
            ticket.future.set_exception(error)
        self._forget(ticket)

    def _break(self, ticket: Ticket, error: BaseException) -> None:
        """Fail a request after an error in the engine or around it."""
        with self._changed:
            first, ticket.settled = not ticket.settled, True
            mine = {talk for talk in self._playing if talk.ticket is ticket}
            self._playing -= mine
            self._waiting = deque(talk for talk in self._waiting if talk.ticket is not ticket)
            self._ready = [talk for talk in self._ready if talk.ticket is not ticket]
        if first:
            ticket.future.set_exception(error)
        self._forget(ticket)

    def _forget(self, ticket: Ticket) -> None:
        with self._changed:
            self._open.pop(ticket, None)
            self._changed.notify_all()

    def _abandon(self, error: BaseException) -> None:
        with self._changed:
            tickets = list(self._open)
        for ticket in tickets:
            self._break(ticket, error)
