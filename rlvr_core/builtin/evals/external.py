"""Eval task ``external``: runs a team's own evaluation harness as a command, and reads its metrics.

The harness has its own environment (T92): it gets the variables configured here and a few that
every program needs, but neither our ``PYTHONPATH`` nor our virtual environment.
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
from rlvr_core.builtin.evals.intervals import wilson

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "CUDA_VISIBLE_DEVICES")
"""Environment variables passed to every harness."""
_HASHED_BYTES = 16 << 20

JsonPath = str | list[str | int]


class Metric(ComponentConfig):
    """Where a metric is in the harness's JSON, and its kind; the path alone is enough."""

    path: JsonPath
    """Keys from the outside in, joined by dots; a list if a key contains a dot, or for positions in
    a list."""
    n: Positive | JsonPath | None = None
    """Number of problems the metric averages over, or the path of that number in the JSON."""
    rate: bool = False
    """The metric is the share of those problems that passed: its interval is then Wilson's."""

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
    """Evaluates a model with an external harness."""

    class Config(ComponentConfig):
        """The command, and the results to read from its output."""

        name: str
        """Name of the results; lower-case letters, digits, '.', '_' and '-'."""
        command: list[str] = Field(min_length=1)
        """Program and arguments, run without a shell. ``{checkpoint}`` is the model's folder,
        ``{output}`` the JSON file to write, ``{output_dir}`` the folder it lies in."""
        metrics: dict[str, Metric] = Field(min_length=1)
        """Metrics by name: where each is in the JSON. The first is the headline."""
        result: str = "metrics.json"
        """The JSON file, relative to ``{output_dir}``; may be a pattern such as
        ``**/metrics-all.json`` that matches one file."""
        env: dict[str, str] = {}
        """Environment variables; they are recorded, so use no secrets."""
        pass_env: list[str] = []
        """Names of variables to pass on from rlvr's own environment; values are not recorded."""
        cwd: str | None = None
        """Working directory of the command; null: that of rlvr."""
        timeout: Annotated[float, Field(gt=0)] = 86400.0
        """Seconds after which the command is stopped."""

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
        """The configured name."""
        return self.config.name

    def samples(self) -> bool:
        """Always False: the harness decides how it samples."""
        return False

    def identity(self) -> Mapping[str, Json]:
        """Return hashes of the files that the command names: a changed script is another task."""
        return {"files": self._files()}

    def problems(self) -> list[Problem]:
        """Return one placeholder problem; the real ones are in the harness."""
        self._check()
        name = self.config.name
        return [Problem(name, shlex.join(self.config.command), "external", {}, "external")]

    def longest(
        self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> int:
        """Return 1: our engine is not used."""
        return 1

    def answer(self, problems: Sequence[Problem], model: ModelAccess) -> Iterator[ExternalAnswer]:
        """Run the command; it is completed as a whole or not at all."""
        output, log = model.folder / "output", model.folder / "external.log"
        shutil.rmtree(output, ignore_errors=True)  # no output of an earlier attempt may be read
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
        """Return the metrics as they were read."""
        (group,) = groups
        verdict = group.members[0].verdicts["external"]
        return EvalReport({name: verdict.parts[name] for name in self._metrics}, 1)

    def estimates(self, groups: Sequence[Group]) -> Mapping[str, Estimate]:
        """Return the metrics; n is 0, without an interval, if the harness does not report n."""
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
        """Fill in our placeholders; other braces are left for the harness."""
        words = []
        for word in self.config.command:
            for key, value in values.items():
                word = word.replace(f"{{{key}}}", value)
            words.append(word)
        return words

    def _environment(self) -> dict[str, str]:
        names = (*PASSED_ON, *self.config.pass_env)
        handed = {name: os.environ[name] for name in names if name in os.environ}
        # a log then shows the progress of a Python program that is killed
        return {"PYTHONUNBUFFERED": "1"} | handed | self.config.env

    def _files(self) -> dict[str, str]:
        found = {}
        for word in self.config.command:
            path = Path(self.config.cwd or ".") / word
            if "{" in word or not path.is_file() or path.stat().st_size > _HASHED_BYTES:
                continue
            content = path.read_bytes()
            if not content.startswith(b"\x7fELF"):  # a binary differs between machines: not hashed
                found[word] = hashlib.sha256(content).hexdigest()
        return found

    def _read(self, output: Path, log: Path) -> dict[str, dict[str, Any]]:
        """Return value and n of every metric.

        Raises:
            RunError: If the file is missing or malformed, or a metric is no number; reports all
                faults at once, with the end of the log.
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
    """Return the value at a path.

    Raises:
        LookupError: If it does not exist; names the missing key and the existing ones.
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
