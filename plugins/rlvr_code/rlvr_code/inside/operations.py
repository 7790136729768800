"""What the tests may have done with objects of the program, in the program's process."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

from rlvr_code.inside.contexts import CONTEXTS
from rlvr_code.inside.operators import OPERATORS, ORDER, UNARY


def _nothing(*given: Any) -> None:
    """What a descriptor without a method does."""


def _reflected(do: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: do(other, one)


def _of(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _loop() -> Any:
    """The event loop in which everything is waited for, so that locks and the like go together."""
    import asyncio

    if not _loops:
        _loops.append(asyncio.new_event_loop())
        asyncio.set_event_loop(_loops[0])
    return _loops[0]


async def _awaited(one: Any) -> Any:
    return await one


def _task(method: str, *given: Any) -> Any:
    """Begin to wait for what a method of an object's class returns."""

    async def main() -> Any:
        return await getattr(type(given[0]), method)(*given)

    return _begun(main())


def _begun(main: Any) -> Any:
    """A task in the context of the tests that wait for it."""
    context, CONTEXTS.of_task = CONTEXTS.of_task, None
    given = {} if context is None else {"context": context}
    return _loop().create_task(main, **given)


_loops: list[Any] = []
_SINGLE_TURNS = 20
_WAIT_SECONDS = 0.002


def _turn(task: Any, turns: int) -> bool:
    """Let the event loop go on: by a turn at first, in the order of any loop, then for a while."""
    loop = _loop()
    if turns < _SINGLE_TURNS:
        loop.call_soon(loop.stop)
        loop.run_forever()
    else:
        import asyncio

        loop.run_until_complete(asyncio.wait({task}, timeout=_WAIT_SECONDS))
    return bool(task.done())


def _cancel(task: Any) -> None:
    task.cancel()
    _turn(task, 0)
    if task.done() and not task.cancelled():
        task.exception()  # which nobody wants any more


OPERATIONS: dict[str, Callable[..., Any]] = {
    **UNARY,
    **OPERATORS,
    **{f"r{name}": _reflected(do) for name, do in OPERATORS.items()},
    **{f"i{name}": getattr(operator, f"__i{name}__") for name in OPERATORS if name != "divmod"},
    **ORDER,
    "get": getattr,
    "pow": pow,
    "set": setattr,
    "delattr": delattr,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "len": len,
    "hash": hash,
    "true": bool,
    "str": str,
    "repr": repr,
    "format": format,
    "round": round,
    "dir": dir,
    "eq": lambda one, other: bool(one == other),
    "contains": operator.contains,
    "type": type,
    "isinstance": isinstance,
    "issubclass": issubclass,
    "super": super,
    "name": lambda one: one,
    "enter": lambda one: type(one).__enter__(one),
    "exit": lambda one, error: bool(type(one).__exit__(one, *_of(error))),
    "task": lambda one: _begun(_awaited(one)),
    "turn": lambda one, turns: _turn(one, turns),
    "cancel": lambda one: _cancel(one),
    "result": lambda one: one.result(),
    "aiter": lambda one: type(one).__aiter__(one),
    "anext": lambda one: _task("__anext__", one),
    "aenter": lambda one: _task("__aenter__", one),
    "aexit": lambda one, error: _task("__aexit__", one, *_of(error)),
    "library": lambda one, module, name, *given, **named: getattr(
        importlib.import_module(module), name
    )(*given, **named),
    "resume": lambda one, name, *given: getattr(one, name)(*given),
    "descriptor": lambda one, name, *given: getattr(type(one), name, _nothing)(one, *given),
    "seed": lambda one, *given: __import__("random").seed(*given),
}
