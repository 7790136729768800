"""One verifier process: constructs the verifiers, then judges what the pool sends, one by one.

It imports nothing heavy of its own. Requests come pickled from the pool; answers go back as JSON,
so that nothing a verifier returns is ever unpickled by the trainer.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import mmap
import os
import pickle
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from numbers import Real
from pathlib import Path
from typing import IO, Any

from rlvr_core.api import (
    Completion,
    Json,
    LimitsTime,
    Span,
    Usage,
    Verdict,
    VerifierTraits,
    config_class,
    traits_of,
)
from rlvr_core.host.functions import component

STATUSES = ("ok", "unscorable", "timeout", "error")
MAX_DETAIL = 500
"""Characters of a detail that are kept."""
MAX_EXTRACTED = 20_000
"""Characters of an extracted answer that are kept."""
MAX_PARTS = 1_000
"""Named partial scores a verdict may have."""
MAX_SPANS = 100_000
"""Spans a verdict may have."""
REPORT_EVERY = 0.002
"""Seconds of verdicts that may go into one report: a message each would cost the pool more than
many verdicts cost the worker."""

OUT_OF_MEMORY = "out of memory"

PlainVerdict = list[Json]
"""``[score, status, passed, parts, extracted, detail, usage, spans]``, fit for JSON."""


@dataclass(frozen=True, slots=True)
class VerifierSpec:
    """How a worker constructs a verifier.

    Attributes:
        target: ``module:Class``.
        config: Values of its ``Config``.
    """

    target: str
    config: Mapping[str, Json]

    def load(self) -> Any:
        """Import the class; a plain function becomes one."""
        module, _, attribute = self.target.partition(":")
        return component("verifier", getattr(importlib.import_module(module), attribute))

    def build(self) -> Any:
        """Construct the verifier."""
        cls = self.load()
        return cls(config_class(cls)(**self.config))

    def time_limit(self, usual: float) -> float:
        """Seconds a verdict may take: those the verifier itself names, or the usual ones."""
        cls = self.load()
        options = config_class(cls)
        return (
            float(cls.time_limit(options(**self.config))) if isinstance(cls, LimitsTime) else usual
        )


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message a worker gets."""

    specs: Mapping[str, VerifierSpec]
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Task:
    """One call of a verifier; problem and completions stay pickled until it begins.

    Every call gets fresh objects, so that a verifier which alters its input cannot touch others.
    """

    name: str
    problem: bytes
    completions: tuple[bytes, ...]
    grouped: bool

    @property
    def size(self) -> int:
        """Bytes of what is pickled."""
        return len(self.problem) + sum(map(len, self.completions))


class Progress:
    """Calls a worker has finished, in memory it shares with the pool.

    It tells the pool which call a dead or hung worker was at, whatever was still unreported.
    """

    _FORM = struct.Struct("=Q")

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, self._FORM.size)

    @classmethod
    def create(cls) -> tuple[Progress, IO[bytes]]:
        """A new one, and the open file to hand to the worker."""
        file = tempfile.TemporaryFile()  # noqa: SIM115
        file.truncate(cls._FORM.size)
        return cls(file.fileno()), file

    def read(self) -> int:
        """Calls finished."""
        count: int = self._FORM.unpack_from(self._memory)[0]
        return count

    def write(self, count: int) -> None:
        """Calls finished."""
        self._FORM.pack_into(self._memory, 0, count)


def main(descriptor: int, progress: int, parent: int) -> None:
    """Serve until the pool closes the connection. Runs in the worker process."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.set_inheritable(descriptor, False)
    os.set_inheritable(progress, False)
    with Connection(descriptor) as connection:
        try:
            setup: Setup = pickle.loads(connection.recv_bytes())
            verifiers, faults = _construct(setup.specs, connection)
            _limit_memory(setup.memory_mb)
            _send(connection, "ready", faults)
            _serve(connection, verifiers, Progress(progress))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the pool is gone


def die_with(parent: int) -> None:
    """End this process when its parent ends."""
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


def _limit_memory(memory_mb: int) -> None:
    if sys.platform != "linux":
        return  # elsewhere address space is not accounted for in a way that can be limited
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = mapped + memory_mb * 2**20
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _construct(
    specs: Mapping[str, VerifierSpec], connection: Connection
) -> tuple[dict[str, Any], dict[str, str]]:
    verifiers: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for name, spec in specs.items():
        _send(connection, "constructing", name)
        try:
            verifiers[name] = spec.build()
        except BaseException as error:
            faults[name] = f"cannot be constructed: {describe_error(error)}"
    return verifiers, faults


def _serve(connection: Connection, verifiers: Mapping[str, Any], progress: Progress) -> None:
    finished = 0
    while True:
        tasks: list[Task] = pickle.loads(connection.recv_bytes())
        told = time.monotonic()
        _send(connection, "start", told)
        reports: list[Json] = []
        for task, following in itertools.zip_longest(tasks, tasks[1:]):
            began = time.monotonic()
            verdicts, fault = _judge(verifiers[task.name], task)
            now = time.monotonic()
            finished += 1
            progress.write(finished)
            reports.append([now, now - began, verdicts, fault])
            # calls reported together are of one verifier: the pool's clock for them is the same
            same = following is not None and following.name == task.name
            if not same or now - told >= REPORT_EVERY or fault:
                _send(connection, "done", reports)
                told, reports = now, []
            if fault == OUT_OF_MEMORY:
                return  # what is left of this process is not to be trusted


def _judge(verifier: Any, task: Task) -> tuple[list[PlainVerdict] | None, str]:
    """Verdicts, or None and what went wrong."""
    try:
        problem = pickle.loads(task.problem)
        completions = [pickle.loads(completion) for completion in task.completions]
        if task.grouped:
            found = _group_verdicts(verifier.verify_group(problem, completions), completions)
        else:
            found = [verifier.verify(problem, completion) for completion in completions]
        return [
            in_range(plain_verdict(verdict, completion), verifier)
            for verdict, completion in zip(found, completions, strict=True)
        ], ""
    except MemoryError:
        return None, OUT_OF_MEMORY
    except BaseException as error:
        return None, describe_error(error)


def _group_verdicts(found: object, completions: Sequence[Completion]) -> Sequence[object]:
    """What ``verify_group`` gave, if it is one verdict per completion.

    Raises:
        TypeError: If it is no list.
        ValueError: If its length is wrong.
    """
    if not isinstance(found, list | tuple):
        raise TypeError(f"verify_group gave {type(found).__name__}, not a list of verdicts")
    if len(found) != len(completions):
        raise ValueError(
            f"verify_group gave {len(found)} verdicts for {len(completions)} completions"
        )
    return found


def in_range(verdict: PlainVerdict, verifier: Any) -> PlainVerdict:
    """Hold a score to the range its verifier declares, if it declares one.

    Raises:
        ValueError: If the score is outside of ``reward_range``.
    """
    score, limits = verdict[0], traits_of(verifier, VerifierTraits).reward_range
    if score is not None and limits is not None and not limits[0] <= score <= limits[1]:
        raise ValueError(f"score {score} is outside of its reward_range {tuple(limits)}")
    return verdict


def describe_error(error: BaseException) -> str:
    """Type and message of an exception, on one line and bounded."""
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be read)"
    return " ".join(f"{type(error).__name__}: {message[:MAX_DETAIL]}".split())[:MAX_DETAIL]


def plain_verdict(verdict: object, completion: Completion | None = None) -> PlainVerdict:
    """Check a verdict and turn it into plain JSON.

    Args:
        verdict: What a verifier or an environment returned.
        completion: What it is about, to hold its spans against; None while it is being written.

    Raises:
        TypeError: If it is no verdict or a field has the wrong type.
        ValueError: If a number in it is not finite, score and status disagree, or a span is out of
            range.
    """
    if not isinstance(verdict, Verdict):
        raise TypeError(f"returned {type(verdict).__name__}, not a Verdict")
    if verdict.status not in STATUSES:
        raise ValueError(f"status {verdict.status!r} is none of {', '.join(STATUSES)}")
    if (verdict.score is None) == (verdict.status == "ok"):
        raise ValueError(f"score {verdict.score!r} does not go with status {verdict.status!r}")
    if verdict.passed is not None and verdict.passed not in (True, False):
        raise TypeError(f"passed is {verdict.passed!r}, not True, False or None")
    if len(verdict.parts) > MAX_PARTS:
        raise ValueError(f"{len(verdict.parts)} parts; {MAX_PARTS} are the most")
    extracted = _text(verdict.extracted, "extracted", MAX_EXTRACTED)
    return [
        None if verdict.score is None else _finite(verdict.score, "score"),
        verdict.status,
        None if verdict.passed is None else bool(verdict.passed),
        {str(name): _finite(part, f"part {name}") for name, part in verdict.parts.items()},
        extracted,
        _text(verdict.detail, "detail", MAX_DETAIL) or "",
        None if verdict.usage is None else asdict(verdict.usage),
        _plain_spans(verdict, completion),
    ]


def _plain_spans(verdict: Verdict, completion: Completion | None) -> list[Json]:
    if len(verdict.spans) > MAX_SPANS:
        raise ValueError(f"{len(verdict.spans)} spans; {MAX_SPANS} are the most")
    if completion is not None:
        completion.spans_in_tokens(verdict.spans)
    elif any(span.unit != "turn" for span in verdict.spans):
        raise ValueError("an environment gives spans of turns: it does not see tokens")
    return [
        [span.start, span.end, _finite(span.score, "score of a span"), span.unit]
        for span in verdict.spans
    ]


def _text(value: object, what: str, limit: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}, not text")
    return value if len(value) <= limit else value[:limit] + " ..."


def _finite(value: object, what: str) -> float:
    if not isinstance(value, Real):
        raise TypeError(f"{what} is {type(value).__name__}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}")
    return number


def from_plain(value: Sequence[Json]) -> Verdict:
    """The verdict that ``plain_verdict`` was given."""
    score, status, passed, parts, extracted, detail, usage, spans = value
    spent = None if usage is None else Usage(**usage)
    stretches = tuple(Span(*span) for span in spans)
    return Verdict(score, status, passed, parts, extracted, detail, spent, stretches)


def _send(connection: Connection, *message: Json) -> None:
    line = json.dumps(message).encode() + b"\n"
    while line:
        line = line[os.write(connection.fileno(), line) :]
