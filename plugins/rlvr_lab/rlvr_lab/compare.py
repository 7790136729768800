"""Compares two evaluations of the same problems, problem by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from rlvr_core.api import ConfigError, Estimate, Json
from rlvr_core.eval.store import Row, read_results
from rlvr_core.eval.summary import group_by_problem
from rlvr_core.stats.estimates import estimate
from rlvr_core.stats.significance import holm, paired_difference, sign_flip_p
from rlvr_lab.comparable import other_differences, refuse_spoilt, refuse_unlike


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes from one evaluation to another.

    Attributes:
        task: Full name of the task.
        n: Number of problems with an outcome in both.
        left_out: Number of problems without an outcome in one of them.
        before: Accuracy of the first on those ``n`` problems.
        after: Accuracy of the second on the same problems.
        difference: Change in accuracy, with a paired interval.
        score_difference: Change in the mean score, likewise.
        gained: Ids of problems that failed and now pass; with several completions per problem,
            those whose pass rate rose.
        lost: Ids of problems that changed the other way.
        p: Exact p-value of the change in accuracy, by flipping signs; None without problems.
        p_holm: The same, adjusted for the number of tasks that are compared.
        truncated: Share of answers that were cut off at the token cap, in each.
        beside: Other differences: allowed ones, engine, versions, tokenizer, model.
    """

    task: str
    n: int
    left_out: int
    before: Estimate
    after: Estimate
    difference: Estimate
    score_difference: Estimate
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    p: float | None
    p_holm: float | None
    truncated: tuple[float, float]
    beside: tuple[str, ...]

    def data(self) -> dict[str, Json]:
        """Return the comparison as JSON."""
        return {
            "task": self.task,
            "n": self.n,
            "left_out": self.left_out,
            "before": self.before.data(),
            "after": self.after.data(),
            "difference": self.difference.data(),
            "score_difference": self.score_difference.data(),
            "gained": list(self.gained),
            "lost": list(self.lost),
            "p": self.p,
            "p_holm": self.p_holm,
            "truncated": list(self.truncated),
            "differs": list(self.beside),
        }


def compare(before: Path, after: Path, allow: Sequence[str] = ()) -> list[Comparison]:
    """Compare two result folders, task by task.

    Args:
        before: A folder that ``rlvr eval`` wrote, or that of one task in it.
        after: The folder to compare with.
        allow: Parts of the specifications that may differ: see ``MAY_DIFFER``.

    Raises:
        ConfigError: If a folder holds no results, the tasks or specifications differ (names the
            differences), or too many answers were cut off.
        DataError: If results are incomplete.
    """
    first, second = task_folders(before), task_folders(after)
    if len(first) == len(second) == 1:  # the specifications decide whether it is the same task
        second = dict(zip(first, second.values(), strict=True))
    if first.keys() != second.keys():
        held = (", ".join(sorted(path.name for path in one.values())) for one in (first, second))
        raise ConfigError(
            f"the folders hold different tasks: {' and '.join(held)}",
            remedy="name the folders of one task in each",
        )
    pairs = [(read_results(first[name]), read_results(second[name])) for name in first]
    refuse_unlike([(one[0], other[0]) for one, other in pairs], allow)
    refuse_spoilt(
        [
            (folders[name], results[0], _truncated(results))
            for name, pair in zip(first, pairs, strict=True)
            for folders, results in zip((first, second), pair, strict=True)
        ]
    )
    comparisons = [_compare(one, other) for one, other in pairs]
    adjusted = holm([one.p for one in comparisons])
    return [replace(one, p_holm=p) for one, p in zip(comparisons, adjusted, strict=True)]


def task_folders(folder: Path) -> dict[str, Path]:
    """Return the folder of each task in a result folder, by task name; or the folder itself.

    Raises:
        ConfigError: If it contains no results.
    """
    if (folder / "spec.json").is_file():
        return {"": folder}
    folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/spec.json"))}
    if not folders:
        raise ConfigError(
            f"'{folder}' holds no results",
            remedy="give a folder that rlvr eval or rlvr passk wrote (--out)",
        )
    return folders


Results = tuple[Row, list[Row], list[Row]]


def _compare(before: Results, after: Results) -> Comparison:
    first, second = (_means(results[2], "passed") for results in (before, after))
    both = [id_ for id_ in first if id_ in second]
    gained = tuple(id_ for id_ in both if second[id_] > first[id_])
    lost = tuple(id_ for id_ in both if second[id_] < first[id_])
    completions = before[0]["spec"]["n"]  # the same in the other: specifications agree in it
    changes = [round((second[id_] - first[id_]) * completions) for id_ in both]
    return Comparison(
        task=before[0]["spec"]["task"],
        n=len(both),
        left_out=len(before[1]) - len(both),
        before=estimate([first[id_] for id_ in both]),
        after=estimate([second[id_] for id_ in both]),
        difference=_difference(first, second),
        score_difference=_difference(*(_means(results[2], "score") for results in (before, after))),
        gained=gained,
        lost=lost,
        p=sign_flip_p(changes) if both else None,
        p_holm=None,
        truncated=(_truncated(before), _truncated(after)),
        beside=other_differences(before[0], after[0]),
    )


def _truncated(results: Results) -> float:
    return fmean(bool(row.get("truncated")) for row in results[2])


def _means(results: Sequence[Row], key: str) -> dict[str, float]:
    """Average over each problem's completions, for problems where all of them have the value."""
    means = {}
    for id_, rows in group_by_problem(results).items():
        values = [row[key] for row in rows]
        if None not in values:
            means[id_] = fmean(map(float, values))
    return means


def _difference(first: dict[str, float], second: dict[str, float]) -> Estimate:
    both = [id_ for id_ in first if id_ in second]
    return paired_difference([first[id_] for id_ in both], [second[id_] for id_ in both])
