"""Guard ``guards/collapse``: stops a run whose policy has collapsed (T5).

What gets worse stops the run; what is bad from the first step on may be the task, and is said once.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from rlvr_core.api import BaseGuard, ComponentConfig, Metric
from rlvr_guards.betting import FallTest, MeanTest, RiseTest
from rlvr_guards.causes import AT_FIRST, CAUSES, Trend, cause_of_fall, orders

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, Json, Judged, RunStarted, StepFinished

Share = Annotated[float, Field(gt=0, lt=1)]

ODDS = {
    "pass": 5e-5,
    "extraction": 2e-5,
    "truncated": 1e-5,
    "empty": 1e-5,
    "same": 1e-5,
}
"""Odds of a false alarm in 1,000 steps by test: 1 in 10,000 together."""

AT_START = {"truncated": 0.95, "empty": 0.95, "same": 0.95, "unread": 0.02}
"""Shares of failing completions above which the start of a run is worth a word, and the share with
an answer below which it is."""

BEGINNING, CERTAIN = 100, math.log(1e5)
"""Steps that are the start of a run, and log wealth at which it is worth a word."""


class Collapse(BaseGuard):
    """Tests the counts of each step: passes, answers found, and completions cut off or empty.

    Each group is one observation, its share of completions, so completions of a problem may depend
    on each other. Nothing is estimated from noisy means; see ``betting``.
    """

    name = "guards/collapse"
    reports = (
        Metric("collapse/evidence", "Most evidence for a collapse; the run stops at 1.", "share"),
        Metric("collapse/level", "Highest pass rate that the run surely had.", "share"),
    )

    class Config(ComponentConfig):
        """The bounds; null switches one off."""

        max_drop: Share | None = 0.35
        """Largest share of the pass rate that may be lost while problems are drawn by chance."""
        max_drop_ordered: Share | None = 0.95
        """The same where the sampler orders problems, so that they may become harder."""
        max_extraction_drop: Share | None = 0.5
        """Largest share that may be lost of the completions in which an answer is found."""
        max_truncated: Share | None = 0.9
        """Largest share of completions that fail and were cut off at the token cap, once fewer
        did."""
        max_empty: Share | None = 0.9
        """Largest share of completions without text, likewise."""
        max_same: Share | None = 0.9
        """Largest share of completions that fail with one and the same text, likewise."""
        min_entropy: Annotated[float, Field(ge=0)] | None = 0.01
        """Smallest ``entropy/mean`` in nats of a policy that fails in a tenth of its completions or
        more, once it was twice as large."""
        window: Annotated[int, Field(gt=0)] = 10
        """Steps that ``min_entropy`` averages over."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.config = config
        self._ordered = False
        self._tests: dict[str, FallTest | RiseTest] = {}
        self._evidence: dict[str, float] = {}
        self._trends = {name: Trend() for name in ("truncated", "extracted", "entropy", "kl")}
        self._entropy: deque[float] = deque(maxlen=config.window)
        self._passes: deque[float] = deque(maxlen=config.window)
        self._free = False
        self._text: tuple[int, ...] | None = None
        self._level_step = 0
        self._start = {
            name: MeanTest([bound], above=name != "unread") for name, bound in AT_START.items()
        }
        self._make_tests()

    def run_started(self, event: RunStarted) -> None:
        """Take note of whether the sampler orders problems."""
        if orders(event.config) != self._ordered:
            self._ordered = not self._ordered
            self._make_tests()

    def on_groups(self, event: GroupsScored) -> None:
        """Test a step's counts; ``on_step`` stops the run, where the metrics tell the cause."""
        groups = [group for group in event.groups if group.members]
        if not groups:
            return
        answered = [_mean(map(self._has_answer, group.members)) for group in groups]
        shares = {
            "pass": [_mean(map(_success, group.members)) for group in groups],
            "extraction": answered,
            "unread": answered,
            "truncated": [_failing(group.members, _truncated) for group in groups],
            "empty": [_failing(group.members, _empty) for group in groups],
            "same": [_failing(group.members, self._is_common) for group in groups if self._text],
        }
        self._evidence = {}
        for name, values in shares.items():
            known = [value for value in values if value is not None]
            if not known:
                continue
            value_V, count_V = np.unique(known, return_counts=True)
            counts = (value_V, count_V.astype(np.float64))
            if event.step < BEGINNING and name in self._start:
                self._start[name].add(*counts)
                if float(self._start[name].evidence()[0]) >= CERTAIN:
                    self._start.pop(name)
                    self.warn_once(f"{AT_FIRST[name]}; {CAUSES[name].remedy}")
            if name in self._tests:
                before = self.level
                self._evidence[name] = float(self._tests[name].add(*counts))
                if self.level != before:
                    self._level_step = event.step
        self._note("truncated", [_mean(map(_truncated, group.members)) for group in groups])
        self._note("extracted", answered)
        self._passes.append(_mean(shares["pass"]) or 0.0)
        texts = Counter(member.completion.token_ids for group in groups for member in group.members)
        self._text = texts.most_common(1)[0][0]

    def on_step(self, event: StepFinished) -> None:
        """Stop the run if a test of the step's groups has rejected, or the entropy is gone.

        Raises:
            RunError: If so; names what was seen, the likely cause and what to do about it.
        """
        metrics = event.metrics
        for name, metric in (("entropy", "entropy/mean"), ("kl", "kl/mean")):
            if metric in metrics:
                self._trends[name].add(metrics[metric])
        seen = [name for name in CAUSES if self._evidence.get(name, 0.0) >= 1]
        if self._entropy_gone(metrics.get("entropy/mean")):
            seen.append("entropy")
        if not seen:
            return
        cause = cause_of_fall(self._trends, ordered=self._ordered) if seen == ["pass"] else seen[0]
        since = ""
        if self.level is not None:
            since = f"a pass rate of {self.level:.2g} was reached by step {self._level_step + 1}: "
        bounds = self.config.model_dump() | {
            "max_drop": self.config.max_drop_ordered if self._ordered else self.config.max_drop,
            "level": self.level,
            "entropy": fmean(self._entropy or [0.0]),
        }
        raise self.fault(
            event.step,
            "; ".join(CAUSES[name].what.format(**bounds) for name in seen),
            f"likely: {CAUSES[cause].remedy}",
            f"{since}begin again from a checkpoint before the fall (model.path)",
        )

    @property
    def level(self) -> float | None:
        """The highest pass rate that the run surely had; None before there is one."""
        test = self._tests.get("pass")
        return test.level if isinstance(test, FallTest) else None

    def report(self) -> Mapping[str, float]:
        """Return the evidence and the level of the pass rate."""
        level = self.level
        numbers = {"collapse/evidence": max(self._evidence.values(), default=0.0)}
        return numbers if level is None else numbers | {"collapse/level": level}

    def state_dict(self) -> dict[str, Json]:
        """Return the evidence so far, for a checkpoint."""
        return {
            "ordered": self._ordered,
            "start": {name: {"test": test.state_dict()} for name, test in self._start.items()},
            "tests": {name: test.state_dict() for name, test in self._tests.items()},
            "trends": {name: trend.state_dict() for name, trend in self._trends.items()},
            "entropy": list(self._entropy),
            "passes": list(self._passes),
            "free": self._free,
            "text": None if self._text is None else list(self._text),
            "level_step": self._level_step,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the evidence from a checkpoint."""
        self._ordered = state["ordered"]
        self._make_tests()
        self._start = {n: test for n, test in self._start.items() if n in state["start"]}
        for name, first in self._start.items():
            first.load_state_dict(state["start"][name]["test"])
        for name, test in self._tests.items():
            if name in state["tests"]:
                test.load_state_dict(state["tests"][name])
        for name, trend in self._trends.items():
            trend.load_state_dict(state["trends"][name])
        self._entropy.extend(state["entropy"])
        self._passes.extend(state["passes"])
        self._free = state["free"]
        self._text = None if state["text"] is None else tuple(state["text"])
        self._level_step = state["level_step"]

    def _make_tests(self) -> None:
        config = self.config
        kinds: dict[str, tuple[type[FallTest | RiseTest], float | None]] = {
            "pass": (FallTest, config.max_drop_ordered if self._ordered else config.max_drop),
            "extraction": (FallTest, config.max_extraction_drop),
            "truncated": (RiseTest, config.max_truncated),
            "empty": (RiseTest, config.max_empty),
            "same": (RiseTest, config.max_same),
        }
        self._tests = {
            name: kind(bound, ODDS[name])
            for name, (kind, bound) in kinds.items()
            if bound is not None
        }

    def _has_answer(self, member: Judged) -> bool | None:
        """Whether an answer was found in a completion; None if no verifier looks for one."""
        counted = [
            verdict.parts["extracted"] > 0
            for verdict in member.verdicts.values()
            if "extracted" in verdict.parts
        ]
        return any(counted) if counted else None

    def _is_common(self, member: Judged) -> bool:
        return member.completion.token_ids == self._text

    def _note(self, name: str, values: Iterable[float | None]) -> None:
        mean = _mean(values)
        if mean is not None:
            self._trends[name].add(mean)

    def _entropy_gone(self, value: float | None) -> bool:
        bound = self.config.min_entropy
        if value is None or bound is None:
            return False
        self._entropy.append(value)
        if len(self._entropy) < self.config.window:
            return False
        mean = fmean(self._entropy)
        self._free = self._free or mean >= 2 * bound
        return self._free and mean < bound and fmean(self._passes or [1.0]) < 0.9


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there is none."""
    known = [float(value) for value in values if value is not None]
    return fmean(known) if known else None


def _failing(members: Sequence[Judged], what: Callable[[Judged], bool]) -> float | None:
    """Return the share that fails and is so; None where no verifier says what fails."""
    return _mean(
        None if member.passed is None else float(not member.passed and what(member))
        for member in members
    )


def _success(member: Judged) -> float | None:
    """Return the outcome; for a verifier without one, the reward, cut to between 0 and 1."""
    if member.passed is None and member.reward is not None:
        return min(1.0, max(0.0, member.reward))
    return member.passed


def _truncated(member: Judged) -> bool:
    return member.completion.finish_reason == "length"


def _empty(member: Judged) -> bool:
    return not member.completion.text.strip()
