"""The results folder of one task: one line per problem and sample, robust to kills.

Layout::

    spec.json          the frozen specification, its hash, the model and the engine
    problems.jsonl     id, data set, tags and prompt of each problem, in order
    completions.jsonl  the model's completions
    results.jsonl      the verdicts on them
    summary.json       the numbers, written last

A problem is finished once all its samples are in both files. Partial results left by a kill are
removed when the folder is reopened, so that no problem can occur twice.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rlvr_core.api import (
    Completion,
    ConfigError,
    DataError,
    Group,
    Json,
    Judged,
    Problem,
    Transcript,
    Usage,
    Verdict,
)
from rlvr_core.eval.spec import Spec, ids_hash, other_evaluation
from rlvr_core.record.files import lock_folder, write_atomic, write_failed
from rlvr_core.record.jsonl import Stream, encode, read_jsonl
from rlvr_core.record.rows import transcript_row, usage_row, verdict_row

Row = dict[str, Any]
_ANSWERS = ("completions.jsonl", "results.jsonl")


class Store:
    """One task's results, open for writing; one process at a time.

    Args:
        folder: The folder; created if missing.
        spec: The specification of the evaluation.
        problems: The problems that this process evaluates, in order.
        beside: Model, engine and versions, for the record.
        tokens: Whether to store token ids and log-probs of completions.

    Raises:
        ConfigError: If the folder holds results of another specification or model.
        RunError: If another process writes to it, or it cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        spec: Spec,
        problems: Sequence[Problem],
        beside: Mapping[str, Json],
        *,
        tokens: bool = True,
    ) -> None:
        self.folder, self.spec, self.problems = folder, spec, problems
        self._tokens = tokens
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_failed(error, folder) from error
        self._locked = lock_folder(folder, "wait for it, or give another --out")
        self._open_spec(dict(beside))
        self.finished = self._compact()
        self._completions, self._results = (
            Stream(folder / name, segment_bytes=None) for name in _ANSWERS
        )

    @property
    def pending(self) -> list[tuple[int, Problem]]:
        """Return position and problem of each problem without results."""
        return [
            (position, problem)
            for position, problem in enumerate(self.problems)
            if problem.id not in self.finished
        ]

    def write(self, problem: Problem, prompt: str, members: Sequence[Judged]) -> None:
        """Write all samples of a problem; thread-safe."""
        with self._lock:
            for sample, member in enumerate(members):
                key: Row = {"spec": self.spec.short, "problem_id": problem.id, "sample": sample}
                row = _completion_row(member, prompt, tokens=self._tokens)
                self._completions.write(key | row)
                self._results.write(key | _result_row(member, problem))
            self.finished.add(problem.id)

    def close(self) -> None:
        """Flush everything, and sort the lines in the order of the problems.

        Raises:
            RunError: If it cannot be written.
        """
        for stream in (self._completions, self._results):
            stream.sync()
            stream.close()
        self._compact()
        os.close(self._locked)

    def groups(self) -> Iterator[Group]:
        """Yield the judged group of each finished problem, in order, read back from disk."""
        by_id = {problem.id: problem for problem in self.problems}
        for completions, judged in paired(self.folder):
            problem = by_id[completions[0]["problem_id"]]
            members = tuple(map(_member, completions, judged))
            yield Group(problem, members, 0)

    def _open_spec(self, beside: Row) -> None:
        path = self.folder / "spec.json"
        if path.exists():
            old = read_spec(self.folder)
            faults = other_evaluation(old, {"spec": self.spec.content, "model": beside["model"]})
            results = self.folder / "results.jsonl"
            if faults and results.exists() and results.stat().st_size:
                raise ConfigError(
                    "the folder holds results of another evaluation",
                    where=str(self.folder),
                    remedy=(*faults, "give another --out, or delete the folder"),
                )
        rows = map(_problem_row, self.problems)
        write_atomic(self.folder / "problems.jsonl", b"".join(map(encode, rows)))
        head = {"spec": self.spec.content, "hash": self.spec.hash, **beside}
        write_atomic(path, json.dumps(head, indent=1, ensure_ascii=False) + "\n")

    def _compact(self) -> set[str]:
        """Keep only finished problems, each sample once, in order; return their ids."""
        whole = set(range(self.spec.n))
        files = {path: self._lines(path) for path in map(self.folder.joinpath, _ANSWERS)}
        done = [
            problem.id
            for problem in self.problems
            if all(lines.get(problem.id, {}).keys() == whole for lines in files.values())
        ]
        for path, lines in files.items():
            content = b"".join(lines[id_][sample] for id_ in done for sample in range(self.spec.n))
            if not path.exists() or path.read_bytes() != content:
                write_atomic(path, content)
        return set(done)

    def _lines(self, path: Path) -> dict[str, dict[int, bytes]]:
        """Return the lines of each problem's samples; of duplicates, the last one."""
        lines: dict[str, dict[int, bytes]] = {}
        if not path.exists():
            return lines
        mine = {problem.id for problem in self.problems}
        with path.open("rb") as file:
            for raw in file:
                row = _parse(raw)
                if row and row.get("spec") == self.spec.short and row.get("problem_id") in mine:
                    lines.setdefault(row["problem_id"], {})[row["sample"]] = raw
        return lines


def _parse(raw: bytes) -> Row | None:
    try:
        row = json.loads(raw) if raw.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def slug(task: str) -> str:
    """Return a folder name for a task: ``math/gsm8k-test`` becomes ``math_gsm8k-test``."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", task)


def read_spec(folder: Path) -> Row:
    """Read ``spec.json``.

    Raises:
        ConfigError: If it is missing or unreadable.
    """
    path = folder / "spec.json"
    try:
        head: Row = json.loads(path.read_text(encoding="utf-8"))
        if not {"spec", "hash", "model"} <= head.keys():
            raise ValueError("it is no specification of an evaluation")
        if Spec(head["spec"]).hash != head["hash"]:
            raise ValueError("its hash does not fit its content")
    except FileNotFoundError:
        raise ConfigError(
            f"'{folder}' holds no results: it has no spec.json",
            remedy="give a folder that rlvr eval or rlvr passk wrote",
        ) from None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"spec.json cannot be used: {error}", where=str(path)) from error
    return head


def read_results(folder: Path) -> tuple[Row, list[Row], list[Row]]:
    """Return content of ``spec.json``, problems and results of a finished evaluation.

    Raises:
        ConfigError: If there is no evaluation.
        DataError: If results are missing or surplus: the ids must be those of the data set.
    """
    head = read_spec(folder)
    spec = Spec(head["spec"])
    problems = list(read_jsonl(folder / "problems.jsonl"))
    results = list(read_jsonl(folder / "results.jsonl"))
    ids = [problem["id"] for problem in problems]
    expected = [(id_, sample) for id_ in ids for sample in range(spec.n)]
    present = [(row["problem_id"], row["sample"]) for row in results]
    if present != expected or ids_hash(ids) != spec.content["problems"]["ids"]:
        count = spec.content["problems"]["n"]
        missing = sorted({id_ for id_, _ in set(expected) - set(present)})
        raise DataError(
            f"the results are not those of exactly the task's {count} problems",
            where=str(folder / "results.jsonl"),
            remedy=(
                f"without results: {', '.join(missing[:3])}, {len(missing)} in all"
                if missing
                else "",
                "run the command that wrote them again: it goes on where it stopped",
            ),
        )
    return head, problems, results


def paired(folder: Path) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield completions and their results, problem by problem."""
    completions, results = (
        (list(rows) for _, rows in groupby(read_jsonl(folder / name), itemgetter("problem_id")))
        for name in _ANSWERS
    )
    return zip(completions, results, strict=True)


def _problem_row(problem: Problem) -> Row:
    """Return the row of a problem, with its unrendered prompt."""
    prompt: Json = problem.prompt
    if not isinstance(prompt, str):
        prompt = [{"role": turn.role, "content": turn.content} for turn in prompt]
    return {
        "id": problem.id,
        "dataset": problem.dataset,
        "tags": dict(problem.tags),
        "prompt": prompt,
        **({"tools": list(problem.tools)} if problem.tools else {}),
    }


def _completion_row(member: Judged, prompt: str, *, tokens: bool) -> Row:
    completion = member.completion
    row: Row = {
        "prompt": prompt,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "n_tokens": completion.n_tokens,
        **transcript_row(completion),
    }
    if tokens:
        row["prompt_ids"] = list(completion.prompt_ids)
        row["token_ids"] = list(completion.token_ids)
        row["logprobs"] = list(completion.logprobs)
    return row


def _result_row(member: Judged, problem: Problem) -> Row:
    return {
        "score": member.reward,
        "passed": member.passed,
        "truncated": member.completion.finish_reason == "length",
        "n_tokens": member.completion.n_tokens,
        **usage_row(member.completion.usage),
        "verdicts": {name: verdict_row(verdict) for name, verdict in member.verdicts.items()},
        "tags": dict(problem.tags),
    }


def _member(sampled: Row, judged: Row) -> Judged:
    ids = tuple(sampled["token_ids"])
    transcript = Transcript.from_json(sampled["transcript"]) if "transcript" in sampled else None
    completion = Completion(
        prompt_ids=tuple(sampled["prompt_ids"]),
        token_ids=ids,
        # a non-finite number, which no sampled token should have, is stored as null
        logprobs=tuple(float("nan") if p is None else p for p in sampled["logprobs"]),
        loss_mask=(True,) * len(ids) if transcript is None else transcript.loss_mask(len(ids)),
        text=sampled["text"],
        finish_reason=sampled["finish_reason"],
        usage=Usage(**judged["usage"]) if "usage" in judged else None,
        transcript=transcript,
    )
    verdicts = {name: Verdict.from_json(fields) for name, fields in judged["verdicts"].items()}
    return Judged(completion, verdicts, judged["score"], judged["passed"])
