"""Coroutines of the tests that the program waits for.

Where the tests' event loop waits for the program, it runs them too, by turns with the program's.
Where none runs, as when a plain function of the program calls ``asyncio.run``, they have a loop of
their own in the tests' process, which goes on while the program asks whether they have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

_TURNS = 20
"""Turns without waiting, in the order of any loop."""
_SECONDS = 0.001


async def coroutine(awaitable: Any) -> Any:
    """What can be awaited, as a coroutine, which event loops want."""
    return await awaitable


def wait(ask: Callable[..., Any]) -> Generator[Any, Any, Any]:
    """Wait in the program's process for something of the tests; ``__await__`` of that."""
    import asyncio

    ask("start")
    turns = 0
    try:
        while not ask("step"):
            yield from asyncio.sleep(0 if turns < _TURNS else _SECONDS).__await__()
            turns += 1
    except asyncio.CancelledError:
        ask("cancel")
        raise
    return ask("result")  # the value of the generator


class _Started:
    """A coroutine that runs in the tests' process."""

    def __init__(self, one: Any, task: Any, own: bool) -> None:
        self.one, self.task, self.own = one, task, own
        self.turns = 0


_started: dict[int, _Started] = {}
_loops: list[Any] = []


def start(one: Any) -> None:
    """Begin to run something of the tests."""
    import asyncio

    running = asyncio._get_running_loop()
    if running is None and not _loops:
        _loops.append(asyncio.new_event_loop())
    loop = running or _loops[0]
    _started[id(one)] = _Started(one, loop.create_task(coroutine(one)), running is None)


def step(one: Any) -> bool:
    """Go on for a while where no loop of the tests does; whether it has ended."""
    import asyncio

    started = _started[id(one)]
    if started.own and not started.task.done():
        started.turns += 1
        if started.turns < _TURNS:
            _loops[0].call_soon(_loops[0].stop)
            _loops[0].run_forever()
        else:
            _loops[0].run_until_complete(asyncio.wait({started.task}, timeout=_SECONDS))
    return bool(started.task.done())


def result(one: Any) -> Any:
    """What came of it.

    Raises:
        BaseException: What it raised.
    """
    return _started.pop(id(one)).task.result()


def cancel(one: Any) -> None:
    """Nobody waits any more."""
    _started.pop(id(one)).task.cancel()
