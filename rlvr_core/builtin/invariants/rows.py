"""Which completion of a step each row of a micro-batch is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.builtin.invariants.check import Seen, StepView

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group

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
        share: The share of its completion that the loss counts it for.
    """

    seen: Seen
    index: int
    key: Key
    mask: tuple[bool, ...]
    advantage: float
    share: float = 1.0


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
        prompts_of, share_B = micro.prompt_of_row_B.tolist(), one.normalizer.share_B
        columns = zip(
            micro.group_B.tolist(),
            prompts_of,
            micro.completion_ids_BT.tolist(),
            micro.completion_len_B.tolist(),
            one.batch.mask_BT.tolist(),
            one.batch.advantage_B.tolist(),
            [1.0] * len(prompts_of) if share_B is None else share_B.tolist(),
            strict=True,
        )
        for index, (group, prompt, ids, length, mask, advantage, share) in enumerate(columns):
            key = (group, prompts[prompt], tuple(ids[:length]))
            yield SeenRow(one, index, key, tuple(mask), advantage, share)


def key_of(place: int, row: Completion) -> Key:
    """Return the key of a completion, or of a branch of one, of the group at this place."""
    return (place, row.prompt_ids, row.token_ids)


def members_by_key(groups: Sequence[Group]) -> dict[Key, list[tuple[int, int]]]:
    """Return places of group and member by the key of each row; equal rows of a group share one."""
    found: dict[Key, list[tuple[int, int]]] = {}
    for place, group in enumerate(groups):
        for number, member in enumerate(group.members):
            for row in member.completion.rows:
                found.setdefault(key_of(place, row), []).append((place, number))
    return found


def sampled_turns(completion: Completion) -> int:
    """Return how many turns of the model are in the loss, in all rows."""
    found = 0
    for row in completion.rows:
        at = 0
        for turn in row.transcript.turns if row.transcript is not None else ():
            own = row.loss_mask[at : at + turn.n_tokens]
            found += turn.role == "assistant" and (any(own) or not own)
            at += turn.n_tokens
    return found


def sampled_by_model(completion: Completion) -> list[tuple[bool, ...]]:
    """Return which tokens of each row the model wrote, and no row before it has.

    By transcripts and tokens alone: a turn that an earlier row of the completion has as well,
    behind the same tokens, may have been sampled once or twice, and is as its mask has it.
    """
    if completion.transcript is None:
        return [(True,) * len(completion.token_ids)]
    found = [completion.transcript.loss_mask(len(completion.token_ids))]
    for number, row in enumerate(completion.branches, start=1):
        before = [one.prompt_ids + one.token_ids for one in completion.rows[:number]]
        whole, start = row.prompt_ids + row.token_ids, len(row.prompt_ids)
        mask: list[bool] = []
        for turn in row.transcript.turns if row.transcript is not None else ():
            begin, end = len(mask), len(mask) + turn.n_tokens
            own = turn.role == "assistant"
            shared = any(one[: start + end] == whole[: start + end] for one in before)
            if own and shared and not any(row.loss_mask[begin:end]):
                own = False
            mask += [own] * turn.n_tokens
        found.append(tuple(mask))
    return found
