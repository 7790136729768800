"""Evaluation tasks: IFEval and IFBench with the four accuracies people report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, ClassVar

from pydantic import Field

from rlvr_core.api import ComponentConfig, EvalReport, Group, Problem, SamplingParams
from rlvr_ifeval import datasets, verifiers
from rlvr_ifeval.constraint import Bound
from rlvr_ifeval.loose import variants


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
        self.sampling = SamplingParams(temperature=0.0, max_tokens=config.max_tokens)

    def problems(self) -> list[Problem]:
        """The problems in the order of the file."""
        config = self.config
        rows = self.DATASET(
            self.DATASET.Config(path=config.path, revision=config.revision, limit=config.limit)
        )
        return list(rows.load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Strict and loose accuracies, by prompt and by constraint."""
        checker = self.DATASET.CHECKER(self.DATASET.CHECKER.Config())
        return report(groups, checker, answer_only=self.config.answer_only)


class Ifeval(Benchmark):
    """IFEval, greedy: strict and loose accuracy by prompt and by constraint."""

    DATASET = datasets.Ifeval


class Ifbench(Benchmark):
    """IFBench, greedy: strict and loose accuracy by prompt and by constraint."""

    DATASET = datasets.Ifbench


def report(
    groups: Sequence[Group], checker: verifiers.Constraints, *, answer_only: bool = False
) -> EvalReport:
    """The four accuracies, and the strict one of each constraint.

    ``prompt_*`` is the share of responses that follow all their constraints, ``instruction_*``
    the share of constraints followed, over all responses. ``accuracy`` is ``prompt_strict``,
    ``strict/<id>`` the share of one constraint, ``truncated`` that of responses at the token cap,
    ``length`` the mean number of tokens.
    """
    strict: list[list[bool]] = []
    loose: list[list[bool]] = []
    by_id: defaultdict[str, list[bool]] = defaultdict(list)
    completions = [one.completion for group in groups for one in group.members]
    for group in groups:
        constraints = checker.constraints(group.problem)
        for one in group.members:
            text = one.completion.text
            text = verifiers.answer_part(text) if answer_only else text
            strict.append(_followed(constraints, (text,)))
            loose.append(_followed(constraints, variants(text)))
            for constraint, good in zip(constraints, strict[-1], strict=True):
                by_id[constraint.id].append(good)
    if not completions:
        return EvalReport(metrics={}, n=0)
    metrics = {
        "accuracy": fmean(map(all, strict)),
        "prompt_strict": fmean(map(all, strict)),
        "instruction_strict": fmean(good for row in strict for good in row),
        "prompt_loose": fmean(map(all, loose)),
        "instruction_loose": fmean(good for row in loose for good in row),
        "truncated": fmean(one.finish_reason == "length" for one in completions),
    }
    lengths = [one.n_tokens for one in completions if one.n_tokens is not None]
    if lengths:
        metrics["length"] = fmean(lengths)
    metrics |= {f"strict/{id}": fmean(by_id[id]) for id in sorted(by_id)}
    return EvalReport(metrics=metrics, n=sum(bool(group.members) for group in groups))


def _followed(constraints: Sequence[Bound], texts: Sequence[str]) -> list[bool]:
    return [any(one.follows(text) for text in texts) for one in constraints]
