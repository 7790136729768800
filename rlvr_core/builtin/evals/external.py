"""Eval task ``external``: a team's own harness, run as a command, its metrics read back.

The harness lives in its own environment (T92): it gets the variables it is given here and a few
that every program needs, no ``PYTHONPATH`` and no virtual environment of ours.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator, model_validator

from rlvr_core.api import (
    Complaint,
    Completion,
    ComponentConfig,
    ConfigError,
    Estimate,
    EvalReport,
    ExternalAnswer,
    Group,
    Json,
    Judged,
    ModelAccess,
    Problem,
    RunError,
    SamplingParams,
    Verdict,
)
from rlvr_core.api.services import NAME, Positive, is_secret
from rlvr_core.builtin.evals.command import run_command, tail
from rlvr_core.builtin.evals.stats import wilson

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "CUDA_VISIBLE_DEVICES")
"""Variables every harness gets."""
_HASHED_BYTES = 16 << 20

JsonPath = str | list[str | int]


class Metric(ComponentConfig):
    """Where a metric is in the harness's JSON, and what is known of it; its path alone will do."""

    path: JsonPath
    """Keys from the outside in, joined by dots; a list where a key has a dot in it, or for
    positions in a list."""
    n: Positive | JsonPath | None = None
    """Problems it is an average over: their number, or where that is in the JSON."""
    rate: bool = False
    """It is the share of those problems that passed: gives it Wilson's interval."""

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | list) else value

    @model_validator(mode="after")
    def _rate_has_n(self) -> Metric:
        if self.rate and self.n is None:
            raise ValueError("a rate needs n for its interval")
        return self


class External:
    """Another harness, run on the checkpoint."""

    class Config(ComponentConfig):
        """The command, and what to read of what it leaves."""

        name: str
        """What results are called; lower-case letters, digits, '.', '_' and '-'."""
        command: list[str] = Field(min_length=1)
        """Program and arguments, run without a shell. ``{checkpoint}`` is the model's folder,
        ``{output}`` the JSON file to write, ``{output_dir}`` the folder it lies in."""
        metrics: dict[str, Metric] = Field(min_length=1)
        """Metrics by the name they are to have: where each is in the JSON. The first is the
        headline."""
        result: str = "metrics.json"
        """The JSON file, below ``{output_dir}``; may be a pattern such as ``**/metrics-all.json``
        that one file fits."""
        env: dict[str, str] = {}
        """Environment variables; recorded, so no secrets."""
        pass_env: list[str] = []
        """Names of variables to hand on from rlvr's own environment; values are not recorded."""
        cwd: str | None = None
        """Where the command runs; null: where rlvr does."""
        timeout: Annotated[float, Field(gt=0)] = 86400.0
        """Seconds after which it is stopped."""

        @field_validator("name")
        @classmethod
        def _named(cls, value: str) -> str:
            if not NAME.match(value):
                raise ValueError("use lower-case letters, digits, '.', '_' and '-'")
            return value

        @field_validator("env")
        @classmethod
        def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
            secret = sorted(key for key in value if is_secret(key))
            if secret:
                raise ValueError(
                    f"{', '.join(secret)} would be recorded: name it in pass_env, and set it in "
                    f"the environment"
                )
            return value

    needs_engine = False
    n = 1
    sampling = SamplingParams(temperature=0.0)

    def __init__(self, config: Config) -> None:
        self.config = config
        self._metrics = config.metrics

    @property
    def label(self) -> str:
        """The name it was given."""
        return self.config.name

    def samples(self) -> bool:
        """The harness decides."""
        return False

    def identity(self) -> Mapping[str, Json]:
        """Hashes of the files that the command names: a script that changed is another task."""
        return {"files": self._files()}

    def problems(self) -> list[Problem]:
        """One: the harness's problems are its own."""
        self._check()
        name = self.config.name
        return [Problem(name, shlex.join(self.config.command), "external", {}, "external")]

    def longest(
        self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> int:
        """Nothing is asked of our engine."""
        return 1

    def answer(self, problems: Sequence[Problem], model: ModelAccess) -> Iterator[ExternalAnswer]:
        """Run the command, which is done whole or not at all."""
        output, log = model.folder / "output", model.folder / "external.log"
        shutil.rmtree(output, ignore_errors=True)  # nothing of an earlier attempt may be read
        output.mkdir(parents=True)
        folder = Path(model.path).expanduser()
        command = self._filled(
            {
                "checkpoint": str(folder.resolve()) if folder.is_dir() else model.path,
                "output": str((output / self.config.result).resolve()),
                "output_dir": str(output.resolve()),
            }
        )
        model.say(f"{self.config.name}: {shlex.join(command)}; its output: {log}")
        run_command(
            command,
            env=self._environment(),
            cwd=self.config.cwd,
            log=log,
            timeout=self.config.timeout,
            name=self.config.name,
        )
        found = self._read(output, log)
        (problem,) = problems
        yield ExternalAnswer(problem, shlex.join(command), (self._judged(found),))

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """The metrics, as they were read."""
        (group,) = groups
        verdict = group.members[0].verdicts["external"]
        return EvalReport({name: verdict.parts[name] for name in self._metrics}, 1)

    def estimates(self, groups: Sequence[Group]) -> Mapping[str, Estimate]:
        """The metrics; n is 0 and there is no interval where the harness does not tell n."""
        (group,) = groups
        found = json.loads(group.members[0].completion.text)
        return {
            name: _estimate(found[name]["value"], found[name]["n"], rate=one.rate)
            for name, one in self._metrics.items()
        }

    def _judged(self, found: Mapping[str, Mapping[str, Any]]) -> Judged:
        parts = {name: one["value"] for name, one in found.items()}
        headline = next(iter(parts))
        verdict = Verdict(parts[headline], parts=parts, detail=f"score is {headline}")
        completion = Completion.from_text(json.dumps(found, ensure_ascii=False))
        return Judged(completion, {"external": verdict}, verdict.score, None)

    def _check(self) -> None:
        complaints = []
        text = " ".join(self.config.command)
        if "{checkpoint}" not in text:
            what = f"external task '{self.config.name}': the command names no {{checkpoint}}"
            complaints.append(Complaint(what, remedy=("it would not know what to evaluate",)))
        if "{output}" not in text and "{output_dir}" not in text:
            what = f"external task '{self.config.name}': the command names no {{output}}"
            complaints.append(Complaint(what, remedy=("or {output_dir}: where to leave its JSON",)))
        if "{output}" in text and _is_pattern(self.config.result):
            what = f"external task '{self.config.name}': {{output}} is no file, as result is a "
            complaints.append(Complaint(f"{what}pattern", remedy=("write {output_dir}",)))
        if Path(self.config.result).is_absolute() or ".." in Path(self.config.result).parts:
            what = f"external task '{self.config.name}': result must lie below the output folder"
            complaints.append(Complaint(what))
        missing = [name for name in self.config.pass_env if name not in os.environ]
        if missing:
            what = f"external task '{self.config.name}' needs {', '.join(missing)}"
            complaints.append(Complaint(f"{what} in the environment"))
        cwd = self.config.cwd
        if cwd is not None and not Path(cwd).is_dir():
            what = f"external task '{self.config.name}': cwd '{cwd}' is no folder"
            complaints.append(Complaint(what))
        if complaints:
            raise ConfigError.collect(complaints)

    def _filled(self, values: Mapping[str, str]) -> list[str]:
        """Placeholders filled in; other braces are the harness's own."""
        words = []
        for word in self.config.command:
            for key, value in values.items():
                word = word.replace(f"{{{key}}}", value)
            words.append(word)
        return words

    def _environment(self) -> dict[str, str]:
        names = (*PASSED_ON, *self.config.pass_env)
        handed = {name: os.environ[name] for name in names if name in os.environ}
        # so that a log shows how far a Python program came before it was ended
        return {"PYTHONUNBUFFERED": "1"} | handed | self.config.env

    def _files(self) -> dict[str, str]:
        found = {}
        for word in self.config.command:
            path = Path(self.config.cwd or ".") / word
            if "{" in word or not path.is_file() or path.stat().st_size > _HASHED_BYTES:
                continue
            content = path.read_bytes()
            if not content.startswith(b"\x7fELF"):  # a program as such differs between machines
                found[word] = hashlib.sha256(content).hexdigest()
        return found

    def _read(self, output: Path, log: Path) -> dict[str, dict[str, Any]]:
        """Value and n of every metric.

        Raises:
            RunError: If the file is missing or malformed, or a metric is no number; all faults at
                once, with the end of the log.
        """
        path = self._result(output, log)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._fault(f"left a file that is no JSON: {error}", path, log) from error
        faults: list[str] = []
        found: dict[str, dict[str, Any]] = {}
        for name, metric in self._metrics.items():
            try:
                value = _number(_at(data, metric.path), "metric")
                n = metric.n
                if n is not None and not isinstance(n, int):
                    n = _count(_at(data, n))
                if metric.rate and not 0 <= value <= 1:
                    raise ValueError(f"{value:g} is no rate: it is not between 0 and 1")
                found[name] = {"value": value, "n": n}
            except (LookupError, TypeError, ValueError) as error:
                faults.append(f"metric '{name}': {error.args[0]}")
        if faults:
            raise self._fault("; ".join(faults), path, log)
        return found

    def _result(self, output: Path, log: Path) -> Path:
        if not _is_pattern(self.config.result):
            path = output / self.config.result
            if not path.is_file():
                raise self._fault(f"ended well but left no '{self.config.result}'", output, log)
            return path
        fits = sorted(path for path in output.glob(self.config.result) if path.is_file())
        if len(fits) != 1:
            names = ", ".join(str(path.relative_to(output)) for path in fits[:3]) or "none"
            raise self._fault(
                f"left {len(fits)} files that fit '{self.config.result}', not one: {names}",
                output,
                log,
            )
        return fits[0]

    def _fault(self, what: str, where: Path, log: Path) -> RunError:
        return RunError(
            f"external task '{self.config.name}' {what}",
            where=str(where),
            remedy=(f"the end of {log}:", *tail(log)),
        )


def _estimate(value: float, n: int | None, *, rate: bool) -> Estimate:
    if not rate or n is None:
        return Estimate(value, n or 0, None, None, "none")
    passed = round(value * n)
    if not math.isclose(passed, value * n, abs_tol=0.01 * n):
        return Estimate(value, n, None, None, "none")
    return Estimate(value, n, *wilson(passed, n), "wilson")


def _is_pattern(text: str) -> bool:
    return any(letter in text for letter in "*?[")


def _at(data: Any, path: JsonPath) -> Any:
    """What is at a path.

    Raises:
        LookupError: Naming the key that is not there, and those that are.
    """
    keys = path.split(".") if isinstance(path, str) else path
    for depth, key in enumerate(keys):
        try:
            data = data[key]
        except (LookupError, TypeError):
            there = sorted(data) if isinstance(data, dict) else type(data).__name__
            shown = ", ".join(there[:8]) if isinstance(there, list) else f"a {there}"
            before = ".".join(map(str, keys[:depth])) or "the file"
            raise LookupError(f"no {key!r} in {before}, which has: {shown}") from None
    return data


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{json.dumps(value)[:60]} is no number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"n is {json.dumps(value)[:60]}, which is no whole number")
    if value < 1:
        raise ValueError(f"n is {value}")
    return int(value)
