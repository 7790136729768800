"""Rows packed into micro-batches by a token budget.

Lengths are explicit: no mask is ever read off token ids (T3, T6). A prompt that several rows of
a micro-batch share is held once. Nothing has to divide anything (T35).

Dimensions: S prompts, P prompt positions, B rows, T completion positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to train on.

    Attributes:
        prompt_ids: Token ids the model was given; at least one.
        token_ids: Token ids it produced.
        loss_mask: Which of them the loss counts.
        logprobs: Their log-probs under the policy that sampled them.
        advantage: One number for the row.
        group: Place of its group in the step.
        token_advantages: One number for each token; None where all have the row's.
        teacher_prompt_ids: The prompt a teacher with one of its own is given.

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
class MicroBatch:
    """Rows of one forward pass; everything is padded on the right.

    Attributes:
        prompt_ids_SP: Distinct prompts.
        prompt_len_S: Their lengths.
        prompt_of_row_B: Index of each row's prompt.
        completion_ids_BT: Completions.
        completion_len_B: Their lengths.
        valid_BT: True where there is a token.
        mask_BT: True where the loss counts; implies ``valid_BT``.
        behaviour_logp_BT: Log-probs from sampling, 0 on padding.
        advantage_B: One a row.
        group_B: Place of each row's group in the step.
        row_index_B: Position of each row in what ``micro_batches`` was given.
        advantage_BT: One a token, 0 on padding; None where rows have one for all their tokens.
        told: The same completions behind the teacher's own prompts, where there are such.
    """

    prompt_ids_SP: Tensor
    prompt_len_S: Tensor
    prompt_of_row_B: Tensor
    completion_ids_BT: Tensor
    completion_len_B: Tensor
    valid_BT: Tensor
    mask_BT: Tensor
    behaviour_logp_BT: Tensor
    advantage_B: Tensor
    group_B: Tensor
    row_index_B: Tensor
    advantage_BT: Tensor | None = None
    told: MicroBatch | None = None

    @property
    def padded_tokens(self) -> int:
        """Prompt and completion positions, padding included: what the budget counts."""
        return self.prompt_ids_SP.numel() + self.completion_ids_BT.numel()

    def prompt_places(self) -> Tensor:
        """(S, P), True where a prompt has a token."""
        position_P = torch.arange(self.prompt_ids_SP.shape[1], device=self.prompt_len_S.device)
        return position_P < self.prompt_len_S[:, None]

    def fed_lengths(self) -> Tensor:
        """(B,) tokens of each completion that a model is given: the last predicts nothing."""
        return (self.completion_len_B - 1).clamp(min=0)

    def fed_places(self) -> Tensor:
        """(B, T - 1), True where there is such a token."""
        width = self.completion_ids_BT.shape[1] - 1
        position_T = torch.arange(width, device=self.completion_len_B.device)
        return position_T < self.fed_lengths()[:, None]

    def to(self, device: torch.device | str) -> MicroBatch:
        """The same micro-batch on another device."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        moved: dict[str, Any] = {
            name: None if part is None else part.to(device) for name, part in parts.items()
        }
        return MicroBatch(**moved)


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
        told=_told(chosen),
    )


def _token_advantages(rows: Sequence[Row]) -> Tensor | None:
    """(B, T) float32; None where no row has advantages of its tokens."""
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


def _told(rows: Sequence[Row]) -> MicroBatch | None:
    prompts = [row.teacher_prompt_ids for row in rows]
    if None in prompts:
        return None
    told = [
        replace(row, prompt_ids=prompt, teacher_prompt_ids=None)
        for row, prompt in zip(rows, prompts, strict=True)
        if prompt is not None
    ]
    return _collate(told, range(len(told)))


def _padded(sequences: Sequence[Sequence[float]], fill: float) -> Tensor:
    """Sequences side by side, filled up on the right."""
    width = max(map(len, sequences))
    return torch.tensor([[*sequence, *[fill] * (width - len(sequence))] for sequence in sequences])
