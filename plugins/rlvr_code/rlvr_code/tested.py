"""Problems with inputs and expected answers, in the shapes of APPS, CodeContests and NeMo Gym."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

from rlvr_code.judge.compare import nothing_expected
from rlvr_code.rows import INSTRUCT, Common, Row, field, located
from rlvr_core.api import ComponentConfig, ConfigError, DataError, Problem
from rlvr_core.data.rows import MAX_INT_DIGITS

_log = logging.getLogger(__name__)

STOP = ("\nQUESTION:", "\n-----")
_WHERE = ("input_output", "tests", "unit_tests", "verifier_metadata")
_PARTS = ("public_tests", "private_tests", "generated_tests")
"""Columns of tests in DeepMind's CodeContests."""


class TestedConfig(Common):
    """Options of problems with inputs and expected answers."""

    hub: str | None = None
    """Repository on the hub, when there is no ``path``."""
    hub_config: str | None = None
    """Configuration of the data set, if it has several."""
    split: str = "train"
    """Split to load; part of the problems' ids."""
    difficulties: tuple[str, ...] = ()
    """Take only problems of these difficulties; all if empty."""


class _Tested:
    """Base of both kinds.

    Problems without tests, or whose tests expect nothing, are left out and counted.
    """

    Config: ClassVar[type[ComponentConfig]] = TestedConfig
    CALLS: ClassVar[bool]
    VERIFIER: ClassVar[str]

    def __init__(self, config: TestedConfig) -> None:
        self.config = config
        self.left_out: Counter[str] = Counter()
        """Rows left out by the last ``load``, by reason."""
        if config.path is None and config.hub is None:
            raise ConfigError(f"{self.VERIFIER} needs a path or a hub repository")

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source.

        Raises:
            DataError: If a row is unusable; names file and line.
            MachineError: If the hub cannot be reached.
        """
        self.left_out = Counter()
        yield from islice(self._problems(), self.config.limit)
        if self.left_out:
            reasons = ", ".join(f"{count} {why}" for why, count in sorted(self.left_out.items()))
            _log.warning("%s left out rows: %s", self.VERIFIER, reasons)

    def _problems(self) -> Iterator[Problem]:
        config = self.config
        hub = (config.hub or "", config.hub_config, config.split)
        for where, row in located(config.path, hub):
            tests = _tests(row, where)
            difficulty = _difficulty(row)
            if tests is None or not tests["inputs"]:
                self.left_out["without tests"] += 1
            elif bool(tests.get("fn_name")) != self.CALLS:
                kind = "standard input" if self.CALLS else "calls"
                self.left_out[f"with tests by {kind}"] += 1
            elif nothing_expected(tests, calls=self.CALLS):
                self.left_out["whose tests expect nothing"] += 1
            elif config.difficulties and difficulty not in config.difficulties:
                self.left_out["of another difficulty"] += 1
            else:
                yield self._problem(row, tests, difficulty, where)

    def _problem(self, row: Row, tests: dict[str, Any], difficulty: str, where: str) -> Problem:
        question = _question(row, where)
        starter = row.get("starter_code")
        starter = starter if isinstance(starter, str) else ""
        base = self.config.style == "base"
        return Problem(
            id=f"{self.VERIFIER.partition('/')[2]}_{self.config.split}_{_id(row, question)}",
            prompt=self._prompt(question, starter, tests),
            verifier=self.VERIFIER,
            spec={**tests, "solutions": row.get("solutions"), "starter_code": starter},
            dataset=self.VERIFIER,
            stop=STOP if base else (),
            tags={"level": difficulty} if difficulty else {},
        )

    def _prompt(self, question: str, starter: str, tests: Mapping[str, Any]) -> str:
        """The question, the code to begin with, and how the program gets its input."""
        how = "Use Standard Input format"
        if self.CALLS:
            how = f"Use Call-Based format: write {tests['fn_name']}"
        parts = [f"QUESTION:\n{question.strip()}\n"]
        if starter.strip():
            parts.append(f"```python\n{starter.rstrip()}\n```\n")
        parts.append(f"{how}.\n")
        parts.append("ANSWER:\n" if self.config.style == "base" else f"\n{INSTRUCT}")
        return "".join(parts)


class Stdin(_Tested):
    """Problems whose program reads standard input and writes standard output."""

    CALLS = False
    VERIFIER = "code/stdin"


class Call(_Tested):
    """Problems whose function is called with arguments."""

    CALLS = True
    VERIFIER = "code/call"


def _tests(row: Row, where: str) -> dict[str, Any] | None:
    """Inputs, outputs and perhaps the function's name; None if the row has none of it."""
    given: Any = _merged(row, where) or row
    for name in _WHERE:
        if given is not None and isinstance(given, Mapping) and given.get(name) not in (None, ""):
            given = _json(given[name], where)
            if name == "verifier_metadata" and isinstance(given, Mapping):
                given = given.get("unit_tests")
    if isinstance(given, list):
        given = {
            "inputs": [case["input"] for case in given],
            "outputs": [case["output"] for case in given],
        }
    if not isinstance(given, Mapping) or "inputs" not in given:
        return None
    inputs, outputs = given["inputs"], given.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise DataError("'inputs' and 'outputs' must be lists of the same length", where=where)
    tests: dict[str, Any] = {"inputs": inputs, "outputs": outputs}
    if given.get("fn_name"):
        tests["fn_name"] = given["fn_name"]
        tests["wrapped"] = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    return tests


def _merged(row: Row, where: str) -> dict[str, list[Any]] | None:
    """The tests of all three parts that CodeContests has; None if the row has none."""
    parts = [_json(row[name], where) for name in _PARTS if row.get(name) not in (None, "")]
    inputs: list[Any] = []
    outputs: list[Any] = []
    for part in parts:
        try:
            if isinstance(part, list):
                part = {key: [case[key] for case in part] for key in ("input", "output")}
            inputs += part["input"]
            outputs += part["output"]
        except (LookupError, TypeError) as error:
            raise DataError(f"{part!r:.60} are no inputs and outputs", where=where) from error
    return {"inputs": inputs, "outputs": outputs} if parts else None


def _json(value: Any, where: str) -> Any:
    """A value that some sources hold as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_int=_int)
    except ValueError as error:
        raise DataError(f"the tests are no JSON: {error}", where=where) from error


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else digits


def _question(row: Row, where: str) -> str:
    request = row.get("responses_create_params")
    if isinstance(request, Mapping) and request.get("input"):
        return str(request["input"][-1]["content"])
    return field(row, ("question", "problem", "prompt", "description"), where)


def _difficulty(row: Row) -> str:
    metadata = row.get("metadata")
    value = row.get("difficulty") or (
        metadata.get("difficulty") if isinstance(metadata, Mapping) else None
    )
    return value if isinstance(value, str) else ""


def _id(row: Row, question: str) -> str:
    """The source's own id, else a hash of the question: the same in any order."""
    for name in ("problem_id", "id", "hash_id", "task_id"):
        if isinstance(row.get(name), str | int) and row.get(name) != "":
            return str(row[name])
    return hashlib.sha256(question.encode()).hexdigest()[:12]
