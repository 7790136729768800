"""Values near another that do not equal it: an object that equals one of them tells nothing."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

COUNT = 8
"""How many there are of a value at least; so often is a program's guess wrong that lies."""


def of(value: Any) -> list[Any]:
    """Values of the same kind that no honest comparison takes for this one."""
    return [_changed(value, at) for at in range(1, COUNT + 1)]


def _changed(value: Any, at: int) -> Any:
    kind = type(value)
    if kind in (int, float, complex, Decimal, Fraction):
        return value + kind(_step(at))
    if kind is bool:
        return _step(at) + 2
    if kind is str:
        return _text(value, at)
    if kind is bytes:
        return value + bytes(at)
    if kind in (list, tuple):
        return _sequence(value, at)
    if kind is dict:
        return value | {f"key {random.getrandbits(30)}": at}
    if kind in (set, frozenset):
        return value | {random.getrandbits(30) + 10**6}
    return f"{random.getrandbits(90)}"


def _step(at: int) -> int:
    """One up or down, or by a large prime: equal are then only numbers of a remainder by that."""
    step = 1 if at <= 2 else random.choice(_PRIMES)
    return step if at % 2 else -step


_PRIMES = (15_485_863, 32_452_843, 49_979_687, 67_867_967, 86_028_121)


def _text(value: str, at: int) -> str:
    if at % 2 or not value:
        return value + "abcdefgh"[at - 1]
    place = random.randrange(len(value))
    return value[:place] + "qzjxkvwy"[at - 1] + value[place:]


def _sequence(value: Any, at: int) -> Any:
    """One element changed, or one more."""
    if not value or at % 2:
        return value + type(value)([at + 1000])
    place = random.randrange(len(value))
    return value[:place] + type(value)([_changed(value[place], at)]) + value[place + 1 :]
