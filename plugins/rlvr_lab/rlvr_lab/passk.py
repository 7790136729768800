"""``rlvr passk``: many samples per problem, unbiased pass@k, and the difficulty of each problem."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError, Json
from rlvr_core.eval.evaluate import finish_summary, sample
from rlvr_core.eval.spec import Spec
from rlvr_core.eval.store import Row, Store, read_results, slug
from rlvr_core.eval.summary import group_by_problem, usage_of
from rlvr_core.record.files import write_atomic
from rlvr_core.record.jsonl import encode, read_jsonl
from rlvr_core.stats.estimates import estimate

if TYPE_CHECKING:
    from rlvr_core.eval.session import Session


def run(session: Session, out: Path, say: Callable[[str], None]) -> list[Path]:
    """Sample every task's problems; return the folder of each task's results.

    Raises:
        RunError: If the engine fails or answers are missing.
    """
    stores = {
        task.name: Store(
            out / slug(task.name),
            task.spec,
            task.problems,
            session.beside_task(task),
            tokens=False,
        )
        for task in session.tasks
    }
    sample(session, stores, say)
    return [store.folder for store in stores.values()]


def summarise(folder: Path, ks: Sequence[int]) -> Row:
    """Compute pass@k with intervals, and the difficulty of each problem, from a results folder.

    Writes ``difficulty.jsonl`` and ``summary.json`` into the same folder.

    Raises:
        ConfigError: If a ``k`` is larger than the number of completions.
        DataError: If results are missing.
    """
    head, problems, results = read_results(folder)
    spec = Spec(head["spec"])
    check_ks(ks, spec.n)
    difficulty = _difficulty(problems, results)
    write_atomic(folder / "difficulty.jsonl", b"".join(map(encode, difficulty)))
    numbers: Row = {
        "n_problems": len(problems),
        "truncation_rate": fmean([row["truncated"] for row in results] or [0]),
        "pass_at_k": {str(k): _pass_at(k, difficulty) for k in ks},
        "solved_never": sum(0 == row["correct"] < row["n"] for row in difficulty),
        "solved_always": sum(0 < row["n"] == row["correct"] for row in difficulty),
        **usage_of(results),
    }
    return finish_summary(folder, head, numbers)


def check_ks(ks: Sequence[int], n: int) -> None:
    """Refuse a ``k`` that cannot be estimated from ``n`` completions.

    Raises:
        ConfigError: If there is one; names it.
    """
    bad = [k for k in ks if not 1 <= k <= n]
    if bad:
        raise ConfigError(
            f"pass@{bad[0]} cannot be estimated from {n} completions per problem",
            where="--k",
            remedy="each k is at least 1 and at most --n",
        )


def _difficulty(problems: Sequence[Row], results: Sequence[Row]) -> list[Row]:
    by_problem = group_by_problem(results)
    table = []
    for problem in problems:
        rows = by_problem[problem["id"]]
        known = [row["passed"] for row in rows if row["passed"] is not None]
        scores = [row["score"] for row in rows if row["score"] is not None]
        table.append(
            {
                **{key: value for key, value in problem.items() if key != "prompt"},
                "n": len(known),
                "correct": sum(known),
                "pass_rate": fmean(known) if known else None,
                "mean_score": fmean(scores) if scores else None,
                "truncated": fmean(row["truncated"] for row in rows),
            }
        )
    return table


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the chance that at least one of ``k`` of ``n`` completions is correct.

    The ``k`` completions are drawn without replacement: 1 - C(n - c, k) / C(n, k), Chen et al.
    2021, arXiv:2107.03374.

    Raises:
        ValueError: If ``k`` is not between 1 and ``n``.
    """
    if not 1 <= k <= n or not 0 <= correct <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {correct} of {n} completions")
    return float(1 - Fraction(math.comb(n - correct, k), math.comb(n, k)))


def _pass_at(k: int, difficulty: Sequence[Row]) -> dict[str, Json]:
    """Average pass@k over problems with at least ``k`` judged completions; count the others."""
    known = [(row["n"], row["correct"]) for row in difficulty if row["n"] >= k]
    values = [pass_at_k(n, correct, k) for n, correct in known]
    return estimate(values).data() | {"left_out": len(difficulty) - len(values)}


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


def write_sft(path: Path, folders: Sequence[Path]) -> tuple[int, Counter[str]]:
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
            if not judged["passed"] or judged["truncated"] or text in texts:
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
