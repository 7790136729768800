"""The verifiers: one for each format in which data names its constraints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from rlvr_core.api import Completion, ComponentConfig, DataError, Json, Problem, Verdict
from rlvr_ifeval import spec
from rlvr_ifeval.constraint import Bound
from rlvr_ifeval.ifbench import IFBENCH
from rlvr_ifeval.ifeval import IFEVAL
from rlvr_ifeval.loose import variants
from rlvr_ifeval.multi import MULTI
from rlvr_ifeval.rlvr import RLVR

Scoring = Literal["all", "mean"]


class Constraints(ABC):
    """Base of all formats: judge each constraint, then score."""

    class Config(ComponentConfig):
        """Options of the evaluations' verifiers; the defaults are the official strict mode."""

        scoring: Scoring = "all"
        """``all``: 1 if every constraint is followed, else 0. ``mean``: the share followed."""
        loose: bool = False
        """Accept a constraint that is followed once the first line, the last line or asterisks
        are left out, as IFEval's loose accuracy does."""
        answer_only: bool = False
        """Judge what comes after ``</think>``, without ``<answer>`` tags."""

    AS_IS: ClassVar[bool] = False
    """Whether hidden characters count."""

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

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response; an exception in a constraint is an error, never a zero."""
        try:
            constraints = self.constraints(problem)
        except DataError as error:
            return Verdict(None, "unscorable", detail=error.complaints[0].what)
        text = answer_part(completion.text) if self.config.answer_only else completion.text
        texts = variants(text) if self.config.loose else (text,)
        outcomes: list[bool] = []
        for constraint in constraints:
            try:
                outcomes.append(any(self.follows(constraint, text) for text in texts))
            except Exception as error:  # a bug of a constraint must not look like an answer
                return Verdict(
                    None, "error", detail=f"{constraint.id}: {type(error).__name__}: {error}"[:500]
                )
        return _verdict(constraints, outcomes, self.config.scoring)

    def follows(self, constraint: Bound, text: str) -> bool:
        """Whether a text follows a constraint."""
        return constraint.follows(text, as_is=self.AS_IS)


class Ifeval(Constraints):
    """IFEval's constraints by the benchmark's own rules, from ``instruction_id_list``, ``kwargs``.

    ``parts`` has one entry per constraint, in order: 1 if it is followed, else 0.
    """

    AS_IS = True

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The 25 constraints of IFEval."""
        return spec.from_lists(given, IFEVAL, where)


class Ifbench(Constraints):
    """IFBench's constraints by its own rules, from ``instruction_id_list`` and ``kwargs``."""

    AS_IS = True

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The 58 constraints of IFBench."""
        return spec.from_lists(given, IFBENCH, where)


class Training(Constraints):
    """Base of the verifiers of training data."""

    class Config(Constraints.Config):
        """Options of the training data's verifiers."""

        min_content: bool = False
        """Refuse trivial passes, like a one-letter palindrome or a reply of one word."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._min_content = config.min_content

    def follows(self, constraint: Bound, text: str) -> bool:
        """Whether a text follows a constraint; invisible characters do not count."""
        return constraint.follows(text, min_content=self._min_content)


class Multi(Training):
    """The multi-constraint training set's constraints, from ``ground_truth``."""

    class Config(Training.Config):
        """Options of ``ifeval/multi``; the defaults score as open-instruct does."""

        scoring: Scoring = "mean"
        """``all``: 1 if every constraint is followed, else 0. ``mean``: the share followed."""
        answer_only: bool = True
        """Judge what comes after ``</think>``, without ``<answer>`` tags."""

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """IFEval's 25 constraints and the 29 added for training."""
        return spec.from_ground_truth(given, MULTI, where)


class Rlvr(Training):
    """The one function of an RLVR-IFEval problem, from ``ground_truth``."""

    def read(self, given: Mapping[str, Json], where: str) -> tuple[Bound, ...]:
        """The 25 functions of RLVR-IFEval."""
        return spec.from_function(given, RLVR, where)


def answer_part(text: str) -> str:
    """Return the text after the last ``</think>``, without ``<answer>`` tags.

    Text that begins with ``<think>`` and never ends it has no answer.
    """
    text = text.strip()
    if text.startswith("<think>") and "</think>" not in text:
        return ""
    text = text.rpartition("</think>")[2]
    return text.replace("<answer>", "").replace("</answer>", "").strip()


def _verdict(constraints: tuple[Bound, ...], outcomes: list[bool], scoring: Scoring) -> Verdict:
    parts = {
        f"{number}:{constraint.id}": float(good)
        for number, (constraint, good) in enumerate(zip(constraints, outcomes, strict=True), 1)
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
