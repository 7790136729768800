"""What answers a model: verifiers, and environments of several turns."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from rlvr_core.api.types import (
    Completion,
    Done,
    Observation,
    Problem,
    Reply,
    Verdict,
)


@runtime_checkable
class Verifier(Protocol):
    """Judges completions. Pure, synchronous and picklable; it runs in a worker process.

    It may also define ``check(problem) -> None``, called when data is loaded, which raises
    ``DataError`` if ``problem.spec`` lacks what the verifier needs; and ``gold(problem) ->
    str | None``, a response that must get full marks, used by the preflight check. One that waits
    for another machine may define a static method ``time_limit(config) -> float``: seconds that
    one verdict of it may take, in place of ``verify.timeout``; and ``beside``, names of options
    that change no verdict, such as a price: an evaluation records them beside its specification.
    """

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one completion."""


@runtime_checkable
class Environment(Protocol):
    """Turns a problem into a conversation: answers what the model writes, until it is done.

    It runs in worker processes, which are killed when a call takes too long, so its methods are
    plain functions. What it must remember of a conversation is the state: any object that can be
    pickled. It is kept between calls, and the next call may come in another process, so nothing
    else does. All conversations about one draw of a problem are started with the same seed.

    It may also define ``present(problem) -> Problem``, which gives the prompt and the tools as the
    model is to see them, and ``check(problem) -> None``, which raises ``DataError`` if the spec
    lacks what the environment needs: both are called in the trainer's process when data is loaded.
    ``cut(state, ended) -> Verdict`` says what a conversation is worth that ended at a limit, 0 when
    it is left out. ``close(state) -> None`` gives back what a conversation holds; it is called once
    for each that was started, whichever way it ended. A static ``time_limit(config) -> float`` is
    the seconds that one call may take, in place of ``environment.timeout``.
    """

    def start(self, problem: Problem, seed: int) -> Any:
        """The state of a new conversation."""

    def step(self, state: Any, reply: Reply) -> Observation | Done:
        """Answer the model, and bring the state up to date in place.

        What the model did wrong is answered by an observation or a verdict. An exception says that
        the environment failed: the conversation is then recorded as failed, and not trained on.
        """
