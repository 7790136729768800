"""Evaluation tasks: a split, frozen sampling, and the metrics of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, ClassVar

from pydantic import Field

from rlvr_core.api import (
    ComponentConfig,
    EvalReport,
    EvalTaskTraits,
    Group,
    Judged,
    Problem,
    SamplingParams,
)
from rlvr_math import boxes
from rlvr_math.arithmetic import MAX_TOKENS, Arithmetic
from rlvr_math.competition import (
    Aime24,
    Amc23,
    CommonConfig,
    Competition,
    Filtered,
    Math,
    Math500,
    MinervaMath,
    OlympiadBench,
    SourceConfig,
)
from rlvr_math.gsm8k import Gsm8k


class ArithmeticHeldout:
    """Additions that are never trained on, sampled at temperature 1 as in training."""

    class Config(ComponentConfig):
        """Options of the held-out additions."""

        n_problems: Annotated[int, Field(gt=0)] = 256
        """How many problems, of about 800."""

    n = 1
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)

    def __init__(self, config: Config) -> None:
        self.config = config

    def problems(self) -> list[Problem]:
        """The problems, the same ones at every call."""
        loader = Arithmetic(Arithmetic.Config(split="heldout", n=self.config.n_problems))
        return list(loader.load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, format, length and truncation."""
        return report(groups)


class ArithmeticHeldoutGreedy(ArithmeticHeldout):
    """Held-out additions, answered greedily."""

    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)


class Gsm8kTest:
    """The GSM8K test split, answered greedily with the prompt of training."""

    class Config(SourceConfig):
        """Options of the GSM8K test split."""

        max_tokens: Annotated[int, Field(gt=0)] = 512
        """Cap on an answer, in tokens."""

    n = 1
    traits = EvalTaskTraits(graders=("math/gsm8k-strict", "math/gsm8k-flexible"))

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sampling = SamplingParams(temperature=0.0, max_tokens=config.max_tokens)

    def problems(self) -> list[Problem]:
        """The problems in the order of the file."""
        given = self.config.model_dump(exclude={"max_tokens"})
        return list(Gsm8k(Gsm8k.Config(split="test", **given)).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, format, length and truncation."""
        return report(groups)


class CompetitionTest:
    """A competition data set answered greedily; a subclass says which."""

    class Config(CommonConfig):
        """Options of a competition data set's evaluation."""

        max_tokens: Annotated[int, Field(gt=0)] = 1024
        """Cap on an answer, in tokens."""

    n = 1
    traits = EvalTaskTraits(graders=("math/minerva", "math/math-verify"))
    DATASET: ClassVar[type[Competition]]
    FIXED: ClassVar[dict[str, str]] = {}
    """Options of the data set that the task does not leave open."""

    def __init__(self, config: CommonConfig) -> None:
        self.config = config
        max_tokens: int = config.model_dump()["max_tokens"]
        self.sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens)

    def problems(self) -> list[Problem]:
        """The problems in the order of the source."""
        given = self.config.model_dump(exclude={"max_tokens"}) | self.FIXED
        return list(self.DATASET(self.DATASET.Config(**given)).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, format, length and truncation; accuracy by level and subject."""
        return stratified(groups)


class _Filtered(Filtered):
    """Options of an evaluation on MATH problems."""

    max_tokens: Annotated[int, Field(gt=0)] = 1024
    """Cap on an answer, in tokens."""


class MathTest(CompetitionTest):
    """The 5,000 test problems of MATH."""

    Config = _Filtered  # type: ignore[assignment]
    DATASET = Math
    FIXED = {"split": "test"}


class Math500Test(CompetitionTest):
    """The 500 problems of MATH-500."""

    Config = _Filtered  # type: ignore[assignment]
    DATASET = Math500


class Aime24Test(CompetitionTest):
    """The 30 problems of AIME 2024."""

    DATASET = Aime24


class Amc23Test(CompetitionTest):
    """The 40 problems of AMC 2023."""

    DATASET = Amc23


class MinervaTest(CompetitionTest):
    """The 272 problems of Minerva."""

    DATASET = MinervaMath


class OlympiadBenchTest(CompetitionTest):
    """The problems of OlympiadBench."""

    DATASET = OlympiadBench


def stratified(groups: Sequence[Group]) -> EvalReport:
    """``report``, with ``accuracy/level_3`` and ``accuracy/geometry`` by the problems' tags."""
    whole = report(groups)
    metrics = dict(whole.metrics)
    for tag, prefix in (("level", "level_"), ("subject", "")):
        labels = {group.problem.tags[tag] for group in groups if tag in group.problem.tags}
        for label in sorted(labels, key=str):
            part = report([group for group in groups if group.problem.tags.get(tag) == label])
            if "accuracy" in part.metrics:
                metrics[f"accuracy/{prefix}{label}"] = part.metrics["accuracy"]
    return EvalReport(metrics=metrics, n=whole.n)


def report(groups: Sequence[Group]) -> EvalReport:
    r"""Means over problems of means over each problem's completions.

    ``accuracy`` counts completions with an outcome only; ``unscored`` is the share of the others.
    ``format`` is the share with a non-empty ``\boxed{}``, ``truncated`` the share that hit the
    token cap, ``length`` the mean number of tokens.
    """
    members = [group.members for group in groups if group.members]
    if not members:
        return EvalReport(metrics={}, n=0)
    everyone = [member for group in members for member in group]
    metrics = {
        "format": fmean(fmean(map(_boxed, group)) for group in members),
        "truncated": fmean(member.completion.finish_reason == "length" for member in everyone),
        "unscored": fmean(member.passed is None for member in everyone),
    }
    lengths = [n for member in everyone if (n := member.completion.n_tokens) is not None]
    if lengths:
        metrics["length"] = fmean(lengths)
    known = [[member.passed for member in group if member.passed is not None] for group in members]
    if any(known):
        metrics = {"accuracy": fmean(fmean(outcomes) for outcomes in known if outcomes)} | metrics
    return EvalReport(metrics=metrics, n=len(members))


def _boxed(member: Judged) -> bool:
    return boxes.last_box(member.completion.text) is not None
