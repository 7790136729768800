"""The gate (``rlvr data check``) over reasoning-gym's generators, one row for each.

Fenced generators are measured too, so that the reasons in ``rlvr_gym/fences.py`` are figures. Rows
are written as they are made; ``--out plugins/rlvr_gym/rlvr_gym/gate.json`` is the table that
the tests read, and with ``--levels`` it is ``levels.json`` beside it, by which
levels are fenced.

Examples:
    python benchmarks/gym_gate.py --out gate.json --n 100
    python benchmarks/gym_gate.py --levels --out levels.json --n 100
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rlvr_core.api import Completion, DataError, Problem, Verdict
from rlvr_doctor.datacheck.checks import TagReport, check_problems
from rlvr_doctor.datacheck.judging import Judge
from rlvr_gym.datasets import Tasks
from rlvr_gym.entries import category, curriculum, names
from rlvr_gym.fences import FENCED, MIXTURE, NOT_REPEATED
from rlvr_gym.verifiers import Answer

HASH_SEEDS = ("1", "2")
FOR_MARKS = 10
"""Problems of a generator that are made again in other processes."""


def problems(task: str, n: int, level: int | None) -> tuple[list[Problem], str]:
    """Make problems of a generator: as many as it can where it cannot make ``n``."""
    levels = () if level is None else (level,)
    if FENCED.get(task) == NOT_REPEATED:
        return [], NOT_REPEATED
    while n:
        try:
            config = Tasks.Config(tasks=(task,), n=n, levels=levels, allow_fenced=True)
            return list(Tasks(config).load()), ""
        except DataError as error:
            if "different problems" not in str(error):
                return [], str(error.complaints[0].what)
            n //= 2
    return [], "it makes no problems"


def marks(tasks: list[str]) -> dict[str, str]:
    """Hash the first problems of generators: ids depend on questions and references."""
    found = {}
    for task in tasks:
        ids = [one.id for one in problems(task, FOR_MARKS, None)[0]]
        found[task] = hashlib.sha256(" ".join(ids).encode()).hexdigest()
    return found


def unstable(tasks: list[str]) -> set[str]:
    """Return the generators that make other problems in processes with other hash seeds."""
    runs = []
    for seed in HASH_SEEDS:
        done = subprocess.run(
            [sys.executable, __file__, "--marks", *tasks],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {task for task in tasks if len({run[task] for run in runs}) > 1}


def row(task: str, level: int | None, tag: TagReport | None, why: str) -> dict[str, Any]:
    """What is known of a generator, as JSON."""
    found: dict[str, Any] = {
        "task": task,
        "category": category(task),
        "parameters": sorted(curriculum(task)),
        "level": level,
        "faults": [why] if why else [],
    }
    if tag is None:
        return found
    found |= {
        "n": tag.n,
        "references": [tag.references.passed, tag.references.n],
        "corrupted": [tag.corrupted.passed, tag.corrupted.n, tag.corrupted.what],
        "blind": [tag.blind.passed, tag.blind.n, tag.blind.what],
        "shuffled": [tag.shuffled.passed, tag.shuffled.n],
    }
    found["faults"] += [f"{fault.id}: {fault.text}" for fault in tag.faults]
    return found


class Here(Judge):
    """Judges in this process: nothing that ``gym/answer`` is shown can last or is run."""

    answer = Answer(Answer.Config())

    def open(self, problems: Iterable[Problem]) -> None:
        """Check the problems."""
        for problem in problems:
            self.answer.check(problem)

    def gold(self, problem: Problem) -> str | None:
        """Return the reference."""
        return self.answer.gold(problem)

    def verdicts(self, problem: Problem, responses: Sequence[str]) -> Future[list[Verdict]]:
        """Judge at once."""
        found: Future[list[Verdict]] = Future()
        completions = map(Completion.from_text, responses)
        found.set_result([self.answer.verify(problem, one) for one in completions])
        return found


def measured(task: str, n: int, level: int | None) -> dict[str, Any]:
    """Check a generator at its default options or at a level."""
    made, why = problems(task, n, level)
    if not made:
        return row(task, level, None, why)
    report = check_problems("gym/tasks", made, Here(), by=("task",), per_tag=n)
    found = row(task, level, report.tags[0], why)
    found["faults"] += [f"{fault.id}: {fault.text}" for fault in report.faults]
    return found


def write(rows: list[dict[str, Any]], path: Path | None) -> None:
    """Write the rows that there are, to a file or to standard output."""
    text = "[\n" + ",\n".join(json.dumps(one, default=str) for one in rows) + "\n]\n"
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--tasks", default="", help="names with commas; all if empty")
    parser.add_argument("--levels", action="store_true", help="each level of open generators")
    parser.add_argument("--marks", nargs="*")
    asked = parser.parse_args()
    if asked.marks is not None:
        sys.stdout.write("\n" + json.dumps(marks(asked.marks)) + "\n")
        return 0
    tasks = asked.tasks.split(",") if asked.tasks else [one for one in names() if one != MIXTURE]
    cases: list[tuple[str, int | None]] = [(task, None) for task in tasks]
    if asked.levels:
        levels = {task: max(map(len, curriculum(task).values()), default=0) for task in tasks}
        cases = [(task, at) for task in tasks if task not in FENCED for at in range(levels[task])]
    rows: list[dict[str, Any]] = []
    for task, level in cases:
        rows.append(measured(task, asked.n, level))
        write(rows, asked.out)
    if not asked.levels:
        differs = unstable(tasks)
        for one in rows:
            if one["task"] in differs:
                one["faults"].append("stable: other processes make other problems")
        write(rows, asked.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
