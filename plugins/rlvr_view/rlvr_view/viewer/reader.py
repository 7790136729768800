"""Reads what the pages show of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, RunError
from rlvr_core.toolkit import RunFolder, finite, printable
from rlvr_view.viewer import compare, group
from rlvr_view.viewer.choice import Choice, Found, find, neighbours, options
from rlvr_view.viewer.export import answers, recorded, select
from rlvr_view.viewer.gaps import add_gaps
from rlvr_view.viewer.index import reading
from rlvr_view.viewer.indexing import FIRST_LOOK, Follower
from rlvr_view.viewer.runs import MissingError, Runs
from rlvr_view.viewer.stream import read_rows
from rlvr_view.viewer.tokens import tokenizer_of


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a run's rollouts the index holds.

    Attributes:
        done: Bytes that were read.
        total: Bytes that there are.
        groups: Groups that were found.
        notes: Faults of the files, in sentences.
        complete: Whether everything that was there at the last look was read.
    """

    done: int
    total: int
    groups: int
    notes: list[str]
    complete: bool

    @property
    def share(self) -> float:
        """Share that was read."""
        return self.done / self.total if self.total else 0.0


class Reader:
    """Reads runs, with their indexes.

    Args:
        runs: The runs.
        follower: Builds indexes.
    """

    def __init__(self, runs: Runs, follower: Follower) -> None:
        self.runs = runs
        self.follower = follower

    def follow(self, folder: RunFolder, patience: float = FIRST_LOOK) -> Path:
        """Keep a run's index up to date; return its file."""
        return self.follower.follow(folder.path, folder.traces / "rollouts.jsonl", patience)

    def progress(self, folder: RunFolder, patience: float = FIRST_LOOK) -> Progress:
        """Return the progress of a run's index, waiting up to ``patience`` seconds if it is new."""
        file = self.follow(folder, patience)
        with reading(file) as index:
            known = index.execute("SELECT done, total FROM progress").fetchone()
            done, total = known or (0, 0)
            groups = index.execute("SELECT count(*) FROM groups").fetchone()[0]
            bad = index.execute(
                "SELECT number, damaged, skipped FROM parts WHERE damaged OR skipped"
            ).fetchall()
        notes = [
            f"file {row['number']} of the rollouts is damaged: what comes after is left out"
            for row in bad
            if row["damaged"]
        ]
        if skipped := sum(row["skipped"] for row in bad):
            notes.append(f"{skipped} lines of the rollouts are no groups or cannot be read")
        if fault := self.follower.faults.get(file):
            notes.append(f"the index cannot be built: {fault}")
        return Progress(done, total, groups, notes, known is not None and done >= total)

    def find(self, folder: RunFolder, choice: Choice) -> tuple[Found, dict[str, list[str]]]:
        """Return a page of the chosen groups, and the values that lists offer."""
        with reading(self.follow(folder)) as index:
            return find(index, choice), options(index)

    def group(self, folder: RunFolder, choice: Choice, key: str, *, whole: bool) -> dict[str, Any]:
        """Return what the page of a group shows.

        Args:
            folder: The run.
            choice: The filters, which also decide the groups before and after.
            key: Key of the run.
            whole: Whether texts are shown whole.

        Raises:
            MissingError: If there is no such group, or it is no longer in the run's files.
        """
        inner, inner_values = choice.completions()
        with reading(self.follow(folder)) as index:
            listed = index.execute("SELECT * FROM groups WHERE key = ?", (key,)).fetchone()
            if listed is None:
                raise MissingError(
                    f"there is no group {key} in what was read so far",
                    remedy="look for it among the rollouts",
                )
            before, after = neighbours(index, choice, key)
            times = index.execute(
                "SELECT count(*) FROM groups WHERE problem = ?", (listed["problem"],)
            ).fetchone()[0]
            fitting = {
                row[0]
                for row in index.execute(
                    f"SELECT c.sample FROM completions c JOIN groups g ON g.id = c.grp "
                    f"WHERE g.id = ? AND {inner}",
                    [listed["id"], *inner_values],
                )
            }
        stream = folder.traces / "rollouts.jsonl"
        [(_, row)] = read_rows(stream, [(listed["part"], listed["offset"], listed["length"])])
        if row is None or row.get("step") != listed["step"] or "completions" not in row:
            raise MissingError("the run's files have changed: this group is not there any more")
        add_gaps(row, folder.traces)
        view = self.runs.view(folder)
        tokenizer = tokenizer_of(view)
        shown = group.completions(row, view, tokenizer, whole=whole)
        for completion in shown:
            completion.matches = completion.sample in fitting
        return {
            "key": key,
            "group": listed,
            "prompt": printable(str(row.get("prompt") or ""), None if whole else group.TEXT),
            "completions": shown,
            "facts": _group_facts(row, view),
            "missing": group.not_recorded(row, tokenizer),
            "coloured": any(turn.tokens for completion in shown for turn in completion.turns),
            "times": times,
            "before": before,
            "after": after,
        }

    def draws(self, folder: RunFolder, problem: str, which: str) -> tuple[list[compare.Draw], int]:
        """Return the draws of one problem across the steps, and their total number.

        Args:
            folder: The run.
            problem: The problem's id.
            which: Which completion represents each draw: one of ``compare.WHICH``.

        Raises:
            ConfigError: If ``which`` is none of them.
            MissingError: If it was never drawn.
        """
        if which not in compare.WHICH:
            raise ConfigError(f"which is one of {', '.join(compare.WHICH)}, not '{which}'")
        with reading(self.follow(folder)) as index:
            draws, total = compare.draws(index, problem, which)
        if not total:
            raise MissingError(f"problem '{problem}' is not in what was read so far")
        return draws, total

    def exported(self, folder: RunFolder, choice: Choice, kind: str) -> Iterator[bytes]:
        """Return the lines of an export of the chosen completions.

        Args:
            folder: The run.
            choice: The filters.
            kind: One of ``KINDS``.

        Raises:
            RunError: If the rollouts are still being read.
        """
        progress = self.progress(folder)
        if not progress.complete:
            raise RunError(
                f"the rollouts are still being read ({progress.share:.0%}): the file would lack "
                "some",
                remedy="export them when all are read",
            )
        with reading(self.follow(folder)) as index:
            selection = select(index, choice)
        stream = folder.traces / "rollouts.jsonl"
        if kind != "sft":
            return recorded(stream, selection)
        identity = self.runs.view(folder).manifest.get("identity")
        prompts = identity.get("prompts") if isinstance(identity, dict) else None
        raw_text = isinstance(prompts, dict) and prompts.get("text_as_chat") is False
        return answers(stream, selection, raw_text=raw_text)


def span(seconds: float | None) -> str:
    """Return a duration in hours, minutes and seconds."""
    if seconds is None:
        return ""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {left:02d} s" if minutes else f"{left} s"


def _group_facts(row: Mapping[str, Any], view: Any) -> list[tuple[str, str]]:
    rows: list[dict[str, Any]] = view.metrics.rows
    metrics = next((metrics_row for metrics_row in rows if metrics_row["step"] == row["step"]), {})
    gap = finite(metrics.get("mismatch/abs_mean"))
    tags = row.get("tags")
    facts = {
        "data set": row.get("dataset"),
        **(tags if isinstance(tags, dict) else {}),
        "policy version": row.get("sampled_version"),
        "fate": str(row.get("fate") or "differs by completion").replace("_", " "),
        "trainer-engine gap of the step": None if gap is None else f"{gap:.3g} nats a token",
    }
    return [(str(key), str(value)) for key, value in facts.items() if value not in (None, "")]
