"""``rlvr passk``: many samples per problem, unbiased pass@k, and the difficulty of each problem."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint, ConfigError, DataError, Json
from rlvr_core.api.services import encode, read_jsonl, write_atomic
from rlvr_core.builtin.evals.evaluate import head_of_summary, mark_truncation, sample, write_summary
from rlvr_core.builtin.evals.judging import judged_apart, keep_judging, read_judging
from rlvr_core.builtin.evals.made_by import merge_makers
from rlvr_core.builtin.evals.plain_figures import check_pass_at_k
from rlvr_core.builtin.evals.spec import Spec, ids_hash, other_evaluation
from rlvr_core.builtin.evals.stats import estimate, pass_at_k
from rlvr_core.builtin.evals.store import Row, Store, read_results, read_spec, slug
from rlvr_core.builtin.evals.summary import group_by_problem, usage_of

if TYPE_CHECKING:
    from rlvr_core.builtin.evals.session import Session


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of the problems: every ``of``-th problem, starting at number ``index``."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse a shard such as ``0/4``.

        Raises:
            ConfigError: If it is malformed.
        """
        index, slash, of = text.partition("/")
        if not slash or not index.isdecimal() or not of.isdecimal() or int(index) >= int(of):
            raise ConfigError(
                f"'{text}' is not a shard", where="--shard", remedy="0/4, 1/4, 2/4, 3/4 are four"
            )
        return cls(int(index), int(of))

    @property
    def folder(self) -> str:
        """Name of the shard's folder."""
        return f"shard-{self.index}-of-{self.of}"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule by which a completion counts as correct.

    Attributes:
        threshold: Lowest score that is correct; None to use the verifier's own pass or fail.
    """

    threshold: float | None = None

    def correct(self, row: Row) -> bool | None:
        """Whether a result counts as correct; None if it has no verdict."""
        if self.threshold is None:
            passed: bool | None = row["passed"]
            return passed
        return None if row["score"] is None else row["score"] >= self.threshold

    @property
    def text(self) -> str:
        """Return the rule in words."""
        return "passed" if self.threshold is None else f"score >= {self.threshold:g}"


def run(session: Session, out: Path, shard: Shard | None, say: Callable[[str], None]) -> list[Path]:
    """Sample every task's problems, or a shard of them; return the folder of each task's results.

    Raises:
        ConfigError: If there are more shards than problems.
        RunError: If the engine fails or answers are missing.
    """
    small = [task.name for task in session.tasks if shard and len(task.problems) < shard.of]
    if small:
        raise ConfigError(
            f"{', '.join(small)} has fewer problems than there are shards, which leaves no problem "
            f"for some",
            where="--shard",
            remedy="make fewer shards",
        )
    stores = {}
    for task in session.tasks:
        problems = task.problems if shard is None else task.problems[shard.index :: shard.of]
        folder = out / slug(task.name)
        beside = session.beside_task(task)
        if shard is not None:
            folder = folder / shard.folder
            beside["shard"] = f"{shard.index}/{shard.of}"
        stores[task.name] = Store(folder, task.spec, problems, beside, tokens=False)
    sample(session, stores, say)
    return [store.folder for store in stores.values()]


def merge(sources: Sequence[Path], out: Path, *, allow_truncation: bool) -> list[Path]:
    """Merge the shards of one or several tasks.

    Args:
        sources: Folders that contain ``shard-…`` folders at any depth.
        out: Folder for the merged results, with one folder per task.
        allow_truncation: Accept answers truncated at the cap, even if the shards do not.

    Returns:
        The folder of each task.

    Raises:
        ConfigError: If there are no shards, they do not match, or some are missing.
        DataError: If a shard is not finished.
    """
    gone = [str(source) for source in sources if not source.is_dir()]
    if gone:
        raise ConfigError(f"'{gone[0]}' is no folder")
    shards = sorted({path.parent for s in sources for path in s.glob("**/shard-*-of-*/spec.json")})
    shards += [s for s in sources if (s / "spec.json").is_file() and s not in shards]
    if not shards:
        raise ConfigError(f"there are no shards in {', '.join(map(str, sources))}")
    by_task: dict[str, list[Path]] = {}
    for folder in shards:
        by_task.setdefault(folder.parent.name, []).append(folder)
    return [_merge(folders, out / task, allow_truncation) for task, folders in by_task.items()]


def _merge(shards: Sequence[Path], out: Path, allow_truncation: bool) -> Path:
    heads = [read_spec(folder) for folder in shards]
    faults = [
        f"{shards[0]} and {folder}: {line}"
        for folder, head in zip(shards, heads, strict=True)
        for line in (
            *other_evaluation(heads[0], head),
            *judged_apart(read_judging(shards[0]), read_judging(folder)),
        )
    ]
    _leave_alone(out, heads[0])
    labels = [str(head.get("shard")) for head in heads]
    of = labels[0].partition("/")[2]
    expected = [f"{index}/{of}" for index in range(int(of or 0))]
    if faults or sorted(labels) != sorted(expected):
        faults += [f"missing: shard {label}" for label in expected if label not in labels]
        faults += [
            f"twice: shard {repeated}"
            for repeated in sorted(set(labels))
            if labels.count(repeated) > 1
        ]
        faults += [] if faults else [f"not the shards of one evaluation: {', '.join(labels)}"]
        raise ConfigError.collect([Complaint("the shards do not add up", str(out), tuple(faults))])
    order = [labels.index(label) for label in expected]
    parts = [read_results(shards[index]) for index in order]
    ids = _interleave([[problem["id"] for problem in part[1]] for part in parts])
    spec = Spec(heads[0]["spec"])
    if ids_hash(ids) != spec.content["problems"]["ids"]:
        raise DataError("the shards together are not the task's problems", where=str(out))
    out.mkdir(parents=True, exist_ok=True)
    for name in ("problems", "completions", "results"):
        key = "id" if name == "problems" else "problem_id"
        rows: dict[str, list[Row]] = {}
        for index in order:
            for row in read_jsonl(shards[index] / f"{name}.jsonl"):
                rows.setdefault(row[key], []).append(row)
        write_atomic(out / f"{name}.jsonl", b"".join(encode(r) for id_ in ids for r in rows[id_]))
    head = {key: value for key, value in heads[order[0]].items() if key != "shard"}
    head["merged"] = len(shards)
    head["max_truncated"] = 1.0 if allow_truncation else min(h["max_truncated"] for h in heads)
    write_atomic(out / "spec.json", json.dumps(head, indent=1, ensure_ascii=False) + "\n")
    keep_judging(out, read_judging(shards[order[0]]), begun=False)
    merge_makers([shards[index] for index in order], out)
    return out


def _leave_alone(out: Path, head: Row) -> None:
    """Refuse a folder with other content, which merging would overwrite."""
    if (out / "spec.json").is_file():
        faults = other_evaluation(read_spec(out), head)
        if faults:
            complaint = Complaint(
                "the folder holds results of another evaluation",
                str(out),
                (*faults, "give another --out"),
            )
            raise ConfigError.collect([complaint])


def _interleave(parts: Sequence[Sequence[str]]) -> list[str]:
    """Interleave the shards' problems back into their original order."""
    total = sum(map(len, parts))
    return [parts[i % len(parts)][i // len(parts)] for i in range(total)]


def summarise(folder: Path, ks: Sequence[int], rule: Rule) -> Row:
    """Compute pass@k with intervals, and the difficulty of each problem, from a results folder.

    Writes ``difficulty.jsonl`` and ``summary.json`` into the same folder.

    Raises:
        ConfigError: If a ``k`` is larger than the number of completions.
        DataError: If results are missing.
    """
    head, problems, results = read_results(folder)
    spec = Spec(head["spec"])
    check_ks(ks, spec.n)
    difficulty = _difficulty(problems, results, rule)
    write_atomic(folder / "difficulty.jsonl", b"".join(map(encode, difficulty)))
    summary: Row = head_of_summary(head) | {
        "correct": rule.text,
        "n_problems": len(problems),
        "shard": head.get("shard"),
        "truncation_rate": fmean([row["truncated"] for row in results] or [0]),
        "pass_at_k": {str(k): _pass_at(k, difficulty) for k in ks},
        "solved_never": sum(0 == row["correct"] < row["n"] for row in difficulty),
        "solved_always": sum(0 < row["n"] == row["correct"] for row in difficulty),
        **usage_of(results),
    }
    mark_truncation(summary, head)
    check_pass_at_k(summary["pass_at_k"], results, rule.correct)
    write_summary(folder, summary)
    return summary


def check_ks(ks: Sequence[int], n: int) -> None:
    """Refuse a ``k`` that cannot be estimated from ``n`` completions.

    Raises:
        ConfigError: If there is one; names it.
    """
    bad = [k for k in ks if not 1 <= k <= n]
    if bad:
        raise ConfigError(
            f"pass@{bad[0]} cannot be told from {n} completions per problem",
            where="--k",
            remedy="each k is at least 1 and at most --n",
        )


def _difficulty(problems: Sequence[Row], results: Sequence[Row], rule: Rule) -> list[Row]:
    by_problem = group_by_problem(results)
    found = []
    for problem in problems:
        rows = by_problem[problem["id"]]
        known = [one for row in rows if (one := rule.correct(row)) is not None]
        scores = [row["score"] for row in rows if row["score"] is not None]
        found.append(
            {
                **{key: value for key, value in problem.items() if key != "prompt"},
                "n": len(known),
                "correct": sum(known),
                "pass_rate": fmean(known) if known else None,
                "mean_score": fmean(scores) if scores else None,
                "truncated": fmean(row["truncated"] for row in rows),
            }
        )
    return found


def _pass_at(k: int, difficulty: Sequence[Row]) -> dict[str, Json]:
    """Average pass@k over problems with at least ``k`` judged completions; count the others."""
    known = [(row["n"], row["correct"]) for row in difficulty if row["n"] >= k]
    values = [pass_at_k(n, correct, k) for n, correct in known]
    # of k completions alone pass@k is an outcome, like that of one
    counts = [n - k + 1 for n, _ in known]
    return estimate(values, counts).data() | {"left_out": len(difficulty) - len(values)}


def write_curriculum(path: Path, folders: Sequence[Path], low: float, high: float) -> int:
    """Write the ids of problems with a pass rate in [low, high], easiest first, one per line.

    Returns:
        The number of ids written.

    Raises:
        RunError: If the file cannot be written.
    """
    rows = [row for folder in folders for row in read_jsonl(folder / "difficulty.jsonl")]
    selected = [r for r in rows if r["pass_rate"] is not None and low <= r["pass_rate"] <= high]
    selected.sort(key=lambda row: -row["pass_rate"])
    write_atomic(path, "".join(f"{row['id']}\n" for row in selected))
    return len(selected)


def write_sft(path: Path, folders: Sequence[Path], rule: Rule) -> tuple[int, Counter[str]]:
    """Write every distinct correct completion with its problem's prompt, one object per line.

    The rows are what ``core/jsonl`` reads as the answers of ``core/sft``: the prompt is that of the
    data set, which the run renders as the evaluation did, and every row has an id of its own.

    Returns:
        The number of completions written, and the numbers left out by reason: a row holds one
        answer to one prompt, without tools.

    Raises:
        RunError: If the file cannot be written.
    """
    lines: list[bytes] = []
    left_out: Counter[str] = Counter()
    for folder in folders:
        problems = {row["id"]: row for row in read_jsonl(folder / "problems.jsonl")}
        results = read_jsonl(folder / "results.jsonl")
        seen: dict[str, set[str]] = {}
        for sampled, judged in zip(read_jsonl(folder / "completions.jsonl"), results, strict=True):
            id_, text = sampled["problem_id"], sampled["text"]
            texts = seen.setdefault(id_, set())
            if not rule.correct(judged) or judged["truncated"] or text in texts:
                continue
            if "transcript" in sampled:
                left_out["conversations of several turns"] += 1
                continue
            if "tools" in problems[id_] or not text:
                left_out["answers to prompts with tools" if text else "empty answers"] += 1
                continue
            texts.add(text)
            prompt = problems[id_]["prompt"]
            row = {"id": f"{id_}#{len(texts)}", "problem_id": id_, "prompt": prompt}
            lines.append(encode({**row, "completion": text}))
    write_atomic(path, b"".join(lines))
    return len(lines), left_out
