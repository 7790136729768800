"""Rows packed into micro-batches by a token budget, and shared out among processes.

Lengths are explicit: no mask is ever read off token ids. A prompt that several rows of
a micro-batch share is held once. Batch sizes need not be multiples of each other.

Which process trains on which rows: about as many tokens each, the rows of a prompt together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlvr_core.api import MicroBatch


@dataclass(frozen=True, slots=True)
class Row:
    """A completion to train on, or one branch of it.

    Attributes:
        prompt_ids: Token ids the model was given; at least one.
        token_ids: Token ids it produced.
        loss_mask: Which of them the loss counts.
        logprobs: Their log-probs under the policy that sampled them.
        advantage: One number for the row.
        group: Place of its group in the step.
        token_advantages: One number for each token; None where all have the row's.
        teacher_prompt_ids: The prompt a teacher with one of its own is given.
        share: The share that it has of its completion's loss tokens.

    Raises:
        ValueError: If the prompt is empty or the per-token sequences differ in length.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantage: float
    group: int = 0
    token_advantages: tuple[float, ...] | None = None
    teacher_prompt_ids: tuple[int, ...] | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        lengths = (len(self.token_ids), len(self.loss_mask), len(self.logprobs))
        if len(set(lengths)) != 1:
            raise ValueError(f"token_ids, loss_mask and logprobs differ in length: {lengths}")
        if self.token_advantages is not None and len(self.token_advantages) != lengths[0]:
            raise ValueError(
                f"{len(self.token_advantages)} token_advantages for {lengths[0]} tokens"
            )
        if not self.prompt_ids:
            raise ValueError("an empty prompt leaves the first token without a distribution")


@dataclass(frozen=True, slots=True)
class LocalMicroBatch:
    """A micro-batch of this process, and whether it counts.

    A process that has fewer micro-batches than another may have to compute some more, whose loss is
    multiplied by 0.
    """

    batch: MicroBatch
    counts: bool = True


def micro_batches(
    rows: Sequence[Row],
    *,
    tokens_per_micro_batch: int,
    device: torch.device | str = "cpu",
) -> list[MicroBatch]:
    """Pack rows into micro-batches of at most so many positions, padding included.

    Two orders are packed and the one with fewer positions in all wins: whole groups by their
    longest row, which shares prompts best, and single rows by length, which pads least.

    Args:
        rows: The rows of one optimizer step. Those without a loss token take no part: no
            objective depends on them.
        tokens_per_micro_batch: The budget. A row that alone exceeds it gets a micro-batch of its
            own.
        device: Where the tensors go.

    Returns:
        The micro-batches, longest completions first, so that a step that does not fit into
        memory fails at once.
    """
    trained = [i for i, row in enumerate(rows) if any(row.loss_mask)]
    longest: dict[tuple[int, ...], int] = {}
    first: dict[tuple[int, ...], int] = {}
    for i in trained:
        prompt = rows[i].prompt_ids
        longest[prompt] = max(longest.get(prompt, 0), len(rows[i].token_ids))
        first.setdefault(prompt, i)

    def by_group(i: int) -> tuple[int, int, int, int]:
        prompt = rows[i].prompt_ids
        return (-longest[prompt], first[prompt], -len(rows[i].token_ids), i)

    def by_length(i: int) -> tuple[int, int, int]:
        return (-len(rows[i].token_ids), first[rows[i].prompt_ids], i)

    packings = [
        _pack(rows, order, tokens_per_micro_batch)
        for order in (sorted(trained, key=by_group), sorted(trained, key=by_length))
    ]
    best = min(packings, key=lambda packing: sum(_positions(rows, pack) for pack in packing))
    return [_collate(rows, pack).to(device) for pack in best]


def _positions(rows: Sequence[Row], pack: Iterable[int]) -> int:
    chosen = [rows[i] for i in pack]
    prompts = {row.prompt_ids for row in chosen}
    widest = max(map(len, prompts))
    return len(prompts) * widest + len(chosen) * max(len(row.token_ids) for row in chosen)


def _pack(rows: Sequence[Row], order: Sequence[int], budget: int) -> list[list[int]]:
    """Fill micro-batches greedily in the given order."""
    packs: list[list[int]] = []
    prompts: set[tuple[int, ...]] = set()
    widest = longest = 0
    for i in order:
        prompt, length = rows[i].prompt_ids, len(rows[i].token_ids)
        n_prompts = len(prompts) + (prompt not in prompts)
        wide, long = max(widest, len(prompt)), max(longest, length)
        if packs and n_prompts * wide + (len(packs[-1]) + 1) * long <= budget:
            packs[-1].append(i)
            prompts.add(prompt)
            widest, longest = wide, long
        else:
            packs.append([i])
            prompts, widest, longest = {prompt}, len(prompt), length
    return packs


def _collate(rows: Sequence[Row], pack: Sequence[int]) -> MicroBatch:
    chosen = [rows[i] for i in pack]
    prompts = list(dict.fromkeys(row.prompt_ids for row in chosen))
    place = {prompt: s for s, prompt in enumerate(prompts)}
    length_B = torch.tensor([len(row.token_ids) for row in chosen])
    T = int(length_B.max())
    valid_BT = torch.arange(T) < length_B[:, None]
    return MicroBatch(
        prompt_ids_SP=_padded(prompts, 0),
        prompt_len_S=torch.tensor([len(prompt) for prompt in prompts]),
        prompt_of_row_B=torch.tensor([place[row.prompt_ids] for row in chosen]),
        completion_ids_BT=_padded([row.token_ids for row in chosen], 0),
        completion_len_B=length_B,
        valid_BT=valid_BT,
        mask_BT=_padded([row.loss_mask for row in chosen], False) & valid_BT,
        behaviour_logp_BT=_padded([row.logprobs for row in chosen], 0.0),
        advantage_B=torch.tensor([row.advantage for row in chosen], dtype=torch.float32),
        group_B=torch.tensor([row.group for row in chosen]),
        row_index_B=torch.tensor(pack),
        advantage_BT=_token_advantages(chosen),
        share_B=torch.tensor([row.share for row in chosen]),
        teacher_batch=_teacher_batch(chosen),
    )


def _token_advantages(rows: Sequence[Row]) -> Tensor | None:
    """Advantages (B, T) float32; None where no row has advantages per token."""
    if all(row.token_advantages is None for row in rows):
        return None
    return _padded(
        [
            (row.advantage,) * len(row.token_ids)
            if row.token_advantages is None
            else row.token_advantages
            for row in rows
        ],
        0.0,
    )


def _teacher_batch(rows: Sequence[Row]) -> MicroBatch | None:
    prompts = [row.teacher_prompt_ids for row in rows]
    if None in prompts:
        return None
    shown = [
        replace(row, prompt_ids=prompt, teacher_prompt_ids=None)
        for row, prompt in zip(rows, prompts, strict=True)
        if prompt is not None
    ]
    return _collate(shown, range(len(shown)))


def _padded(sequences: Sequence[Sequence[float]], fill: float) -> Tensor:
    """Sequences side by side, filled up on the right."""
    width = max(map(len, sequences))
    return torch.tensor([[*sequence, *[fill] * (width - len(sequence))] for sequence in sequences])


def shard_rows(rows: Sequence[Row], world: int) -> list[list[Row]]:
    """Split the rows of a step among processes.

    A prompt is computed once for all its rows, so they stay together; only rows that are more than
    a fair share are parted. The heaviest goes first, each to the process with the least so far. A
    process may get none.

    Args:
        rows: All rows of the step; those without a loss token are left out.
        world: Processes.

    Returns:
        Rows by process.
    """
    if world == 1:
        return [list(rows)]
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        if any(row.loss_mask):
            groups.setdefault(row.prompt_ids, []).append(row)
    fair = sum(map(_weight, groups.values())) / world
    hands: list[list[Row]] = [[] for _ in range(world)]
    weights = [0] * world
    pieces = [piece for group in groups.values() for piece in _pieces(group, fair)]
    for piece in sorted(pieces, key=_weight, reverse=True):
        least = weights.index(min(weights))
        hands[least].extend(piece)
        weights[least] += _weight(piece)
    return hands


def idle_micro_batches(rows: Sequence[Row], n: int) -> list[LocalMicroBatch]:
    """``n`` micro-batches that do not count, of the shortest row that has a loss token."""
    trained = [row for row in rows if any(row.loss_mask)]
    shortest = min(trained, key=lambda row: len(row.prompt_ids) + len(row.token_ids))
    (batch,) = micro_batches([shortest], tokens_per_micro_batch=1)
    return [LocalMicroBatch(batch, counts=False)] * n


def _weight(group: Sequence[Row]) -> int:
    """Number of tokens to compute for rows of one prompt."""
    return len(group[0].prompt_ids) + sum(len(row.token_ids) for row in group)


def _pieces(group: Sequence[Row], fair: float) -> list[Sequence[Row]]:
    """Split a group of several fair shares into as many pieces; long rows are spread over them."""
    pieces = min(len(group), math.ceil(_weight(group) / fair))
    by_length = sorted(group, key=lambda row: -len(row.token_ids))
    return [by_length[place::pieces] for place in range(pieces)]
