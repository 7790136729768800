"""Evaluation tasks: IFEval and IFBench with the four accuracies people report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar

from pydantic import Field

from rlvr_core.api import ComponentConfig, EvalReport, Group, Problem, SamplingParams
from rlvr_ifeval import datasets, verifiers
from rlvr_ifeval.constraint import Bound
from rlvr_ifeval.loose import variants
from rlvr_ifeval.tagger import TAGGED, tagger


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Which of its constraints a response follows.

    Attributes:
        ids: Ids of the constraints, in order.
        strict: Whether the response follows each.
        loose: Whether it, or it without its first line, last line or asterisks, does.
    """

    ids: tuple[str, ...]
    strict: tuple[bool, ...]
    loose: tuple[bool, ...]


Known = dict[tuple[str, str], Outcomes]
"""Outcomes by problem id and text."""


class Benchmark:
    """A benchmark, answered greedily once per prompt."""

    DATASET: ClassVar[type[datasets.Rows]]

    class Config(ComponentConfig):
        """Options of an instruction-following evaluation."""

        path: str | None = None
        """The benchmark's own JSON lines, gzipped or not; from the hub when absent."""
        revision: str | None = None
        """Branch, tag or commit on the hub; give a commit to pin the data."""
        limit: Annotated[int, Field(gt=0)] | None = None
        """Take only so many problems, from the start."""
        max_tokens: Annotated[int, Field(gt=0)] = 2048
        """Cap on an answer, in tokens."""
        answer_only: bool = False
        """Judge what comes after ``</think>``, without ``<answer>`` tags."""

    n = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        self._known: Known = {}
        self.sampling = SamplingParams(temperature=0.0, max_tokens=config.max_tokens)

    def problems(self) -> list[Problem]:
        """The problems in the order of the file.

        Raises:
            MachineError: If one needs NLTK's tagger and its data are not installed.
        """
        options = self.config.model_dump(include={"path", "revision", "limit"})
        problems = list(self.DATASET(self.DATASET.Config(**options)).load())
        if any(TAGGED in problem.spec["instruction_id_list"] for problem in problems):
            tagger()
        return problems

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Strict and loose accuracies, and the strict one of each constraint."""
        checker = self.DATASET.CHECKER(self.DATASET.CHECKER.Config())
        return report(groups, checker, answer_only=self.config.answer_only, known=self._known)


class Ifeval(Benchmark):
    """IFEval, greedy: strict and loose accuracy by prompt and by constraint."""

    DATASET = datasets.Ifeval


class Ifbench(Benchmark):
    """IFBench, greedy: strict and loose accuracy by prompt and by constraint."""

    DATASET = datasets.Ifbench


def report(
    groups: Sequence[Group],
    checker: verifiers.Constraints,
    *,
    answer_only: bool = False,
    known: Known | None = None,
) -> EvalReport:
    """The four accuracies, and the strict one of each constraint.

    ``prompt_*`` is the share of responses that follow all their constraints, ``instruction_*``
    the share of constraints followed, over all responses, and ``strict/<id>`` the share of one
    constraint. ``accuracy`` is ``prompt_strict``, ``truncated`` the share of responses at the token
    cap, ``length`` the mean number of tokens.

    Args:
        groups: The completions of each problem.
        checker: Reads the problems' constraints and judges texts by them.
        answer_only: Whether to judge what comes after ``</think>`` alone.
        known: Outcomes by problem and text, which are looked up here and added to: intervals are
            estimated by reports on many parts of the same groups.
    """
    known = {} if known is None else known
    judged: list[Outcomes] = []
    completions = [member.completion for group in groups for member in group.members]
    for group in groups:
        for member in group.members:
            text = member.completion.text
            text = verifiers.answer_part(text) if answer_only else text
            key = (group.problem.id, text)
            if key not in known:
                known[key] = _judge(checker, checker.constraints(group.problem), text)
            judged.append(known[key])
    if not judged:
        return EvalReport(metrics={}, n=0)
    strict, loose = [row.strict for row in judged], [row.loose for row in judged]
    metrics = {
        "accuracy": fmean(map(all, strict)),
        "prompt_strict": fmean(map(all, strict)),
        "instruction_strict": fmean(good for row in strict for good in row),
        "prompt_loose": fmean(map(all, loose)),
        "instruction_loose": fmean(good for row in loose for good in row),
        "truncated": fmean(completion.finish_reason == "length" for completion in completions),
    }
    lengths = [completion.n_tokens for completion in completions if completion.n_tokens is not None]
    if lengths:
        metrics["length"] = fmean(lengths)
    by_id: defaultdict[str, list[bool]] = defaultdict(list)
    for row in judged:
        for id, good in zip(row.ids, row.strict, strict=True):
            by_id[id].append(good)
    metrics |= {f"strict/{id}": fmean(by_id[id]) for id in sorted(by_id)}
    return EvalReport(metrics=metrics, n=sum(bool(group.members) for group in groups))


def _judge(checker: verifiers.Constraints, constraints: Sequence[Bound], text: str) -> Outcomes:
    def followed(texts: Sequence[str]) -> tuple[bool, ...]:
        return tuple(
            any(checker.follows(constraint, text) for text in texts) for constraint in constraints
        )

    return Outcomes(
        ids=tuple(constraint.id for constraint in constraints),
        strict=followed((text,)),
        loose=followed(variants(text)),
    )
