"""Guard ``core/tokens``: every sampled token of a step is trained on once, and no other.

Conservation: the rows that the losses were given are the completions that have a reward, each once
in every iteration of ``train.num_iterations``; their masks are those of the completions, and a
completion counts as one, whatever its group or length (its branches share in it by their tokens);
and the denominators are their counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric, NoConfig
from rlvr_core.api.guards import BaseGuard, RowKey, row_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlvr_core.api import Completion, Group

Row = tuple[RowKey, tuple[bool, ...]]
"""A row of the step and its loss mask."""


class Tokens(BaseGuard):
    """Loss tokens are the sampled tokens of the rows that are trained on."""

    name = "core/tokens"
    reports = (
        Metric(
            "tokens/missing", "Sampled tokens of the step that no update was made of.", "tokens"
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._wanted: Counter[Row] = Counter()
        self._reads: Counter[Row] = Counter()
        self._shares: dict[Row, list[Fraction]] = {}
        self._updates = 0

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Note what is to be trained on."""
        self.begin(step)
        self._updates = 0
        if not self.due:
            return
        self._wanted, self._reads = Counter(), Counter()
        self._shares = {}
        mask_truncated = self.context.config.train.mask_truncated
        for place, group in enumerate(groups):
            for member in group.members:
                completion = member.completion
                left_out = mask_truncated and completion.finish_reason == "length"
                masks = sampled_by_model(completion)
                for row, mask in zip(completion.rows, masks, strict=True):
                    if mask != row.loss_mask:
                        raise self.fault(
                            step,
                            f"a completion of problem {group.problem.id} would train "
                            f"{sum(row.loss_mask)} of its {len(mask)} tokens, and the model wrote "
                            f"{sum(mask)} of them",
                            "the loss mask of a completion must cover each token that the model "
                            "wrote, the end-of-sequence token included, and none that a tool or "
                            "an environment did",
                        )
                    key = row_key(place, row)
                    if member.reward is not None and any(mask) and not left_out:
                        share = Fraction(sum(mask), sum(map(sum, masks)))
                        self._wanted[key, mask] += 1
                        self._shares.setdefault((key, mask), []).append(share)

    def update_begins(self) -> None:
        """Check the rows of all processes and their denominators."""
        if not self.due:
            return
        view, rows, odd = self.view, Counter[Row](), None
        for row in view.rows():
            name = (row.key, row.mask)
            rows[name] += 1
            # the shares are float32
            if not any(abs(row.share - due) < 1e-5 for due in self._shares.get(name, [row.share])):
                odd = odd or (name, row.share)
        denominators = None
        if view.seen:
            normalizer = view.seen[0].normalizer
            denominators = (normalizer.rows, normalizer.tokens, normalizer.world_size)
        shares = self.context.ranks.gather((rows, denominators, odd))
        rows = sum((share[0] for share in shares), Counter())
        if not rows:
            return
        self._check_rows(rows)
        self._reads.update(rows)
        self._updates += 1
        for share in shares:
            if share[1] is not None:
                self._check_denominators(rows, share[1], len(shares))
            if share[2] is not None:
                name, has = share[2]
                raise self.fault(
                    view.step,
                    f"a row of problem {view.groups[name[0][0]].problem.id} counts in the loss as "
                    f"{has:.4g} of a completion, and it is {float(self._shares[name][0]):.4g} of "
                    "one",
                    "each completion counts the same in the loss, and its branches by their "
                    "tokens: look at what sets the shares of rows",
                )

    def _check_denominators(
        self, rows: Counter[Row], denominators: tuple[int, int, int], world: int
    ) -> None:
        tokens = sum(sum(mask) * n for (_, mask), n in rows.items())
        # the branches of a conversation are one completion
        completions = sum(sum(self._shares[row][:n]) for row, n in rows.items())
        if denominators == (completions, tokens, world):
            return
        raise self.fault(
            self.view.step,
            f"the loss is divided by {denominators[0]} rows and {denominators[1]} tokens of "
            f"{denominators[2]} processes, and the update has {completions} and {tokens} of "
            f"{world}",
            "the denominators are those of the whole update: micro-batches are counted twice or "
            "left out of them",
        )

    def _check_rows(self, rows: Counter[Any]) -> None:
        view = self.view
        surplus = rows - self._wanted
        if not surplus:
            return
        key, mask = next(iter(surplus))
        wanted = next((right for name, right in self._wanted if name == key), None)
        if wanted is None:
            what = "is no completion of this step that has a reward and is not left out"
            remedy = (
                "rows are mixed up on their way into the batch, tokens are changed (prompt, "
                "padding or position), or train.mask_truncated is not applied"
            )
        elif wanted != mask:
            what = f"trains {sum(mask)} of its tokens, and the model sampled {sum(wanted)}"
            what += " others" if sum(mask) == sum(wanted) else ""
            remedy = (
                "the loss mask was changed on its way: it must cover each token that the model "
                "wrote, the end-of-sequence token included, and none of a tool's"
            )
        else:
            what = "is read more than once in one update"
            remedy = "a micro-batch is counted twice: look at how rows are packed and accumulated"
        problem = view.groups[key[0]].problem.id if key[0] < len(view.groups) else "?"
        raise self.fault(
            view.step,
            f"{sum(surplus.values())} of {sum(rows.values())} rows are not those to train on: one "
            f"of problem {problem} with {len(key[2])} tokens {what}",
            remedy,
        )

    def step_ends(self) -> Mapping[str, float]:
        """Check that nothing was left out."""
        view, terms = self.view, self.context.trainer.objective.terms
        if not self.due:
            return {}
        if not self._updates and all(term.loss.traits.answers is not None for term in terms):
            return {}
        missing = self._wanted - self._reads
        n_tokens = sum(sum(mask) * n for (_, mask), n in missing.items())
        self.numbers["tokens/missing"] = float(n_tokens)
        if missing:
            raise self.fault(
                view.step,
                f"{sum(missing.values())} of {sum(self._wanted.values())} rows that have a reward "
                f"were trained on by no update ({n_tokens} tokens)",
                "rows are lost between the groups of the step and its micro-batches, or their loss "
                "mask was emptied: look at how they are split, shared among processes and packed",
            )
        iterations = self.context.config.train.num_iterations
        for row, n in self._wanted.items():
            if self._reads[row] != n * iterations:
                raise self.fault(
                    view.step,
                    f"a completion of problem {view.groups[row[0][0]].problem.id} was in "
                    f"{self._reads[row] / n:g} updates of the step, and train.num_iterations is "
                    f"{iterations}",
                    "an iteration or an update of the step is left out or made again: look at what "
                    "loops over them, and at what sets num_iterations after a resumption",
                )
        return {}


def sampled_by_model(completion: Completion) -> list[tuple[bool, ...]]:
    """Return which tokens of each row the model wrote, and no row before it has.

    By transcripts and tokens alone: a turn that an earlier row of the completion has as well,
    behind the same tokens, may have been sampled once or twice, and is as its mask has it.
    """
    if completion.transcript is None:
        return [(True,) * len(completion.token_ids)]
    masks = [completion.transcript.loss_mask(len(completion.token_ids))]
    for number, row in enumerate(completion.branches, start=1):
        before = [other.prompt_ids + other.token_ids for other in completion.rows[:number]]
        whole, start = row.prompt_ids + row.token_ids, len(row.prompt_ids)
        mask: list[bool] = []
        for turn in row.transcript.turns if row.transcript is not None else ():
            begin, end = len(mask), len(mask) + turn.n_tokens
            sampled = turn.role == "assistant"
            shared = any(ids[: start + end] == whole[: start + end] for ids in before)
            if sampled and shared and not any(row.loss_mask[begin:end]):
                sampled = False
            mask += [sampled] * turn.n_tokens
        masks.append(tuple(mask))
    return masks
