"""Invariant ``data``: the problems of a run are those that its files and options make.

Files of ``core/jsonl`` are read a second time by plain code that shares none with the loader:
rows, limit, ids, prompts, what the verifier is given, the held-out share. Problems that the filter
on lengths took out must be too long by the oracle's rendering.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Message, Problem, Source
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.invariants.prompt_oracle import PromptOracle, filled

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, LossComputed, RunError, RunStarted
    from rlvr_core.api.services import Prepared
    from rlvr_core.builtin.invariants.given_rows import GivenRows

MOST = 1 << 26
"""Bytes of a file up to which it is read again."""
LEFT_OUT = 32
"""Problems that were left out as too long and are measured again."""
FIELDS = ("prompt", "spec", "verifier", "dataset", "stop", "max_tokens", "tags", "environment")
JSONL = ("jsonl", "core/jsonl")
OURS = "rlvr_core."
"""Where samplers come from that never change a problem."""


class DataFiles(Invariant):
    """The training data are the rows of their files, all of them and as they stand there.

    Args:
        files: The model's files.
        prepared: The run: its data as they were loaded, and its configuration.
    """

    id, phase = "data", "at the start"

    def __init__(self, files: ModelFiles, prepared: Prepared) -> None:
        self._config, self._sources, self._files = prepared.config, prepared.sources, files
        section = prepared.config.data.prompt
        self._oracle = PromptOracle(files, section, prepared.conversations.present)
        self._answers = {
            loc: (given, prepared.losses[loc].traits.answers)
            for loc, given in prepared.demonstrations.items()
        }
        self._given: GivenRows | None = None
        ours = type(prepared.sampler).__module__.startswith(OURS)
        self._loaded = prepared.problems if ours else {}

    def run_started(self, event: RunStarted) -> None:
        """Compare the data with their files; raises ``RunError``."""
        refs = self._config.data.sources
        shared = [_due(ref) for ref in refs]
        for source, ref, due in zip(self._sources, refs, shared, strict=True):
            if due is not None and (what := self._difference(source, due)):
                raise self._wrong_data(event.step, Path(ref.with_["path"]).name, what)
        for loc, (given, traits) in self._answers.items():
            own = self._config.losses[loc].data
            parts = shared if own is None else [_due(own)]
            answers: Any = getattr(given, "answers", ())
            known = all(part is not None for part in parts)
            if known and traits is not None and traits.target is not None:
                due = [problem for part in parts for problem in part or ()]
                if what := self._other_answers(answers, due, traits.target):
                    use = self._config.losses[loc].use
                    raise self._wrong_data(event.step, f"the loss {use}", what)

    def _other_answers(self, answers: Any, due: list[Problem], target: str) -> str:
        have = {problem.id for problem, _ in answers}
        missing = tuple(problem.id for problem in due if problem.id not in have)
        problems = tuple(problem for problem, _ in answers)
        # what is not there must be too long
        what = self._difference(Source("answers", problems, left_out=missing), due)
        wrong = [one for one, answer in answers if one.spec.get(target) != answer]
        if not what and wrong:
            what = f"{len(wrong)} answers to imitate are not in the field {target} of their rows, "
            what += f"such as that of {wrong[0].id}"
        return what

    def _wrong_data(self, step: int, name: str, what: str) -> RunError:
        return self.fault(
            step,
            f"the problems of {name} are not what its rows and the source's options make (band: "
            f"none): {what}",
            "look at what reads, filters, splits, cuts or deduplicates the data: a source is all "
            "rows of its file up to limit, less the held-out share and the prompts above "
            "data.max_prompt_tokens",
            switch="guards.draws: false turns it off",
        )

    def _difference(self, source: Source, due: list[Problem]) -> str:
        """Return in what a source's problems differ from those that are due."""
        out = set(source.left_out)
        mine = [problem.id for problem in source.problems]
        wanted = [problem.id for problem in due if problem.id not in out]
        missing, more = Counter(wanted) - Counter(mine), Counter(mine) - Counter(wanted)
        if missing or more:
            names = ", ".join([*missing, *more][:3])
            return (
                f"the run has {len(mine)} problems, and {len(wanted)} are due; {missing.total()} "
                f"are missing and {more.total()} are too many, such as {names}"
            )
        if mine != wanted:
            return f"its {len(mine)} problems are in another order than their rows"
        by_id = {problem.id: problem for problem in due}
        wrong = [(one, name) for one in source.problems if (name := other(one, by_id[one.id]))]
        if wrong:
            one, name = wrong[0]
            told, says = getattr(one, name), getattr(by_id[one.id], name)
            return (
                f"{len(wrong)} of {len(mine)} problems are changed: {one.id} has the {name} "
                f"{str(told)[:80]!r}, and its row makes {str(says)[:80]!r}"
            )
        most = self._config.data.max_prompt_tokens
        for problem in islice((one for one in due if one.id in out), LEFT_OUT):
            length = max(len(ids) for ids in self._oracle.candidates(problem))
            if length <= most:
                return (
                    f"{problem.id} was left out as too long, its prompt has {length} tokens, and "
                    f"data.max_prompt_tokens is {most}"
                )
        return ""

    def given(self, view: StepView, event: LossComputed) -> None:
        """Compare given answers with those that are due; raises ``RunError``."""
        if self._given is None:
            # most runs have none
            from rlvr_core.builtin.invariants.given_rows import GivenRows

            self._given = GivenRows(self._files, self._oracle)
        if what := self._given.wrong(view, event):
            raise self._wrong_answers(view.step, what)

    def end(self, view: StepView) -> Mapping[str, float]:
        """Check that all given answers of the step were learnt from."""
        given = self._given if view.trainer.ranks.world == 1 else None
        if given is not None and (what := given.left()):
            raise self._wrong_answers(view.step, what)
        return {}

    def _wrong_answers(self, step: int, what: str) -> RunError:
        return self.fault(
            step,
            f"{what} (band: none)",
            "demonstrations come in seeded epochs, each answer behind its own prompt and with its "
            "end: look at what orders, renders, encodes and masks given answers",
            switch="guards.draws: false turns it off",
        )

    def on_groups(self, event: GroupsScored) -> None:
        """Check that a step's problems are those that were loaded, in all that judges them."""
        for group in event.groups:
            known = self._loaded.get(group.problem.id)
            name = known and other(group.problem, known)
            if name and name != "prompt":  # prompts are the guard prompts'
                told, says = getattr(group.problem, name), getattr(known, name)
                raise self.fault(
                    event.step,
                    f"problem {group.problem.id} has another {name} than it was loaded with: "
                    f"{str(told)[:80]!r}, and {str(says)[:80]!r} was loaded (band: none)",
                    "something changes problems between data and verifier (a sampler, a hook): "
                    "change them where they are loaded",
                    switch="guards.draws: false turns it off",
                )


def other(one: Problem, known: Problem) -> str:
    """Return the first field in which two problems differ; empty where they are the same."""
    if one is known:
        return ""
    return next((name for name in FIELDS if getattr(one, name) != getattr(known, name)), "")


def _due(ref: Any) -> list[Problem] | None:
    """Return the problems that a data source of the config must have; None if it is no file."""
    path = Path(str(ref.with_.get("path")))
    if ref.use not in JSONL or not path.is_file() or path.stat().st_size > MOST:
        return None
    due = list(problems_of(path, ref.with_))
    split = getattr(ref, "split", None)
    if split is None:
        return due
    return [one for one in due if not _held_out(one.id, split.heldout, split.seed)]


# -- a second reader ------------------------------------------------------------------------------


def problems_of(path: Path, options: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of a file by the rules of ``docs/data.md``; ``options`` as in YAML."""
    name = options.get("name") or path.name.split(".")[0]
    seen: Counter[str] = Counter()
    for row in islice(_rows(path), options.get("limit")):
        if (field := options.get("id")) is not None:
            id_ = f"{name}_{row[field]}" if isinstance(row[field], int) else row[field]
        else:
            text = json.dumps(row, sort_keys=True, separators=(",", ":"))
            id_ = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            seen[id_] += 1
            id_ += f"-{seen[id_]}" if seen[id_] > 1 else ""
        template, spec = options.get("template"), options.get("spec")
        said = filled(template, row) if template is not None else row[options["prompt"]]
        if not isinstance(said, str):
            said = tuple(Message(turn["role"], turn["content"]) for turn in said)
        pairs = spec if isinstance(spec, dict) else {one: one for one in (spec or ())}
        yield Problem(
            id=id_,
            prompt=said,
            verifier=options.get("verifier", "none"),
            spec=row if spec is None else {ours: row[theirs] for ours, theirs in pairs.items()},
            dataset=name,
            stop=tuple(options.get("stop", ())),
            tags={tag: row[tag] for tag in options.get("tags", ())},
        )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    parse = json.JSONDecoder(parse_int=lambda n: int(n) if len(n) <= 4300 else n).decode
    if text.lstrip().startswith("["):
        yield from parse(text)
    else:
        yield from (parse(line) for line in text.split("\n") if line.strip())


def _held_out(id_: str, share: float, seed: int) -> bool:
    digest = hashlib.sha256(f"{seed}\0{id_}".encode()).hexdigest()
    return int(digest[:16], 16) / 2**64 < share
