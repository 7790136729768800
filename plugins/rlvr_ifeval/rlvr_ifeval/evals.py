"""Evaluation tasks: IFEval and IFBench with the four accuracies people report, by two rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, ClassVar, get_args

from pydantic import Field

from rlvr_core.api import ComponentConfig, EvalReport, Group, Json, Problem, SamplingParams
from rlvr_ifeval import datasets, verifiers
from rlvr_ifeval.constraint import Bound, Rules
from rlvr_ifeval.loose import variants
from rlvr_ifeval.official_verb import tagger_name

_TAGGED = "words:start_verb"
"""The constraint whose official verdict depends on whether a tagger is installed."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Which of its constraints a response follows, by the rules of judging.

    Attributes:
        ids: Ids of the constraints, in order.
        strict: Whether the response follows each.
        loose: Whether it, or it without its first line, last line or asterisks, does.
    """

    ids: tuple[str, ...]
    strict: Mapping[Rules, tuple[bool, ...]]
    loose: Mapping[Rules, tuple[bool, ...]]


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
        rules: Rules = "official"
        """Which rules the headline follows: ``official``, the benchmark's own script, or
        ``strict-reading``, the instruction's text. Both are reported."""

    n = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        self._known: Known = {}
        self.sampling = SamplingParams(temperature=0.0, max_tokens=config.max_tokens)

    def problems(self) -> list[Problem]:
        """The problems in the order of the file; each says by which rules it is judged."""
        config = self.config
        rows = self.DATASET(
            self.DATASET.Config(path=config.path, revision=config.revision, limit=config.limit)
        )
        return [replace(one, spec={**one.spec, **self._judged_by(one)}) for one in rows.load()]

    def _judged_by(self, problem: Problem) -> dict[str, Json]:
        """What a problem's verdict depends on beside the data, as part of the specification."""
        if _TAGGED in problem.spec["instruction_id_list"]:
            return {"rules": self.config.rules, "tagger": tagger_name()}
        return {"rules": self.config.rules}

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Strict and loose accuracies by both rules, and the strict one of each constraint."""
        config = self.config
        checker = self.DATASET.CHECKER(self.DATASET.CHECKER.Config())
        by = (config.rules, *(rules for rules in get_args(Rules) if rules != config.rules))
        found = report(groups, checker, by, answer_only=config.answer_only, known=self._known)
        tagged = f"strict/{_TAGGED}" in found.metrics
        return replace(found, basis={"tagger": tagger_name()}) if tagged else found


class Ifeval(Benchmark):
    """IFEval, greedy: strict and loose accuracy by prompt and by constraint."""

    DATASET = datasets.Ifeval


class Ifbench(Benchmark):
    """IFBench, greedy: strict and loose accuracy by prompt and by constraint."""

    DATASET = datasets.Ifbench


def report(
    groups: Sequence[Group],
    checker: verifiers.Constraints,
    by: Sequence[Rules],
    *,
    answer_only: bool = False,
    known: Known | None = None,
) -> EvalReport:
    """The four accuracies by each of the rules, and the strict one of each constraint.

    ``prompt_*`` is the share of responses that follow all their constraints, ``instruction_*``
    the share of constraints followed, over all responses. They and ``strict/<id>``, the share of
    one constraint, are by the first rules; the four by other rules carry their name in front:
    ``strict_reading/prompt_strict``. ``accuracy`` is ``prompt_strict``, ``truncated`` the share
    of responses at the token cap, ``length`` the mean number of tokens.

    Args:
        groups: The completions of each problem.
        checker: Reads the problems' constraints.
        by: The rules to judge by, the headline's first.
        answer_only: Whether to judge what comes after ``</think>`` alone.
        known: Outcomes by problem and text, which are looked up here and added to: intervals are
            estimated by reports on many parts of the same groups.
    """
    known = {} if known is None else known
    judged: list[Outcomes] = []
    completions = [one.completion for group in groups for one in group.members]
    for group in groups:
        for one in group.members:
            text = one.completion.text
            text = verifiers.answer_part(text) if answer_only else text
            key = (group.problem.id, text)
            if key not in known:
                known[key] = _judge(checker.constraints(group.problem), text, by)
            judged.append(known[key])
    if not judged:
        return EvalReport(metrics={}, n=0)
    metrics: dict[str, float] = {}
    for rules in by:
        prefix = "" if rules == by[0] else f"{rules.replace('-', '_')}/"
        for name, outcomes in (
            ("strict", [one.strict[rules] for one in judged]),
            ("loose", [one.loose[rules] for one in judged]),
        ):
            metrics[f"{prefix}prompt_{name}"] = fmean(map(all, outcomes))
            metrics[f"{prefix}instruction_{name}"] = fmean(good for row in outcomes for good in row)
    metrics["accuracy"] = metrics["prompt_strict"]
    metrics["truncated"] = fmean(one.finish_reason == "length" for one in completions)
    lengths = [one.n_tokens for one in completions if one.n_tokens is not None]
    if lengths:
        metrics["length"] = fmean(lengths)
    by_id: defaultdict[str, list[bool]] = defaultdict(list)
    for row in judged:
        for id, good in zip(row.ids, row.strict[by[0]], strict=True):
            by_id[id].append(good)
    metrics |= {f"strict/{id}": fmean(by_id[id]) for id in sorted(by_id)}
    return EvalReport(metrics=metrics, n=sum(bool(group.members) for group in groups))


def _judge(constraints: Sequence[Bound], text: str, by: Sequence[Rules]) -> Outcomes:
    def followed(texts: Sequence[str], rules: Rules) -> tuple[bool, ...]:
        return tuple(any(one.follows(text, rules=rules) for text in texts) for one in constraints)

    return Outcomes(
        ids=tuple(one.id for one in constraints),
        strict={rules: followed((text,), rules) for rules in by},
        loose={rules: followed(variants(text), rules) for rules in by},
    )
