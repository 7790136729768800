"""The loss counts other tokens or rows than it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.together.chaos.changes import END, STEP, loss_mask, rows_of_groups
from tests.together.chaos.registry import BOTH, TWO, Patch, fault


def _micro_batches(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the micro-batches that are trained on."""

    def make(original: Any) -> Any:
        def split(parts: Any, n: Any, normalizer: Any, pack: Any) -> Any:
            return original(parts, n, normalizer, lambda rows: change(pack(rows)))

        return split

    patch.wrap(f"{STEP}:split_into_mini_batches", make)


def _shards(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change how rows are shared out to the processes."""
    patch.after(f"{STEP}:shard_rows", lambda hands, *_: change(hands))


@fault("tokens", backends=BOTH)
def end_never_trained(patch: Patch) -> None:
    """The end of sequence is left out of the loss."""
    loss_mask(patch, lambda m, ids: [keep and t != END for keep, t in zip(m, ids, strict=True)])


@fault("tokens", "parity", shape="two turns")
def observations_are_trained_on(patch: Patch) -> None:
    """The words of the environment are in the loss, as if the model had said them."""
    loss_mask(patch, lambda mask, ids: [True] * len(mask))


@fault("tokens", shape="micro batches")
def micro_batch_left_out(patch: Patch) -> None:
    """The last micro-batch of each update is not trained on."""
    _micro_batches(patch, lambda batches: batches[:-1] if len(batches) > 1 else batches)


@fault("tokens")
def first_row_of_a_group_trained_twice(patch: Patch) -> None:
    """The first completion of each group is trained on twice."""
    rows_of_groups(patch, lambda rows: [*rows[:1], *rows])


@fault("tokens")
def failed_rows_lost(patch: Patch) -> None:
    """Rows with a negative advantage are not trained on."""
    rows_of_groups(patch, lambda rows: [row for row in rows if row.advantage >= 0])


@fault("tokens")
def last_group_lost(patch: Patch) -> None:
    """The last group of each step is not trained on."""

    def make(original: Any) -> Any:
        def update(self: Any, groups: Any, step: Any, version: Any) -> Any:
            report = original(self, groups[:-1], step, version)
            report.advantages.append([None] * len(groups[-1].members))
            report.thrown_away.append(False)
            return report

        return update

    patch.wrap(f"{STEP}:PolicyTrainer.update", make)


@fault("tokens")
def group_trained_in_two_steps(patch: Patch) -> None:
    """The first group of each step is taken again in the next one in the place of its last."""
    before: list[Any] = []

    def again(rollouts: Any, *_: Any) -> Any:
        first = rollouts.kept[0]
        if before:
            rollouts.kept = [*rollouts.kept[:-1], before[0]]
        before[:] = [first]
        return rollouts

    patch.after("rlvr_core.rollout.source:collect", again)


@fault("tokens", shape="short answers")
def truncated_rows_masked(patch: Patch) -> None:
    """Completions that were cut off are left out, though the config does not say so."""
    patch.options(f"{STEP}:rows_of", mask_truncated=True)


@fault("tokens", backends=TWO)
def both_processes_train_on_the_rows_of_the_first(patch: Patch) -> None:
    """Rows are gathered and shared out by an index that is 0 in each process."""
    _shards(patch, lambda hands: [hands[0]] * len(hands))
