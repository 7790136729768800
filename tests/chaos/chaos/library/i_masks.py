"""The loss counts other tokens or rows than it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from chaos.registry import EVERYWHERE, Patch, fault

COLLATE = "rlvr_core.step.batch:_collate"
PACK = "rlvr_core.step.step:PolicyTrainer._pack"


def loss_mask(patch: Patch, change: Callable[[tuple[bool, ...], Any], Any]) -> None:
    """Change each row's mask: ``change(mask, token_ids)``."""

    def make(original: Any) -> Any:
        def row(prompt_ids: Any, token_ids: Any, mask: Any, *args: Any, **more: Any) -> Any:
            changed = tuple(bool(x) for x in change(tuple(mask), token_ids))
            return original(prompt_ids, token_ids, changed, *args, **more)

        return row

    patch.wrap("rlvr_core.step.rows:Row", make)


def training_batches(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the micro-batches that are trained on."""

    def make(original: Any) -> Any:
        def split(parts: Any, n: Any, normalizer: Any, pack: Any) -> Any:
            return original(parts, n, normalizer, lambda rows: change(pack(rows)))

        return split

    patch.wrap("rlvr_core.step.step:split_into_mini_batches", make)


@fault("masks", backends=EVERYWHERE)
def eos_never_trained(patch: Patch) -> None:
    """The end of sequence is left out of the loss."""
    loss_mask(patch, lambda m, ids: [keep and t != 256 for keep, t in zip(m, ids, strict=True)])


@fault("masks")
def only_first_token_trained(patch: Patch) -> None:
    """Only the first token of each completion is in the loss."""
    loss_mask(patch, lambda m, ids: [i == 0 for i in range(len(m))])


@fault("masks")
def first_token_never_trained(patch: Patch) -> None:
    """The first token of each completion is left out of the loss."""
    loss_mask(patch, lambda m, ids: [i > 0 for i in range(len(m))])


@fault("masks")
def every_other_token_trained(patch: Patch) -> None:
    """Every other token is left out of the loss."""
    loss_mask(patch, lambda m, ids: [i % 2 == 0 for i in range(len(m))])


@fault("masks", "length", "cut")
def long_rows_cut(patch: Patch) -> None:
    """Tokens after the eighth are left out of the loss."""
    loss_mask(patch, lambda m, ids: [i < 8 for i in range(len(m))])


@fault("masks", "token", "batch")
def batch_mask_loses_last_token(patch: Patch) -> None:
    """Packing leaves the last token of each row out of the loss."""

    def change(b: Any, *_: Any) -> Any:
        T = b.mask_BT.shape[1]
        last_BT = torch.arange(T) == (b.completion_len_B - 1)[:, None]
        return replace(b, mask_BT=b.mask_BT & ~(last_BT & (b.completion_len_B > 1)[:, None]))

    patch.after(COLLATE, change)


@fault("masks", "token", "batch")
def batch_mask_of_longest_row(patch: Patch) -> None:
    """Packing counts padding of short rows as loss tokens."""

    def change(b: Any, *_: Any) -> Any:
        return replace(
            b,
            mask_BT=torch.ones_like(b.mask_BT),
            valid_BT=torch.ones_like(b.valid_BT),
            completion_len_B=torch.full_like(b.completion_len_B, b.mask_BT.shape[1]),
        )

    patch.after(COLLATE, change)


@fault("masks", "twice", "micro", "rows?\\b", shape="micro batches")
def micro_batch_counted_twice(patch: Patch) -> None:
    """The first micro-batch of each update is trained on twice."""
    training_batches(patch, lambda batches: [batches[0], *batches])


@fault("masks", "micro", "rows?\\b", shape="micro batches")
def micro_batch_left_out(patch: Patch) -> None:
    """The last micro-batch of each update is not trained on."""
    training_batches(patch, lambda batches: batches[:-1] if len(batches) > 1 else batches)


@fault("masks", "rows?\\b", "completion")
def one_row_a_group_lost(patch: Patch) -> None:
    """The last completion of each group is not trained on."""

    def change(made: Any, *_: Any) -> Any:
        return replace(made, by_group=[rows[:-1] for rows in made.by_group])

    patch.after("rlvr_core.step.step:rows_of", change)


@fault("masks", "rows?\\b", "twice", "completion")
def rows_trained_twice(patch: Patch) -> None:
    """The first completion of each group is trained on twice."""

    def change(made: Any, *_: Any) -> Any:
        return replace(made, by_group=[[*rows[:1], *rows] for rows in made.by_group])

    patch.after("rlvr_core.step.step:rows_of", change)


@fault("masks", "group", "rows?\\b")
def last_group_lost(patch: Patch) -> None:
    """The last group of each step is not trained on."""

    def make(original: Any) -> Any:
        def update(self: Any, groups: Any, step: Any, version: Any) -> Any:
            report = original(self, groups[:-1], step, version)
            report.advantages.append([None] * len(groups[-1].members))
            report.thrown_away.append(False)
            return report

        return update

    patch.wrap("rlvr_core.step.step:PolicyTrainer.update", make)


@fault("masks", "denominator", "normali")
def tokens_counted_half(patch: Patch) -> None:
    """The loss is divided by half of its tokens and rows."""

    def half(n: Any, *_: Any) -> Any:
        return replace(n, rows=max(1, n.rows // 2), tokens=max(1, n.tokens // 2))

    patch.after("rlvr_core.step.step:PolicyTrainer._normalizer", half)


@fault("masks", "truncat", "cut off", shape="short answers")
def truncated_rows_masked(patch: Patch) -> None:
    """Completions that were cut off are left out, though the config does not say so."""

    def make(original: Any) -> Any:
        return lambda groups, objective, **o: original(
            groups, objective, **o | {"mask_truncated": True}
        )

    patch.wrap("rlvr_core.step.step:rows_of", make)


@fault("masks", "rows?\\b", "passed", "negative")
def failed_rows_lost(patch: Patch) -> None:
    """Rows with a negative advantage are not trained on."""

    def change(made: Any, *_: Any) -> Any:
        kept = [[row for row in rows if row.advantage >= 0] for rows in made.by_group]
        return replace(made, by_group=kept)

    patch.after("rlvr_core.step.step:rows_of", change)
