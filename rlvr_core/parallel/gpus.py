"""Resolves the GPUs that a run names, as indices into those it may use.

Whoever starts a run gives it GPUs by ``CUDA_VISIBLE_DEVICES``: a scheduler, a container, a
colleague who shares the machine. ``--gpus 0,1`` are the first two of these, as ``cuda:0`` and
``cuda:1`` are in every program, and never the machine's first two. Cards may be named by UUID too
(``GPU-...``, ``MIG-...``), in full or by a beginning that is unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from rlvr_core.api import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"
GIVEN = "RLVR_GIVEN_GPUS"
"""Environment variable with what the launcher was given, where it gives its processes less; ``all``
if that was every GPU of the machine."""

Gpu = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(GPU|MIG)-")]
"""A place within the given GPUs, or a UUID."""


def given_gpus(text: str | None) -> list[str] | None:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` shows, as the driver reads it; None for all.

    An entry that names no card ends the list: ``0,-1,2`` is card 0 alone.
    """
    if text is None or text == "all":
        return None
    cards: list[str] = []
    for entry in map(str.strip, text.split(",")):
        if not (entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))):
            break
        cards.append(entry)
    return cards


def chosen_gpus(named: Sequence[int | str], shown: str | None, where: str) -> list[str]:
    """Return what ``CUDA_VISIBLE_DEVICES`` has to be for these GPUs.

    Args:
        named: Places or UUIDs.
        shown: The ``CUDA_VISIBLE_DEVICES`` that the run was given; None if it was given none.
        where: Key or option that they come from.

    Raises:
        ConfigError: If one is not among those that were given, or is named twice.
    """
    given = given_gpus(shown)
    chosen = [_card(str(gpu).strip(), given, where) for gpu in named]
    twice = sorted({card for card in chosen if chosen.count(card) > 1})
    if twice:
        raise ConfigError(
            f"GPU {', '.join(twice)} is named twice",
            where=where,
            remedy="a GPU either trains or is an engine's",
        )
    return chosen


def _card(named: str, given: list[str] | None, where: str) -> str:
    if given is None:
        return named
    shown = f"{VISIBLE}={','.join(given)}" if given else f"{VISIBLE} shows none"
    if named.isdecimal():
        if int(named) < len(given):
            return given[int(named)]
        raise ConfigError(
            f"GPU {named} was asked for, and this run was given {len(given)}: {shown}",
            where=where,
            remedy=f"numbers are places in {VISIBLE}, from 0; unset it for all of the machine",
        )
    # the driver takes a beginning for the whole, on either side
    same = [card for card in given if card.startswith(named) or named.startswith(card)]
    if len(same) == 1:
        return same[0]
    raise ConfigError(
        f"GPU {named} is {'none' if not same else 'more than one'} of those that this run was "
        f"given: {shown}",
        where=where,
        remedy="name GPUs by their places in it, from 0",
    )
