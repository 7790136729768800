"""The data sets: IFEval, IFBench, RLVR-IFEval, the mixed set's part, multi-constraint training.

Each has ids with a prefix of its own, and checks every row's constraints as it is read.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rlvr_core.api import Complaint, ComponentConfig, DataError, Json, Problem
from rlvr_core.data.hub import hub_rows
from rlvr_core.data.rows import read_rows
from rlvr_core.data.uri import local_path
from rlvr_ifeval import verifiers

_SHOWN = 20
"""Maximum invalid rows that one message names."""
_log = logging.getLogger(__name__)
Row = Mapping[str, Json]


class Rows:
    """Reads rows from the hub or a file, and makes problems of those that belong here."""

    REPO: ClassVar[str]
    SPLIT: ClassVar[str] = "train"
    PREFIX: ClassVar[str]
    NAME: ClassVar[str]
    VERIFIER: ClassVar[str]
    FIELDS: ClassVar[tuple[str, ...]]
    CHECKER: ClassVar[type[verifiers.Constraints]]

    class Config(ComponentConfig):
        """Options of an instruction-following data set."""

        path: str | None = None
        """JSON lines or an array with the rows, gzipped or not; from the hub when absent."""
        revision: str | None = None
        """Branch, tag or commit on the hub; give a commit to pin the data."""
        limit: Annotated[int, Field(gt=0)] | None = None
        """Take only so many rows, from the start."""
        drop_invalid: bool = False
        """Leave out rows whose constraints are unknown or have wrong arguments, and say how many,
        instead of refusing the data."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the rows.

        Raises:
            DataError: If a row is unusable; names file and line, constraint and argument.
            MachineError: If the hub cannot be reached.
        """
        checker = self.CHECKER(self.CHECKER.Config())
        seen: Counter[str] = Counter()
        invalid: list[Complaint] = []
        rows = ((where, row) for where, row in self._rows() if self.belongs(row))
        for where, row in islice(rows, self.config.limit):
            prompt = _prompt(row, where)
            spec = {name: row[name] for name in self.FIELDS if row.get(name) is not None}
            try:
                constraints = checker.read(spec, where)
            except DataError as error:
                invalid.append(error.complaints[0])
                continue
            id = self._id(row, prompt, spec)
            seen[id] += 1
            yield Problem(
                id=f"{id}-{seen[id]}" if seen[id] > 1 else id,
                prompt=prompt,
                verifier=self.VERIFIER,
                spec=spec,
                dataset=self.NAME,
                tags={
                    "constraints": len(constraints),
                    "constraint": constraints[0].id if len(constraints) == 1 else "several",
                },
                where=where,
            )
        self._report(invalid)
        if not seen:
            raise DataError(
                "there are no rows for this data set", where=self.config.path or self.REPO
            )

    def _report(self, invalid: list[Complaint]) -> None:
        """Say which rows are unusable: a warning if they are to be left out, else an error."""
        if not invalid:
            return
        if self.config.drop_invalid:
            _log.warning(
                "%s: %d invalid rows left out, the first: %s", self.NAME, len(invalid), invalid[0]
            )
            return
        rest = len(invalid) - _SHOWN
        more = [Complaint(f"and {rest} more invalid rows")] if rest > 0 else []
        raise DataError.collect([*invalid[:_SHOWN], *more])

    def belongs(self, row: Row) -> bool:
        """Whether a row is one of this data set's."""
        return True

    def _id(self, row: Row, prompt: str, spec: Row) -> str:
        """The row's own key, or a hash of what it asks; no filter or order changes either."""
        for name in ("key", "id"):
            key = row.get(name)
            if isinstance(key, int | str) and not isinstance(key, bool) and str(key).strip():
                return f"{self.PREFIX}_{str(key).removeprefix(self.PREFIX + '_')}"
        content = f"{prompt}\0{sorted(spec.items())!r}"
        return f"{self.PREFIX}_{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Where each row is from, and the row."""
        if self.config.path is None:
            for number, row in hub_rows(self.REPO, None, self.SPLIT, self.config.revision):
                yield f"{self.REPO} {self.SPLIT}, row {number}", row
        else:
            path = local_path(self.config.path)
            for number, row in read_rows(path):
                yield f"{path}:{number}", row


class Ifeval(Rows):
    """IFEval: 541 prompts with one to three of 25 constraints. For evaluation, not training."""

    REPO, PREFIX = "google/IFEval", "ifeval"
    NAME = VERIFIER = "ifeval/ifeval"
    FIELDS = ("instruction_id_list", "kwargs")
    CHECKER = verifiers.Ifeval


class Ifbench(Rows):
    """IFBench: 300 prompts with 58 constraints unlike IFEval's. For evaluation, not training."""

    REPO, PREFIX = "allenai/IFBench_test", "ifbench"
    NAME = VERIFIER = "ifeval/ifbench"
    FIELDS = ("instruction_id_list", "kwargs")
    CHECKER = verifiers.Ifbench


class RlvrIfeval(Rows):
    """RLVR-IFEval: 14,973 training prompts with one of 25 functions."""

    REPO, PREFIX, NAME = "allenai/RLVR-IFeval", "rlvr-ifeval", "ifeval/rlvr-ifeval"
    VERIFIER = "ifeval/rlvr"
    FIELDS = ("ground_truth",)
    CHECKER = verifiers.Rlvr


class MixedIf(RlvrIfeval):
    """The instruction-following part of AllenAI's mixed set of maths and constraints."""

    REPO, PREFIX = "allenai/RLVR-GSM-MATH-IF-Mixed-Constraints", "rlvr-mixed-if"
    NAME = "ifeval/mixed-if"

    def belongs(self, row: Row) -> bool:
        """Rows that say they are IFEval's, not the maths."""
        return str(row.get("dataset")).lower() == "ifeval"


class MultiConstraints(Rows):
    """IF_multi_constraints_upto5: training prompts with one to five of 54 constraints.

    Rows with IFEval's ``instruction_id_list`` and ``kwargs`` are read too.
    """

    REPO, PREFIX = "allenai/IF_multi_constraints_upto5", "if-multi"
    NAME = "ifeval/multi-constraints"
    VERIFIER = "ifeval/multi"
    FIELDS = ("ground_truth", "instruction_id_list", "kwargs")
    CHECKER = verifiers.Multi


def _prompt(row: Row, where: str) -> str:
    """The prompt, or the first thing the user says in ``messages``."""
    prompt = row.get("prompt")
    if prompt is None and isinstance(row.get("messages"), list):
        contents = [
            turn.get("content")
            for turn in row["messages"]
            if isinstance(turn, dict) and turn.get("role") == "user"
        ]
        prompt = contents[0] if contents else None
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(
            "the row has no prompt: text in 'prompt' or a user's turn in 'messages'",
            where=where,
            remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}",
        )
    return prompt
