"""Invariant ``advantages``: what the loss was given is what the rewards say, to the right tokens.

Each row's advantage is compared with a plain formula, or, for an estimator that is not built in,
with what its traits promise: the order and sign of the rewards less their mean, and a sum of 0 over
a group. And the gradient that arrives at a log-prob must raise it where the advantage is positive.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import AdvantageTraits, Metric, traits_of
from rlvr_core.api.services import judged_step
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.differences import larger
from rlvr_core.builtin.invariants.estimators import other_estimator
from rlvr_core.builtin.invariants.oracles import cause, normalise_then_sum, oracle_of
from rlvr_core.builtin.invariants.rows import Key, members_by_key, rows_of
from rlvr_core.builtin.invariants.token_advantages import TokenAdvantages

if TYPE_CHECKING:
    from rlvr_core.api import Source, StepFinished
    from rlvr_core.api.services import RunConfig

TOLERANCE = 1e-3
"""Difference of an advantage from its formula that is rounding, as a share of it."""

LEAST_SIGNS = 16
"""Tokens whose gradient has a sign to compare, at least."""

Place = tuple[int, int]
"""Place of a group in the step, and of a completion in the group."""


class Advantages(Invariant):
    """Advantages follow from rewards.

    Args:
        config: The run's configuration.
        sources: The training data, in the order of ``data.sources``; empty where it is not known.
    """

    id, phase = "advantages", "before each update"
    reports = (
        Metric(
            "advantages/error", "Largest difference of an advantage from its plain formula.", ""
        ),
        Metric(
            "advantages/ascent",
            "Share of tokens whose gradient raises a positive advantage or lowers a negative one.",
            "share",
            "up",
        ),
    )

    def __init__(self, config: RunConfig, sources: Sequence[Source] = ()) -> None:
        self._config, self._options = config, config.advantage.with_
        self._factors = {
            problem.id: ref.advantage_scale
            for ref, source in zip(config.data.sources, sources, strict=False)
            for problem in source.problems
        }
        self._expected: dict[Place, float] | None = None
        self._ordered = False
        self._keys: dict[Any, list[Place]] = {}
        self._tokens = TokenAdvantages(self._options)
        self._error = self._ascent = math.nan

    def begin(self, view: StepView) -> None:
        """Compute what the step's advantages must be."""
        self._error = self._ascent = math.nan
        self._expected, self._ordered = None, False
        estimator = view.trainer.objective.estimator
        if what := other_estimator(self._config, view.trainer.objective):
            raise self.fault(
                view.step,
                f"{what} (band: none)",
                "look at what chooses the estimator: `advantage` of the configuration, and the "
                "traits of the loss, which auto goes by",
            )
        if estimator is None:
            return
        self._check_factors(view)
        component = estimator.component
        traits = traits_of(component, AdvantageTraits)
        self._keys = members_by_key(view.groups)
        self._tokens.begin(view)
        found = None
        if not traits.per_token:
            found = self._by_formula(view, type(component))
            combined = self._options.get("combine") == "normalise_then_sum"
            self._ordered = found is None and traits.centered and not combined
        # an estimator of somebody else may keep state, which a second call would change
        ours = type(component).__module__.startswith("rlvr_core.")
        if found is None and ours and not self._ordered and not traits.needs_reference_kl:
            weights = view.trainer.reward_weights(view.step)
            flat = iter(estimator.of(judged_step(view.groups, weights)).row_N.tolist())
            found = [[next(flat) for _ in group.members] for group in view.groups]
        if found is not None:
            self._expected = {
                (place, number): value * _scale(view, place)
                for place, values in enumerate(found)
                for number, value in enumerate(values)
                if not math.isnan(value)
            }

    def _check_factors(self, view: StepView) -> None:
        """Compare the factors on advantages with those of the configuration."""
        for place, group in enumerate(view.groups):
            name, has = group.problem.id, _scale(view, place)
            if (due := self._factors.get(name, has)) != has:
                raise self.fault(
                    view.step,
                    f"the advantages of problem {name} have the factor {has:g}, and "
                    f"advantage_scale of its source in data.sources is {due:g} (band: none)",
                    "look at what hands the factors of sources to the trainer, in a run that is "
                    "resumed as well",
                )

    def _by_formula(self, view: StepView, component: type[Any]) -> list[list[float]] | None:
        if self._options.get("combine") == "normalise_then_sum":
            weights = view.trainer.reward_weights(view.step)
            scores = [
                [
                    [*(verdict.score for verdict in member.verdicts.values()), *[None] * missing]
                    for member in group.members
                    for missing in [len(weights) - len(member.verdicts)]
                ]
                for group in view.groups
            ]
            if component.__module__ != "rlvr_core.advantages":
                return None
            return normalise_then_sum(scores, weights, component.__qualname__)
        oracle = oracle_of(component, self._options)
        rewards = [[member.reward for member in group.members] for group in view.groups]
        return None if oracle is None else oracle(rewards)

    def share(self, view: StepView) -> tuple[dict[Key, list[float]], int, int]:
        """Advantages by the key of their rows, and signs that agree or not."""
        found: dict[Key, list[float]] = {}
        if view.trainer.objective.estimator is None:
            return found, 0, 0
        self._check_tokens(view)
        self._check_each_token(view)
        for row in rows_of(view):
            if row.key in self._keys:
                found.setdefault(row.key, []).append(row.advantage)
        agree, against = _signs(view) if view.update == 0 else (0, 0)
        return found, agree, against

    def _check_tokens(self, view: StepView) -> None:
        """Check that all tokens of a row have its advantage, where an estimator gives one a row."""
        if traits_of(view.trainer.objective.estimator.component, AdvantageTraits).per_token:
            return
        for seen in view.seen:
            batch = seen.batch
            if batch.advantage_BT is None:
                continue
            off_BT = (batch.advantage_BT - batch.advantage_B[:, None]).abs()
            off_B = off_BT.masked_fill(~batch.mask_BT, 0.0).amax(1)
            wrong_B = off_B > TOLERANCE * batch.advantage_B.abs().clamp(min=0.01)
            if not bool(wrong_B.any()):
                continue
            row = int(off_B.argmax())
            at = int(off_BT[row].masked_fill(~batch.mask_BT[row], -1.0).argmax())
            raise self.fault(
                view.step,
                f"tokens of {int(wrong_B.sum())} of {len(wrong_B)} rows have other advantages than "
                f"their row: at token {at + 1} it is {float(batch.advantage_BT[row, at]):.4g}, and "
                f"the row's is {float(batch.advantage_B[row]):.4g} (tolerance {TOLERANCE:g} of it)",
                "the estimator gives one advantage a completion: look for a discount, a shaping or "
                "a mask over tokens between it and the loss",
            )

    def _check_each_token(self, view: StepView) -> None:
        """Check the advantages of an estimator that gives one a token, and has a formula here."""
        error, *wrong = self._tokens.check(view)
        self._error = larger(self._error, error)
        if wrong:
            raise self.fault(view.step, *wrong)

    def finished(self, event: StepFinished) -> None:
        """Compare what the estimator reports of the step's returns; raises ``RunError``."""
        if what := self._tokens.wrong_figure(event.metrics):
            raise self.fault(
                event.step,
                what,
                "what is reported is another figure: look at what the estimator reports",
            )

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """See ``Invariant.judge``."""
        given: dict[Key, list[float]] = {}
        for found, _, _ in shares:
            for key, values in found.items():
                given.setdefault(key, []).extend(values)
        if self._expected is not None:
            self._compare(view, given, self._expected)
        elif self._ordered:
            self._check_order(view, given)
        agree, against = (sum(share[number] for share in shares) for number in (1, 2))
        if agree + against >= LEAST_SIGNS:
            self._ascent = agree / (agree + against)
            if self._ascent < 0.5:
                raise self.fault(
                    view.step,
                    f"the gradient lowers tokens of positive advantage and raises those of "
                    f"negative: {against} of {agree + against} tokens go the wrong way (band: "
                    "less than half)",
                    "the loss has the wrong sign, or reads its advantages of other rows: look at "
                    "the loss and at what it makes of advantage_B",
                )

    def _compare(
        self,
        view: StepView,
        given: Mapping[Key, list[float]],
        expected: Mapping[Place, float],
    ) -> None:
        pairs: list[tuple[Place, float, float]] = []
        for key, values in given.items():
            place, *_ = places = self._keys[key]
            wanted = sorted(expected[one] for one in places if one in expected)
            if len(wanted) == len(values):
                pairs += [(place, a, e) for a, e in zip(sorted(values), wanted, strict=True)]
            elif wanted:  # an equal completion was left out: which one is not known
                nearest = [min((abs(e - a), e) for e in wanted)[1] for a in values]
                pairs += [(place, a, e) for a, e in zip(values, nearest, strict=True)]
        errors = [abs(a - e) / max(abs(e), 0.01) for _, a, e in pairs]
        if not errors:
            return
        self._error = max(abs(a - e) for _, a, e in pairs)
        wrong = [number for number, error in enumerate(errors) if not error <= TOLERANCE]
        if not wrong:
            return
        place, used, right = pairs[errors.index(max(errors))]
        group = view.groups[place[0]]
        raise self.fault(
            view.step,
            f"{len(wrong)} of {len(pairs)} rows have another advantage than their rewards give: "
            f"problem {group.problem.id}, completion {place[1]} with reward "
            f"{group.members[place[1]].reward}: {used:.4g} was used, {right:.4g} is right "
            f"(tolerance {TOLERANCE:g} of it)",
            cause([(a, e) for _, a, e in pairs]),
        )

    def _check_order(
        self,
        view: StepView,
        given: Mapping[Key, list[float]],
    ) -> None:
        rows: dict[int, list[tuple[float, float]]] = {}
        for key, values in given.items():
            place = key[0]
            members = view.groups[place].members
            rewards = sorted(members[number].reward or 0.0 for _, number in self._keys[key])
            if len(rewards) == len(values):
                rows.setdefault(place, []).extend(zip(rewards, sorted(values), strict=True))
        for number, pairs in rows.items():
            group = view.groups[number]
            known = [m.reward for m in group.members if m.reward is not None]
            # rows are completions only where none has branches
            whole = not any(member.completion.branches for member in group.members)
            fault = _disorder(pairs, known, whole=whole)
            if fault:
                raise self.fault(
                    view.step,
                    f"the advantages of problem {group.problem.id} do not follow "
                    f"from its rewards: {fault}",
                    "advantages are those of other completions, or the estimator does not compare "
                    "with the group's mean, and must not declare AdvantageTraits(centered=True)",
                )

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the step's measurements."""
        return {"advantages/error": self._error, "advantages/ascent": self._ascent}


def _scale(view: StepView, place: int) -> float:
    return view.trainer.advantage_scale.get(view.groups[place].problem.id, 1.0)


def _disorder(pairs: Sequence[tuple[float, float]], known: Sequence[float], *, whole: bool) -> str:
    """Return what is wrong with a group's (reward, advantage) pairs; empty if nothing is."""
    mean = math.fsum(known) / len(known)
    size = max((abs(a) for _, a in pairs), default=0.0)
    tiny = max(TOLERANCE * size, 1e-6)
    for reward, advantage in pairs:
        if abs(reward - mean) > 1e-9 and advantage * (reward - mean) < -tiny * abs(reward - mean):
            return (
                f"reward {reward:.4g} is {'above' if reward > mean else 'below'} the mean "
                f"{mean:.4g} and has the advantage {advantage:.4g}"
            )
    ordered = sorted(pairs)
    for (low, a), (high, b) in itertools.pairwise(ordered):
        if a - b > tiny or (high == low and abs(a - b) > tiny):
            return f"reward {low:.4g} has the advantage {a:.4g}, reward {high:.4g} has {b:.4g}"
    total = math.fsum(a for _, a in pairs)
    if whole and len(pairs) == len(known) > 1 and abs(total) > tiny * len(pairs):
        return f"they sum to {total:.4g}, not to 0"
    return ""


def _signs(view: StepView) -> tuple[int, int]:
    """Count tokens whose gradient ascends their advantage, and those where it descends.

    Only where one loss learns from advantages, and at tokens where its KL pulls hardly at all: at
    the first update every ratio is 1. The estimator k1 pulls every token alike, however near the
    reference is.
    """
    agree = against = 0
    for seen in view.seen:
        batch, gradient_BT = seen.batch, seen.gradient_BT
        traits = seen.losses[0][0].traits
        if len(seen.losses) != 1 or gradient_BT is None or traits.teacher:
            continue
        if batch.ref_logp_BT is not None and traits.kl_estimator == "k1":
            continue
        advantage_BT = batch.advantage_BT
        if advantage_BT is None:
            advantage_BT = batch.advantage_B[:, None].expand_as(gradient_BT)
        chosen_BT = batch.mask_BT & (advantage_BT.abs() > 1e-3) & (gradient_BT != 0)
        if batch.entropy_mask_BT is not None:
            # with top_entropy the other tokens have the gradient of the KL alone
            chosen_BT = chosen_BT & batch.entropy_mask_BT
        if batch.ref_logp_BT is not None:
            chosen_BT = chosen_BT & ((batch.ref_logp_BT - batch.logp_BT).abs() < 0.01)
        product_N = torch.sign(gradient_BT[chosen_BT]) * torch.sign(advantage_BT[chosen_BT])
        ups, downs = torch.stack([(product_N > 0).sum(), (product_N < 0).sum()]).tolist()
        against, agree = against + ups, agree + downs
    return agree, against
