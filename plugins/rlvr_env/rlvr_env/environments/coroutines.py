"""Calls environments whose methods are coroutines, all in one event loop.

Nothing is pickled here: a conversation's state stays in this process, and the caller only has a
number for it. So a state may be a connection or a process, and hundreds of conversations may wait
at a time.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import pickle
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from rlvr_core.api import ClosesConversations, EnvironmentTraits, Json, RunError, traits_of
from rlvr_core.plugins.loader import describe
from rlvr_core.verify.verdicts import plain_verdict
from rlvr_env.environments.faults import EnvironmentFailedError, EnvironmentTimeoutError
from rlvr_env.environments.observations import Branched, OpensItself, plain_answer
from rlvr_env.environments.worker import Call

_FAREWELL = 5.0
"""Seconds for open conversations to close when the run ends."""


class Coroutines:
    """Calls asynchronous environments. Methods may be called from any thread.

    Args:
        environments: Instances by full name.
        limits: Seconds a call may take, by full name.
    """

    def __init__(self, environments: Mapping[str, Any], limits: Mapping[str, float]) -> None:
        self._environments, self._limits = environments, limits
        self._states: dict[bytes, tuple[str, Any]] = {}
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="environments")
        self._thread.daemon = True
        self._closed = False
        if environments:
            self._thread.start()

    def submit(self, call: Call) -> Future[dict[str, Json]]:
        """Submit a call; its future gets the answer, or an ``EnvironmentFailedError``.

        Raises:
            RunError: If the loop was closed.
        """
        if self._closed:
            raise RunError("the loop of environments was closed")
        return asyncio.run_coroutine_threadsafe(self._answer(call), self._loop)

    def close(self) -> None:
        """Close every conversation and end the loop; pending calls fail. Safe to call twice."""
        if self._closed or not self._environments:
            return
        self._closed = True
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result(_FAREWELL * 2)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Fail running calls, close the conversations, and cancel the remaining tasks."""
        me = asyncio.current_task()
        others = asyncio.all_tasks() - {me}
        calls = [task for task in others if task.get_name().startswith("call ")]
        for task in calls:
            task.cancel()
        closing = [asyncio.create_task(self._release(key)) for key in list(self._states)]
        if calls or closing:
            await asyncio.wait([*calls, *closing], timeout=_FAREWELL)
        left = asyncio.all_tasks() - {me}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_FAREWELL)

    async def _answer(self, call: Call) -> dict[str, Json]:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(f"call {call.what}")
        limit = self._limits[call.name]
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                return await self._execute(call)
        except asyncio.CancelledError:
            raise EnvironmentFailedError("the loop of environments was closed") from None
        except TimeoutError as error:
            why = f"took longer than {limit:g} s" if clock.expired() else str(error)
            raise EnvironmentTimeoutError(f"{call.what} {why}") from error
        except Exception as error:
            raise EnvironmentFailedError(f"{call.what}: {describe(error)}") from error

    async def _execute(self, call: Call) -> dict[str, Json]:
        environment = self._environments[call.name]
        if call.what == "start":
            state = await environment.start(pickle.loads(call.state), call.argument)
            key = b"%d" % next(self._numbers)
            self._states[key] = (call.name, state)
            answer: dict[str, Json] = {"state": base64.b85encode(key).decode("ascii")}
            if isinstance(state, OpensItself):
                answer["opening"] = dict(state.opening)
            return answer
        if call.what == "close":
            await self._release(call.state)
            return {}
        _, state = self._states[call.state]
        if call.what == "cut":
            return {"verdict": plain_verdict(await environment.cut(state, call.argument))}
        observed = await environment.step(state, call.argument)
        max_characters = traits_of(environment, EnvironmentTraits).max_characters
        answer = {
            "state": base64.b85encode(call.state).decode("ascii"),
            **plain_answer(observed, max_characters),
        }
        if isinstance(observed, Branched):
            heading = {
                "number": observed.branch,
                "opening": observed.opening,
                "fork": observed.fork,
            }
            answer["branch"] = heading
        return answer

    async def _release(self, key: bytes) -> None:
        name, state = self._states.pop(key, ("", None))
        environment = self._environments.get(name)
        if isinstance(environment, ClosesConversations):
            await environment.close(state)  # type: ignore[func-returns-value,misc]
