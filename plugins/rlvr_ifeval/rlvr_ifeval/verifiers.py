"""The verifiers: one for each format in which data names its constraints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Literal, get_args

from rlvr_core.api import Completion, ComponentConfig, DataError, Json, Problem, Verdict
from rlvr_ifeval import spec
from rlvr_ifeval.constraint import Bound, ConstraintSet, Rules
from rlvr_ifeval.ifeval import IFEVAL
from rlvr_ifeval.loose import variants
from rlvr_ifeval.multi import MULTI
from rlvr_ifeval.rlvr import RLVR

Scoring = Literal["all", "mean"]


@cache
def ifbench_set() -> ConstraintSet:
    """IFBench's constraints; their word lists are read when first needed."""
    from rlvr_ifeval.ifbench import register

    known = ConstraintSet("ifbench")
    register(known)
    return known


class Constraints(ABC):
    """What all formats share: judge each constraint, then score."""

    class Config(ComponentConfig):
        """Options of the evaluations' verifiers; the defaults are the official strict mode."""

        scoring: Scoring = "all"
        """``all``: 1 if every constraint is followed, else 0. ``mean``: the share followed."""
        loose: bool = False
        """Accept a constraint that is followed once the first line, the last line or asterisks
        are left out, as IFEval's loose accuracy does."""
        min_content: bool = False
        """Refuse trivial passes, like a one-letter palindrome or a reply of one word."""
        answer_only: bool = False
        """Judge what comes after ``</think>``, without ``<answer>`` tags."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The constraints a row names, in order; ``DataError`` with ``where`` if they are bad."""

    def constraints(self, problem: Problem) -> tuple[Bound, ...]:
        """The problem's constraints, in order.

        Raises:
            DataError: If one is unknown or its arguments are wrong; names the problem.
        """
        return self.read(problem.spec, f"problem {problem.id}")

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless every constraint is known and has the right arguments."""
        self.constraints(problem)

    def rules(self, given: Mapping[str, Json], where: str) -> Rules:
        """By which rules a row is judged; data without an official script has one rule only."""
        return "strict-reading"

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response; an exception in a constraint is an error, never a zero."""
        try:
            constraints = self.constraints(problem)
            rules = self.rules(problem.spec, f"problem {problem.id}")
        except DataError as error:
            return Verdict(None, "unscorable", detail=error.complaints[0].what)
        text = answer_part(completion.text) if self.config.answer_only else completion.text
        texts = variants(text) if self.config.loose else (text,)
        outcomes: list[bool] = []
        for one in constraints:
            try:
                outcomes.append(
                    any(
                        one.follows(text, min_content=self.config.min_content, rules=rules)
                        for text in texts
                    )
                )
            except Exception as error:  # a bug of a constraint must not look like an answer
                return Verdict(
                    None, "error", detail=f"{one.id}: {type(error).__name__}: {error}"[:500]
                )
        return _verdict(constraints, outcomes, self.config.scoring)


class Benchmark(Constraints):
    """What the verifiers of benchmarks share, which come with a script of their own."""

    class Config(Constraints.Config):
        """Options of the evaluations' verifiers; the defaults are the strict mode."""

        rules: Rules | None = None
        """``official``: the verdict of the benchmark's own script. ``strict-reading``: what the
        instruction's text says. When absent, a problem of an evaluation is judged by the rules
        of its task, any other one by ``strict-reading``."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._rules = config.rules

    def rules(self, given: Mapping[str, Json], where: str) -> Rules:
        """The option, else what the row says in ``rules``, else ``strict-reading``.

        Raises:
            DataError: If the row names rules that do not exist.
        """
        own = given.get("rules", "strict-reading")
        for rules in get_args(Rules):
            if own == rules:
                return self._rules or rules
        raise DataError(
            f"'rules' must be one of {', '.join(get_args(Rules))}, not {own!r}", where=where
        )

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless rules and constraints are known and have their arguments."""
        self.rules(problem.spec, f"problem {problem.id}")
        super().check(problem)


class Ifeval(Benchmark):
    """IFEval's constraints, from ``instruction_id_list`` and ``kwargs``.

    ``parts`` has one entry per constraint, in order: 1 if it is followed, else 0.
    """

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The 25 constraints of IFEval."""
        return spec.from_lists(given, IFEVAL, where)


class Ifbench(Benchmark):
    """IFBench's constraints, from ``instruction_id_list`` and ``kwargs``."""

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The 58 constraints of IFBench."""
        return spec.from_lists(given, ifbench_set(), where)


class Multi(Constraints):
    """The multi-constraint training set's constraints, from ``ground_truth``."""

    class Config(Constraints.Config):
        """Options of ``ifeval/multi``; the defaults score as open-instruct does."""

        scoring: Scoring = "mean"
        """``all``: 1 if every constraint is followed, else 0. ``mean``: the share followed."""
        answer_only: bool = True
        """Judge what comes after ``</think>``, without ``<answer>`` tags."""

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """IFEval's 25 constraints and the 29 added for training."""
        return spec.from_ground_truth(given, MULTI, where)


class Rlvr(Constraints):
    """The one function of an RLVR-IFEval problem, from ``ground_truth``."""

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The 25 functions of RLVR-IFEval."""
        return spec.from_function(given, RLVR, where)


def answer_part(text: str) -> str:
    """What follows the last ``</think>``, without ``<answer>`` tags.

    Text that begins with ``<think>`` and never ends it has no answer.
    """
    text = text.strip()
    if text.startswith("<think>") and "</think>" not in text:
        return ""
    text = text.rpartition("</think>")[2]
    return text.replace("<answer>", "").replace("</answer>", "").strip()


def _verdict(constraints: tuple[Bound, ...], outcomes: list[bool], scoring: Scoring) -> Verdict:
    parts = {
        f"{number}:{one.id}": float(good)
        for number, (one, good) in enumerate(zip(constraints, outcomes, strict=True), 1)
    }
    passed, share = all(outcomes), sum(outcomes) / len(outcomes)
    detail = f"{sum(outcomes)} of {len(outcomes)} followed (all {passed:d}, mean {share:.3g})"
    if not passed:
        broken = [name for name, good in parts.items() if not good]
        detail += f"; not followed: {', '.join(broken)}"
    return Verdict(
        score=share if scoring == "mean" else float(passed),
        passed=passed,
        parts=parts,
        detail=detail,
    )
