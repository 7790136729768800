"""Reads the completions that a run or an evaluation stored, with the problems they answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import Completion, ConfigError, DataError, Problem, Transcript
from rlvr_core.config.model import ComponentRef
from rlvr_core.config.resolve import build, resolve_file
from rlvr_core.eval.spec import ids_hash
from rlvr_core.eval.store import Row, read_results, read_spec
from rlvr_core.record.find import find_run
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.view import RunView
from rlvr_core.verify.reward import Term

if TYPE_CHECKING:
    from rlvr_core.plugins.host import Host


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The stored completions of one problem.

    Attributes:
        problem_id: Id of the problem.
        step: Step of the run; 0 in an evaluation.
        completions: The completions, as passed to a verifier.
        rows: The stored rows: ``verdicts``, ``reward``, ``passed``.
    """

    problem_id: str
    step: int
    completions: tuple[Completion, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A source of stored completions.

    Attributes:
        path: Folder of the run, or of one task's results.
        problems: The problems by id.
        terms: The weight of each reward, the deciding verifier's first.
        is_run: Whether it is a run.
    """

    path: Path
    problems: dict[str, Problem]
    terms: tuple[Term, ...]
    is_run: bool

    def groups(self) -> Iterator[StoredGroup]:
        """Yield every group in stored order, reading lazily.

        Raises:
            DataError: If there are none, or the data no longer contains the problem of one.
        """
        groups = self._of_run() if self.is_run else self._of_results()
        empty = True
        for group in groups:
            empty = False
            if group.problem_id not in self.problems:
                raise DataError(
                    f"'{self.path}' holds completions of '{group.problem_id}', which is not in the "
                    f"data it names",
                    remedy="the data have changed; put the old ones back",
                )
            yield group
        if empty:
            raise DataError(f"'{self.path}' holds no completions")

    def _of_run(self) -> Iterator[StoredGroup]:
        for line in RunView(self.path).rollouts():
            rows = tuple(line["completions"])
            yield StoredGroup(line["problem_id"], line["step"], tuple(map(_completion, rows)), rows)

    def _of_results(self) -> Iterator[StoredGroup]:
        _, _, judged = read_results(self.path)
        sampled = list(read_jsonl(self.path / "completions.jsonl"))
        key = itemgetter("problem_id", "sample")
        if [*map(key, sampled)] != [*map(key, judged)]:
            raise DataError(
                "completions.jsonl does not hold what results.jsonl judges",
                where=str(self.path),
                remedy="run the command that wrote them again: it goes on where it stopped",
            )
        lines = zip(sampled, judged, strict=True)
        pairs = ((sample, {**result, "reward": result["score"]}) for sample, result in lines)
        for id_, group in groupby(pairs, key=lambda pair: str(pair[0]["problem_id"])):
            members = list(group)
            completions = tuple(_completion(sample) for sample, _ in members)
            yield StoredGroup(id_, 0, completions, tuple(result for _, result in members))


def open_stored(text: str, host: Host, runs_dir: str = "runs") -> Stored:
    """Find the stored completions that the user names, and load their problems.

    Args:
        text: A folder of results of one task, or a run: its name, its folder, or ``last``.
        host: The loaded plugins.
        runs_dir: Folder of run folders.

    Raises:
        ConfigError: If it is neither.
        DataError: If its data cannot be read, or have changed.
    """
    path = Path(text)
    if (path / "spec.json").is_file():
        return _results(path, host)
    inside = sorted(path.glob("*/spec.json")) if path.is_dir() else []
    if inside:
        if len(inside) == 1:
            return _results(inside[0].parent, host)
        raise ConfigError(
            f"'{text}' holds results of several tasks",
            remedy=("name one: ", *(str(spec.parent) for spec in inside)),
        )
    return _run(find_run(text, runs_dir), host)


def _results(path: Path, host: Host) -> Stored:
    spec = read_spec(path)["spec"]
    ref = ComponentRef.model_validate(
        {"use": spec["task"].partition(":")[0], "with": spec["options"]}
    )
    every = build(host, "eval_task", ref).problems()[: spec["problems"]["n"]]
    if ids_hash([problem.id for problem in every]) != spec["problems"]["ids"]:
        raise DataError(
            f"{spec['task']} has other problems now than when it was evaluated", where=str(path)
        )
    weights = [reward["weight"] for reward in spec["rewards"]] if "rewards" in spec else [1.0]
    terms = tuple(Term(None, weight) for weight in weights)
    return Stored(path, {p.id: p for p in every}, terms, is_run=False)


def _run(run: RunFolder, host: Host) -> Stored:
    resolved = resolve_file(run.resolved, [], host)
    host.configure(resolved.plugins)
    config = resolved.config
    problems: dict[str, Problem] = {}
    for ref in config.data.sources:
        problems |= {p.id: p for p in resolved.build("dataset", ref).load()}
    terms = tuple(Term(None, reward.weight, reward.schedule) for reward in config.rewards)
    return Stored(run.path, problems, terms, is_run=True)


def _completion(row: Row) -> Completion:
    ids = tuple(row.get("token_ids", ()))
    transcript = Transcript.from_json(row["transcript"]) if "transcript" in row else None
    return Completion(
        prompt_ids=(),
        token_ids=ids,
        logprobs=(0.0,) * len(ids),
        loss_mask=(True,) * len(ids) if transcript is None else transcript.loss_mask(len(ids)),
        text=row["text"],
        finish_reason=row["finish_reason"],
        transcript=transcript,
    )
