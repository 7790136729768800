"""Invariant ``tokens``: every sampled token of a step is trained on once, and no other.

Conservation: the rows that the losses were given are the completions that have a reward, each once
in every iteration of ``train.num_iterations``;
their masks are those of the completions, and a completion counts as one, whatever its group or
length (its branches share in it by their tokens); every group that was drawn is among those that
arrive, and trained on unless it was dropped; the denominators are their counts; and the gradient
reaches every token that has an advantage, the last one of a completion included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.deliveries import Deliveries
from rlvr_core.builtin.invariants.rows import Key, key_of, rows_of, sampled_by_model

if TYPE_CHECKING:
    from rlvr_core.api import Completion, GroupsScored, RunError, RunStarted
    from rlvr_core.api.services import RunConfig

LEAST_ROWS = 8
"""Tokens at one position of their rows whose gradients are compared, at least."""


class Tokens(Invariant):
    """Loss tokens are the sampled tokens of the rows that are trained on.

    Args:
        config: The run's configuration.
        sampler: Chooses the problems; None where there is none.
    """

    id, phase = "tokens", "before each update"
    reports = (
        Metric(
            "tokens/missing", "Sampled tokens of the step that no update was made of.", "tokens"
        ),
        Metric("tokens/without_gradient", "Share of last tokens without a gradient.", "share"),
    )

    def __init__(self, config: RunConfig, sampler: Any = None) -> None:
        self._deliveries = Deliveries(config, sampler)
        self._mask_truncated = config.train.mask_truncated
        self._iterations = config.train.num_iterations
        self._wanted: Counter[tuple[Key, tuple[bool, ...]]] = Counter()
        self._read: Counter[tuple[Key, tuple[bool, ...]]] = Counter()
        self._reads: Counter[tuple[Key, tuple[bool, ...]]] = Counter()
        self._cut_off: set[Key] = set()
        self._shares: dict[tuple[Key, tuple[bool, ...]], list[Fraction]] = {}
        self._updates = 0
        self._applied: list[bool] = []
        self._found: dict[str, float] = {}

    def run_started(self, event: RunStarted) -> None:
        """Count what the sampler draws from here on."""
        self._deliveries.start(resumed=event.resumed)

    def on_groups(self, event: GroupsScored) -> None:
        """Check that what was drawn has arrived."""
        self._check_groups(event.step, self._deliveries.arrived(event.groups, event.version))

    def _check_groups(self, step: int, wrong: str) -> None:
        if wrong:
            raise self.fault(
                step,
                f"{wrong} (band: none)",
                "groups are lost or repeated between the sampler, generation and the step: look at "
                "what collects, keeps and hands them on",
            )

    def begin(self, view: StepView) -> None:
        """Note what is to be trained on."""
        self._check_groups(view.step, self._deliveries.trained(view.groups))
        self._found, self._updates, self._applied = {}, 0, []
        self._wanted, self._read, self._reads = Counter(), Counter(), Counter()
        self._cut_off, self._shares = set(), {}
        for place, group in enumerate(view.groups):
            for member in group.members:
                completion = member.completion
                left_out = self._mask_truncated and completion.finish_reason == "length"
                masks = sampled_by_model(completion)
                for row, mask in zip(completion.rows, masks, strict=True):
                    key = key_of(place, row)
                    if mask != row.loss_mask:
                        raise self._masked(view, place, row, mask)
                    if left_out:
                        self._cut_off.add(key)
                    elif member.reward is not None and any(mask):
                        share = Fraction(sum(mask), sum(map(sum, masks)))
                        self._wanted[key, mask] += 1
                        self._shares.setdefault((key, mask), []).append(share)

    def share(self, view: StepView) -> tuple[Any, ...]:
        """Rows of this process, the denominators, where gradients arrived, and a wrong share."""
        rows: Counter[Any] = Counter()
        odd: tuple[Any, float] | None = None
        for row in rows_of(view):
            name = (row.key, row.mask[: len(row.key[2])])
            rows[name] += 1
            # the shares are float32
            if not any(abs(row.share - due) < 1e-5 for due in self._shares.get(name, [row.share])):
                odd = odd or (name, row.share)
        denominators = None
        if view.seen:
            normalizer = view.seen[0].normalizer
            denominators = (normalizer.rows, normalizer.tokens, normalizer.world_size)
        ends = _ends(view) if view.update == 0 else _Ends()
        return rows, denominators, ends, odd

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """See ``Invariant.judge``."""
        rows: Counter[Any] = Counter()
        for share in shares:
            rows.update(share[0])
        if not rows:
            return
        self._check_rows(view, rows)
        self._reads.update(rows)
        if view.first_pass:
            self._read.update(rows)
            self._updates += 1
        tokens = sum(sum(mask) * n for (_, mask), n in rows.items())
        # the branches of a conversation are one completion
        n_completions = sum(sum(self._shares[row][:n]) for row, n in rows.items())
        for denominators in (share[1] for share in shares if share[1] is not None):
            if denominators[2] != len(shares):
                raise self.fault(
                    view.step,
                    f"the loss is multiplied by {denominators[2]}, and {len(shares)} processes "
                    "average their gradients: an update has another share of each gradient than "
                    "the loss says",
                    "the denominators are those of the whole update, so the factor "
                    "Normalizer.world_size has to be the number of processes",
                )
            if denominators[:2] != (n_completions, tokens):
                raise self.fault(
                    view.step,
                    f"the loss is divided by {denominators[0]} rows and {denominators[1]} tokens, "
                    f"and the update has {n_completions} and {tokens}",
                    "micro-batches are counted twice or left out of the denominators",
                )
        for odd in (share[3] for share in shares if share[3] is not None):
            name, has = odd
            raise self.fault(
                view.step,
                f"a row of problem {view.groups[name[0][0]].problem.id} counts in the loss as "
                f"{has:.4g} of a completion, and it is {float(self._shares[name][0]):.4g} of one",
                "each completion counts the same in the loss, and its branches by their tokens: "
                "look at what sets the shares of rows, such as a weight by group, length or source",
            )
        ends = _Ends()
        for share in shares:
            ends.add(share[2])
        self._check_ends(view, ends)

    def _check_rows(self, view: StepView, rows: Counter[Any]) -> None:
        surplus = rows - self._wanted
        if not surplus:
            return
        key, mask = next(iter(surplus))
        wanted = next((its for one, its in self._wanted if one == key), None)
        if wanted is None and key in self._cut_off:
            what = "was cut off (finish_reason: length), and is left out by train.mask_truncated"
            remedy = "the mask of truncated completions is not applied where rows are made"
        elif wanted is None:
            what = "is no completion of this step that has a reward"
            remedy = (
                "rows are mixed up on their way into the batch, or tokens are changed: prompt, "
                "padding or position"
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

    def _check_ends(self, view: StepView, ends: _Ends) -> None:
        """Raise if tokens at one position of their rows get no gradient, and others do."""
        counted = {name: n for name, n in ends.tokens.items() if n >= LEAST_ROWS}
        shares = {name: ends.reached[name] / n for name, n in counted.items()}
        if "last" in shares:
            self._found["tokens/without_gradient"] = 1 - shares["last"]
        most = max(shares.values(), default=0.0)
        for name, share in shares.items():
            if share == 0 and most > 0.5:
                raise self.fault(
                    view.step,
                    f"the {name} tokens of the rows get no gradient, in any of {counted[name]} "
                    f"with an advantage, and {most:.0%} at another position do",
                    "the end-of-sequence token is not trained: look for a mask or a slice that is "
                    "one token short"
                    if name == "last"
                    else "the loss reads one position of each row: look for a mask or a slice",
                )

    def _masked(
        self, view: StepView, place: int, completion: Completion, mask: tuple[bool, ...]
    ) -> RunError:
        return self.fault(
            view.step,
            f"a completion of problem {view.groups[place].problem.id} would train "
            f"{sum(completion.loss_mask)} of its {len(mask)} tokens, and the model wrote "
            f"{sum(mask)} of them",
            "the loss mask of a completion must cover each token that the model wrote, the "
            "end-of-sequence token included, and none that a tool or an environment did",
        )

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """Note whether an update was applied."""
        self._applied.append(applied)

    def end(self, view: StepView) -> Mapping[str, float]:
        """Check that nothing was left out; raises ``RunError``."""
        self._deliveries.ended(applied=bool(self._applied) and all(self._applied))
        terms = view.trainer.objective.terms
        if not self._updates and all(term.loss.traits.answers is not None for term in terms):
            return self._found
        missing = self._wanted - self._read
        self._found["tokens/missing"] = float(
            sum(sum(mask) * n for (_, mask), n in missing.items())
        )
        if missing:
            raise self.fault(
                view.step,
                f"{sum(missing.values())} of {sum(self._wanted.values())} rows that have a reward "
                f"were trained on by no update ({self._found['tokens/missing']:.0f} tokens)",
                self._why_missing(view, {key for key, _ in missing}),
            )
        self._check_iterations(view)
        return self._found

    def _check_iterations(self, view: StepView) -> None:
        """Raise if the updates have read a row more or fewer times than the config says."""
        for row, n in self._wanted.items():
            if self._reads[row] != n * self._iterations:
                problem = view.groups[row[0][0]].problem.id
                raise self.fault(
                    view.step,
                    f"a completion of problem {problem} was in {self._reads[row] / n:g} updates "
                    f"of the step, and train.num_iterations is {self._iterations}",
                    "an iteration or an update of the step is left out or made again: look at "
                    "what loops over them, and at what sets num_iterations after a resumption",
                )

    def _why_missing(self, view: StepView, missing: Set[Key]) -> str:
        """Return what to do about rows that are not trained on, by what they have in common."""
        reasons = {
            key_of(place, row): member.completion.finish_reason
            for place, group in enumerate(view.groups)
            for member in group.members
            for row in member.completion.rows
        }
        if {reasons[key] for key in missing} == {"length"} != set(reasons.values()):
            return (
                "all of them were cut off: they are masked as by train.mask_truncated: true, and "
                "the config has false"
            )
        return (
            "rows are lost between the groups of the step and its micro-batches: look at how "
            "they are split into mini-batches, shared among processes and packed; or their loss "
            "mask was emptied on its way"
        )


_PLACES = ("first", "last", "middle")


class _Ends:
    """Tokens with an advantage by their position in a row of several, and those with a gradient."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()

    def add(self, other: _Ends) -> None:
        """Add the counts of another process."""
        self.tokens.update(other.tokens)
        self.reached.update(other.reached)


def _ends(view: StepView) -> _Ends:
    """Count gradients by position, over losses that train every token of a row alike."""
    found = _Ends()
    for seen in view.seen:
        batch, gradient_BT = seen.batch, seen.gradient_BT
        traits = [loss.traits for loss, _, _ in seen.losses]
        chosen = any(one.top_entropy < 1 or one.advantage is None for one in traits)
        if gradient_BT is None or chosen:
            continue
        advantage_BT = batch.advantage_BT
        if advantage_BT is None:
            advantage_BT = batch.advantage_B[:, None].expand_as(gradient_BT)
        mask_BT = batch.mask_BT
        live_BT = mask_BT & (advantage_BT.abs() > 1e-3) & (mask_BT.sum(1, keepdim=True) > 1)
        first_BT = mask_BT & (mask_BT.cumsum(1) == 1)
        last_BT = mask_BT & (mask_BT.flip(1).cumsum(1).flip(1) == 1)
        places = (first_BT, last_BT, ~(first_BT | last_BT))
        moved_BT = live_BT & (gradient_BT != 0)
        counts = [(of_BT & place_BT).sum() for of_BT in (live_BT, moved_BT) for place_BT in places]
        tokens, reached = torch.stack(counts).view(2, -1).tolist()  # one transfer from a GPU
        found.tokens.update(dict(zip(_PLACES, tokens, strict=True)))
        found.reached.update(dict(zip(_PLACES, reached, strict=True)))
    return found
