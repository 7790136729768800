"""Invariant ``reported``: the numbers of a step's line are those of the step.

What a user reads, and what stops or keeps a run by it, is counted again: rewards, pass rates,
lengths and counts of groups from the groups that guards were shown; losses, KL, entropy, ratios and
clips from what the losses were given; the norm of the gradient and the learning rate from the
updates. What was written to the run's files is read back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api.services import FATES
from rlvr_core.builtin.invariants.best import BestSoFar
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.deliveries import is_ours
from rlvr_core.builtin.invariants.evaluations import wrong_evaluation
from rlvr_core.builtin.invariants.figures import (
    FAMILIES,
    ages_of,
    contradictions,
    details_beyond,
    fates_of,
    figures_of,
    reasons_of,
    too_many,
    trained_figures,
)
from rlvr_core.builtin.invariants.rates import TOLERANCE, rate_of
from rlvr_core.builtin.invariants.records import Records
from rlvr_core.builtin.invariants.rewards import weight_of
from rlvr_core.builtin.invariants.rows import rows_of
from rlvr_core.builtin.invariants.saved import LedgerLines
from rlvr_core.builtin.invariants.tallies import Tallied, losses_of, tally

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from rlvr_core.api import (
        EvalFinished,
        Group,
        GroupsScored,
        Json,
        LossComputed,
        RunStarted,
        StepFinished,
    )
    from rlvr_core.api.services import RunConfig
    from rlvr_core.builtin.invariants.model_files import ModelFiles

FIRST = 8
"""Steps of a run of which what the losses were given is summed up."""

EVERY = 8
"""After these, steps from one to the next."""


class Reported(Invariant):
    """A step's line agrees with its groups and updates.

    Args:
        config: The run's configuration.
        files: The model's files; None where recorded prompts are not compared as texts.
        sampler: Chooses the problems; None where there is none.
        evaluations: What evaluates the policy; None where nothing does.
        main: Whether this process writes the run's files.
    """

    id, phase = "reported", "after each step"

    def __init__(
        self,
        config: RunConfig,
        files: ModelFiles | None = None,
        sampler: Any = None,
        evaluations: Any = None,
        *,
        main: bool = True,
    ) -> None:
        self._config, self._files, self._main = config, files, main
        self._best = BestSoFar(config, evaluations)
        self._best_taken: dict[str, Json] | None = None
        self._drops_by_rule = is_ours(sampler, "observe")
        self._steps = self._last = 0
        self._drawn: Sequence[Group] | None = None
        self._view: StepView | None = None
        self._current: Tallied | None = None
        self._updates: list[tuple[Tallied | None, float, bool]] = []
        self._rows: list[int] = []
        self._run_dir: Path | None = None
        self._records: Records | None = None
        self._advantages: dict[Any, set[float]] = {}
        self._lines = LedgerLines()
        self._taken: dict[str, int] | None = None
        self._given: dict[str, list[Tensor]] = {}
        self._nll: list[tuple[Tensor, Tensor]] = []

    def run_started(self, event: RunStarted) -> None:
        """Read what is written from here on."""
        self._run_dir = event.run_dir
        self._records = Records(event.run_dir, self._files)

    def on_groups(self, event: GroupsScored) -> None:
        """Keep all groups that were drawn."""
        self._drawn = event.groups

    def begin(self, view: StepView) -> None:
        """Keep those that are trained on."""
        self._view, self._current, self._updates, self._rows = view, None, [], []
        self._advantages, self._given, self._nll = {}, {}, []

    @property
    def _due(self) -> bool:
        return self._steps < FIRST or self._steps % EVERY == 0

    def share(self, view: StepView) -> Tallied | None:
        """Sum up this process's part of the update."""
        if not self._due:
            return None
        for row in rows_of(view):
            group, *completion = row.key
            key = (id(view.groups[group]), tuple(completion))
            self._advantages.setdefault(key, set()).add(row.advantage)
        found = tally(view)
        for name, parts in self._given.items():
            found.losses[name] = math.fsum(map(float, parts))
        if self._nll:
            total, count = (sum(map(float, parts)) for parts in zip(*self._nll, strict=True))
            found.sums["sft/nll"] = (total, count, 0.0)
        self._given, self._nll = {}, []
        return found

    def given(self, view: StepView, event: LossComputed) -> None:
        """Note a loss on given answers, of which an update has no other trace."""
        if self._due:
            names = {id(term.loss): term.name for term in view.trainer.objective.terms}
            alone = [name.partition("#")[0] for name in names.values()].count("sft") == 1
            for loss, batch, output in event.losses:
                part = output.loss.detach().double() / event.normalizer.world_size
                self._given.setdefault(names[id(loss)], []).append(part)
                if names[id(loss)] == "sft" and alone:
                    told = -batch.logp_BT.detach()[batch.mask_BT].double().sum()
                    self._nll.append((told, batch.mask_BT.sum()))

    def judge(self, view: StepView, shares: Sequence[Tallied | None]) -> None:
        """Put the parts together."""
        self._current = Tallied() if self._due else None
        for share in shares:
            if share is not None and self._current is not None:
                self._current.add(share)

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """Note what became of the update."""
        self._rows += [view.seen[0].normalizer.rows] if view.seen else []
        self._updates.append((self._current, grad_norm, applied))

    def evaluated(self, event: EvalFinished) -> None:
        """Compare an evaluation's figures with its recorded completions; raises ``RunError``."""
        self._best.add(event)
        if self._run_dir is None or not self._main:
            return
        if wrong := wrong_evaluation(self._run_dir, event):
            raise self.fault(
                event.step,
                f"the evaluation {event.task} after {event.step} steps {wrong}",
                "look at what scores an evaluation's groups, and at what records them: "
                "keep_best and early stopping go by this figure",
            )

    def finished(self, event: StepFinished) -> None:
        """Compare the step's line; raises ``RunError``."""
        self._lines.add(event.metrics)
        self._last = event.step
        drawn, view = self._drawn, self._view
        self._drawn, self._view = None, None
        if view is None or view.step != event.step:
            return
        # what the invariants handed on, the parity of the step among it
        wrong = contradictions(event.metrics, view.told)
        wrong += self._of_updates(view, event.metrics)
        if drawn is not None:
            wrong = self._of_groups(drawn, view, event.metrics) + wrong
        if self._records is not None and view.trainer.ranks.main:
            if self._due:
                given = self._advantages
                cut = "truncated" if self._config.train.mask_truncated else "trained"
                done = all(applied for _, _, applied in self._updates)
                kept = {id(group): cut for group in view.groups} if done else None
                wrong += self._records.wrong(
                    event.step, view.version, event.metrics, drawn or (), given, kept
                )
            else:
                self._records.skip()
        self._steps += 1
        if wrong and view.trainer.ranks.main:
            more = f" ({len(wrong)} figures in all)" if len(wrong) > 4 else ""
            raise self.fault(
                event.step,
                f"what is reported of the step is not what its completions and updates say: "
                f"{'; '.join(wrong[:4])}{more} (band: none)",
                "what is reported is not what was trained on: look at what makes the step's "
                "metrics, over which groups, rows and updates it counts, and at what changes them "
                "afterwards",
            )

    def checkpoint_written(self, folder: Path) -> None:
        """Compare a checkpoint's ledger and best values with what was said; raises ``RunError``."""
        if what := self._best.wrong(self._best_taken, folder):
            raise self.fault(
                self._last,
                f"in the checkpoint {folder.name} {what} (band: none)",
                "checkpoint.keep_best and eval.early_stop go by it: look at what compares an "
                "evaluation with the best one before, and in which direction",
            )
        if self._taken is not None and (what := self._lines.wrong(self._taken, folder)):
            raise self.fault(
                self._last,
                f"the checkpoint {folder.name} does not go on with what was reported: {what} "
                "(band: none)",
                "it is thrown away, older ones stay: look at what counts completions by fate, and "
                "at what loads trainer/state.json after a resumption",
            )

    # -- groups ----------------------------------------------------------------------------------

    def _of_groups(
        self, drawn: Sequence[Group], view: StepView, line: Mapping[str, float]
    ) -> list[str]:
        masked = self._config.train.mask_truncated
        new = {id(group) for group in drawn}
        kept = {id(group) for group in view.groups} & new
        due = figures_of(drawn) | trained_figures(view.groups, mask_truncated=masked)
        due["groups/kept"] = len(kept)
        due["groups/replayed"] = len(view.groups) - len(kept)
        wrong = contradictions(line, due)
        wrong += [
            f"{name} is {value:.6g}, and there is none"
            for name, value in line.items()
            if name.startswith(FAMILIES) and name not in due and value
        ]
        reasons = ("groups/all_passed", "groups/all_failed", "groups/equal")
        dropped = sum(line.get(name, 0.0) for name in reasons)
        dropped += sum(value for name, value in line.items() if name.startswith("groups/dropped/"))
        if dropped != len(drawn) - len(kept):
            wrong.append(f"{dropped:g} groups were dropped, and must be {len(drawn) - len(kept)}")
        wrong += too_many(line, [group for group in drawn if id(group) not in kept])
        if not self._config.train.max_staleness:
            wrong += self._of_ledger(drawn, kept, line)
        elif "staleness/expired" not in line:
            wrong.append("staleness/expired is not there: groups that are read again never expire")
        if self._config.train.max_staleness and all(one[2] for one in self._updates):
            ages = ages_of(view.groups, view.version, mask_truncated=masked)
            wrong += contradictions(line, ages)
        return wrong

    def _of_ledger(
        self, drawn: Sequence[Group], kept: set[int], line: Mapping[str, float]
    ) -> list[str]:
        """Compare the ledger where each completion is settled in the step that it is drawn in."""
        fates = fates_of(drawn, kept, mask_truncated=self._config.train.mask_truncated)
        due: dict[str, float] = {"ledger/drawn": fates.total(), "ledger/in_flight": 0}
        if all(applied for _, _, applied in self._updates):
            due |= {f"ledger/{name}": fates[name] for name in ("trained", "error")}
        dropped = [group for group in drawn if id(group) not in kept]
        if self._drops_by_rule:
            due |= reasons_of(dropped)
        wrong = contradictions(line, due)
        wrong += details_beyond(line, dropped)
        settled = sum(line.get(f"ledger/{name}", 0.0) for name in FATES)
        if settled != fates.total():
            wrong.append(f"the ledger settles {settled:g} completions, and must {fates.total()}")
        return wrong

    # -- updates ---------------------------------------------------------------------------------

    def _of_updates(self, view: StepView, line: Mapping[str, float]) -> list[str]:
        applied = [one for one in self._updates if one[2]]
        counted = applied or self._updates
        rate = rate_of(self._config, view.trainer.optimizer.schedule, view.step)
        due = {"lr": rate, "step_skipped": float(bool(self._updates) and not applied)}
        bands = {"lr": TOLERANCE * max(abs(rate), TOLERANCE * self._config.train.lr)}
        if counted:
            due["grad_norm"] = sum(norm for _, norm, _ in counted) / len(counted)
        if "updates/applied" in line:
            due |= self._of_several(view, line, len(applied))
        every = view.trainer.train.reference.sync_every
        if "reference/version" in line and every:
            due["reference/version"] = view.version - view.version % every
        tallies = [one for one, _, _ in counted if one is not None]
        if tallies and len(tallies) == len(counted):
            more, rounding = self._tallied(view, tallies)
            due, bands = due | more, bands | rounding
        return contradictions(line, due, bands) + self._of_weights(view.step, line)

    def _of_several(
        self, view: StepView, line: Mapping[str, float], applied: int
    ) -> dict[str, float]:
        """Return what the line must say of several updates of a step."""
        n = len(self._updates)
        due: dict[str, float] = {
            "updates/applied": applied,
            "updates/skipped": n - applied,
            "updates/missing": view.trainer.train.updates_per_step - n,
        }
        norms = [norm for _, norm, _ in self._updates]
        if norms and all(map(math.isfinite, norms)):
            due["grad_norm/max"] = max(norms)
        if "rows/read" in line and len(self._rows) == n:  # a process may have no row of an update
            due["rows/read"] = sum(self._rows)
        return due

    def _by_iteration(self, view: StepView) -> tuple[dict[str, float], dict[str, float]]:
        """Return what the line must say of each iteration, where all updates count."""
        due: dict[str, float] = {}
        bands: dict[str, float] = {}
        iterations = view.trainer.train.num_iterations
        share = len(self._updates) // iterations
        for number in range(iterations if iterations > 1 else 0):
            total = Tallied()
            for one, _, _ in self._updates[number * share : (number + 1) * share]:
                total.add(one or Tallied())
            more, rounding = total.figures_of_iteration(number + 1)
            due, bands = due | more, bands | rounding
        return due, bands

    def _tallied(
        self, view: StepView, tallies: Sequence[Tallied]
    ) -> tuple[dict[str, float], dict[str, float]]:
        total = Tallied()
        for one in tallies:
            total.add(one)
        # the line has the least threshold of all updates
        total.left = min(one.left for one in tallies)
        due, bands = total.figures()
        if len(tallies) == len(self._updates):
            more, rounding = self._by_iteration(view)
            due, bands = due | more, bands | rounding
        weights = {term.name: term.weight for term in view.trainer.objective.terms}
        losses = losses_of(tallies, weights)
        due |= losses
        bands |= {name: 1e-6 * abs(value) + 1e-9 for name, value in losses.items()}
        return due, bands

    def _of_weights(self, step: int, line: Mapping[str, float]) -> list[str]:
        """Compare weights of rewards that have a schedule, in their order."""
        moving = [weight_of(ref, step) for ref in self._config.rewards if ref.schedule is not None]
        told = [name for name in line if name.startswith("reward_weight/")]
        if len(told) != len(moving):
            return []  # one verifier several times
        return contradictions(line, dict(zip(told, moving, strict=True)))

    def state_dict(self) -> dict[str, Json]:
        """Return how many steps there were, by which it is chosen what is summed up."""
        lines = self._lines.total
        self._taken = None if lines is None else dict(lines)
        self._best_taken = self._best.state_dict()
        return {"steps": self._steps, "ledger": self._taken, "best": self._best_taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._steps = state["steps"]
        known = state.get("ledger")  # not in checkpoints of 0.2.0
        self._lines.total = None if known is None else Counter(known)
        self._best.load_state_dict(state.get("best"))
