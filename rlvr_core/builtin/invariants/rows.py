"""Which completion of a step each row of a micro-batch is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.builtin.invariants.check import Seen, StepView

if TYPE_CHECKING:
    from rlvr_core.api import Group, Judged

Key = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SeenRow:
    """A row of a micro-batch.

    Attributes:
        seen: The micro-batch.
        index: The row in it.
        key: Its group's place, prompt and tokens.
        mask: Where the loss counts, one per token.
        advantage: What the loss was given.
    """

    seen: Seen
    index: int
    key: Key
    mask: tuple[bool, ...]
    advantage: float


def rows_of(view: StepView) -> Sequence[SeenRow]:
    """Return the rows of the micro-batches of an update; they are read once for all invariants."""
    if view.known_rows is None:
        view.known_rows = list(_rows_of(view.seen))
    found: list[SeenRow] = view.known_rows
    return found


def _rows_of(seen: Sequence[Seen]) -> Iterator[SeenRow]:
    for one in seen:
        micro = one.micro_batch
        prompts = [
            tuple(ids[:length])
            for ids, length in zip(
                micro.prompt_ids_SP.tolist(), micro.prompt_len_S.tolist(), strict=True
            )
        ]
        columns = zip(
            micro.group_B.tolist(),
            micro.prompt_of_row_B.tolist(),
            micro.completion_ids_BT.tolist(),
            micro.completion_len_B.tolist(),
            one.batch.mask_BT.tolist(),
            one.batch.advantage_B.tolist(),
            strict=True,
        )
        for index, (group, prompt, ids, length, mask, advantage) in enumerate(columns):
            key = (group, prompts[prompt], tuple(ids[:length]))
            yield SeenRow(one, index, key, tuple(mask), advantage)


def key_of(place: int, member: Judged) -> Key:
    """Return the key of a completion of the group at this place."""
    return (place, member.completion.prompt_ids, member.completion.token_ids)


def members_by_key(groups: Sequence[Group]) -> dict[Key, list[tuple[int, int]]]:
    """Return places of group and member by key; equal completions of a group share one."""
    found: dict[Key, list[tuple[int, int]]] = {}
    for place, group in enumerate(groups):
        for number, member in enumerate(group.members):
            found.setdefault(key_of(place, member), []).append((place, number))
    return found
