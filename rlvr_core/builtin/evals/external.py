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
    Completion,
    ComponentConfig,
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
from rlvr_core.api.services import NAME, Positive, is_secret, wilson
from rlvr_core.builtin.evals.command import run_command, tail

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "CUDA_VISIBLE_DEVICES")
"""Environment variables passed to every harness."""

JsonPath = str | list[str | int]


class Metric(ComponentConfig):
    """Where a metric is in the harness's JSON, and its kind; the path alone is enough."""

    path: JsonPath
    """Keys from the outside in, joined by dots; a list if a key contains a dot, or for positions in
    a list."""
    n: Positive | None = None
    """Number of problems the metric averages over."""
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
        """Program and arguments, run without a shell. ``{checkpoint}`` is the model's folder, and
        ``{output}`` the JSON file to write."""
        metrics: dict[str, Metric] = Field(min_length=1)
        """Metrics by name: where each is in the JSON. The first is the headline."""
        env: dict[str, str] = {}
        """Environment variables; they are recorded, so use no secrets."""
        pass_env: list[str] = []
        """Names of variables to pass on from rlvr's own environment; values are not recorded."""
        timeout: Annotated[float, Field(gt=0)] = 86400.0
        """Seconds after which the command is stopped."""

        @field_validator("name")
        @classmethod
        def _named(cls, value: str) -> str:
            if not NAME.match(value):
                raise ValueError("use lower-case letters, digits, '.', '_' and '-'")
            return value

        @field_validator("command")
        @classmethod
        def _names_both_places(cls, value: list[str]) -> list[str]:
            for place in ("{checkpoint}", "{output}"):
                if not any(place in word for word in value):
                    raise ValueError(f"the command names no {place}")
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

        @field_validator("pass_env")
        @classmethod
        def _is_set(cls, value: list[str]) -> list[str]:
            missing = [name for name in value if name not in os.environ]
            if missing:
                raise ValueError(f"{', '.join(missing)} is not set in the environment")
            return value

    needs_engine = False
    n = 1
    sampling = SamplingParams(temperature=0.0)

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def label(self) -> str:
        """The configured name."""
        return self.config.name

    def samples(self) -> bool:
        """Always False: the harness decides how it samples."""
        return False

    def identity(self) -> Mapping[str, Json]:
        """Return hashes of the scripts that the command names: a changed one is another task."""
        scripts = [Path(word) for word in self.config.command if word.endswith((".py", ".sh"))]
        return {
            "files": {
                str(script): hashlib.sha256(script.read_bytes()).hexdigest()
                for script in scripts
                if script.is_file()
            }
        }

    def problems(self) -> list[Problem]:
        """Return one placeholder problem; the real ones are in the harness."""
        name = self.config.name
        return [Problem(name, shlex.join(self.config.command), "external", {}, "external")]

    def longest(
        self, problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, limit: int
    ) -> int:
        """Return 1: our engine is not used."""
        return 1

    def answer(self, problems: Sequence[Problem], model: ModelAccess) -> Iterator[ExternalAnswer]:
        """Run the command; it is completed as a whole or not at all."""
        folder, log = model.folder / "output", model.folder / "external.log"
        shutil.rmtree(folder, ignore_errors=True)  # no output of an earlier attempt may be read
        folder.mkdir(parents=True)
        output, checkpoint = folder.resolve() / "metrics.json", Path(model.path).expanduser()
        places = {
            "{checkpoint}": str(checkpoint.resolve()) if checkpoint.is_dir() else model.path,
            "{output}": str(output),
        }
        command = [_filled(word, places) for word in self.config.command]
        model.say(f"{self.config.name}: {shlex.join(command)}; its output: {log}")
        names = (*PASSED_ON, *self.config.pass_env)
        passed_on = {name: os.environ[name] for name in names if name in os.environ}
        run_command(
            command,
            # unbuffered, a log shows the progress of a Python program that is killed
            env={"PYTHONUNBUFFERED": "1"} | passed_on | self.config.env,
            log=log,
            timeout=self.config.timeout,
            name=self.config.name,
        )
        values = self._read(output, log)
        headline = next(iter(values))
        verdict = Verdict(values[headline], parts=values, detail=f"score is {headline}")
        completion = Completion.from_text(json.dumps(values, ensure_ascii=False))
        judged = Judged(completion, {"external": verdict}, verdict.score, None)
        yield ExternalAnswer(problems[0], shlex.join(command), (judged,))

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Return the metrics as they were read."""
        return EvalReport(_values(groups), 1)

    def estimates(self, groups: Sequence[Group]) -> Mapping[str, Estimate]:
        """Return the metrics; n is 0, without an interval, if the configuration states no n."""
        values = _values(groups)
        return {name: _estimate(values[name], one) for name, one in self.config.metrics.items()}

    def _read(self, path: Path, log: Path) -> dict[str, float]:
        """Return the value of every metric.

        Raises:
            RunError: If the file is missing or malformed, or a metric is no number; reports all
                faults at once, with the end of the log.
        """
        if not path.is_file():
            raise self._fault("ended well but left no {output}", path, log)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._fault(f"left a file that is no JSON: {error}", path, log) from error
        faults: list[str] = []
        values: dict[str, float] = {}
        for name, metric in self.config.metrics.items():
            try:
                values[name] = _number(_at(data, metric.path), metric)
            except (LookupError, ValueError) as error:
                faults.append(f"metric '{name}': {error.args[0]}")
        if faults:
            raise self._fault("; ".join(faults), path, log)
        return values

    def _fault(self, what: str, where: Path, log: Path) -> RunError:
        return RunError(
            f"external task '{self.config.name}' {what}",
            where=str(where),
            remedy=(f"the end of {log}:", *tail(log)),
        )


def _filled(word: str, places: Mapping[str, str]) -> str:
    """Fill in our placeholders; other braces are left for the harness."""
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _values(groups: Sequence[Group]) -> Mapping[str, float]:
    return groups[0].members[0].verdicts["external"].parts


def _estimate(value: float, metric: Metric) -> Estimate:
    if metric.n is None or not metric.rate:
        return Estimate(value, metric.n or 0, None, None, "none")
    return Estimate(value, metric.n, *wilson(round(value * metric.n), metric.n), "wilson")


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


def _number(value: Any, metric: Metric) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{json.dumps(value)[:60]} is no number")
    if metric.rate and not 0 <= value <= 1:
        raise ValueError(f"{value:g} is no rate: it is not between 0 and 1")
    return float(value)
