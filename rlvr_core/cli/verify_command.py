"""``rlvr verify``: tries a verifier on existing answers."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, Any, cast

import click

from rlvr_core.api import (
    ChecksProblems,
    Completion,
    ConfigError,
    DataError,
    Message,
    Problem,
    RunError,
    Usage,
    Verdict,
    Verifier,
)
from rlvr_core.config.model import ComponentRef
from rlvr_core.config.resolve import build, parse_options
from rlvr_core.data.rows import parse_rows, read_rows
from rlvr_core.plugins.host import load_host
from rlvr_core.record.rows import usage_row, verdict_row
from rlvr_core.terminal.output import console, is_terminal, print_line
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.reward import outcome
from rlvr_core.verify.verdicts import VerifierSpec

AHEAD = 512
"""Maximum rows read and judged ahead of the one to print next."""

Numbered = tuple[int, dict[str, Any]]


@click.command()
@click.argument("verifier")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--with", "options", multiple=True, metavar="KEY=VALUE", help="Set an option.")
@click.option("--workers", type=click.IntRange(1), default=None, help="Processes  [default: CPUs]")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds a verdict may take.",
)
@click.option(
    "--memory-mb",
    type=click.IntRange(1),
    default=2048,
    show_default=True,
    help="MiB a process may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the summary as JSON.")
def verify(
    verifier: str,
    file: str,
    options: tuple[str, ...],
    workers: int | None,
    timeout: float,
    memory_mb: int,
    as_json: bool,
) -> None:
    """Judge the answers in FILE ("-" for standard input) with VERIFIER.

    Each line is {"id": ..., "spec": {...}, "response": "..."}: spec is what the verifier needs,
    under the field names of the source data set, so the whole original row will do. "prompt" may
    be added for verifiers that read it. Verdicts come on standard output in the same order, one
    a line; the summary goes to standard error.

    Example: rlvr verify math/gsm8k answers.jsonl > verdicts.jsonl
    """
    host = load_host()
    entry = host.entry("verifier", verifier)
    config = parse_options(options)
    instance = build(host, "verifier", ComponentRef(use=entry.name, **{"with": config}), "--with")
    rows, total = _rows(file)
    spec = VerifierSpec(entry.target, config)
    count = workers or os.cpu_count() or 1
    with VerifierPool({entry.name: spec}, workers=count, timeout=timeout, memory_mb=memory_mb) as p:
        compares = not isinstance(instance, Verifier)
        check = instance.check if isinstance(instance, ChecksProblems) else None
        job = Job(p, entry.name, check, compares)
        with _progress(total) as advance:
            summary = job.run(rows, advance)
    print_line(json.dumps(summary.data()) if as_json else summary.text(), stderr=True)
    if not summary.statuses["ok"]:
        raise RunError(
            "no answer was scored",
            where=file,
            remedy="the detail of each verdict says why" if summary.statuses.total() else "",
        )


def _rows(file: str) -> tuple[Iterator[Numbered], int | None]:
    """Return checked rows and their number; a file is checked whole before its first verdict."""
    if file == "-":
        stream = _unzipped(sys.stdin.buffer)
        return _checked(parse_rows(stream, "standard input"), "standard input"), None
    if Path(file).is_fifo():  # can only be read once, like standard input
        return _checked(read_rows(file), file), None
    total = sum(1 for _ in _checked(read_rows(file), file))
    return _checked(read_rows(file), file), total


def _unzipped(stream: IO[bytes]) -> IO[bytes]:
    """Return standard input, decompressed if it is gzip.

    Plain input is not wrapped: another buffer would delay the rows of a slow writer.
    """
    peek = getattr(stream, "peek", None)
    if peek is None or peek(2)[:2] != b"\x1f\x8b":
        return stream
    return cast("IO[bytes]", gzip.open(stream))


def _checked(rows: Iterable[Numbered], where: str) -> Iterator[Numbered]:
    for number, row in rows:
        fault = _fault(row)
        if fault:
            raise DataError(
                fault,
                where=f"{where}:{number}",
                remedy='a line is {"id": ..., "spec": {...}, "response": "..."}',
            )
        yield number, row


def _fault(row: dict[str, Any]) -> str:
    missing = [name for name in ("id", "spec", "response") if name not in row]
    if missing:
        return f"the row has no field '{missing[0]}'; it has {', '.join(row) or 'none'}"
    if isinstance(row["id"], bool) or not isinstance(row["id"], str | int):
        return "'id' must be text or a whole number"
    if not isinstance(row["spec"], dict):
        return "'spec' must be an object: what the verifier needs, e.g. the original row"
    if not isinstance(row["response"], str):
        return "'response' must be text"
    try:
        _prompt(row.get("prompt", ""))
    except (TypeError, KeyError):
        return "'prompt' must be text or a list of messages with role and content"
    return ""


def _prompt(value: Any) -> str | tuple[Message, ...]:
    if isinstance(value, str):
        return value
    turns = tuple(Message(turn["role"], turn["content"]) for turn in value)
    if not all(isinstance(turn.role, str) and isinstance(turn.content, str) for turn in turns):
        raise TypeError
    return turns


@dataclass(slots=True)
class Summary:
    """Counts over all verdicts."""

    statuses: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    score: float = 0.0
    repeated_ids: int = 0
    seconds: float = 0.0
    usage: Usage | None = None

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        self.statuses[verdict.status] += 1
        self.passed += outcome(verdict) is True
        self.score += verdict.score or 0.0
        if verdict.usage is not None:
            self.usage = verdict.usage if self.usage is None else self.usage + verdict.usage

    def data(self) -> dict[str, Any]:
        """Return the counts as JSON; the mean score is over scored rows, null if there are none."""
        n, scored = self.statuses.total(), self.statuses["ok"]
        return {
            "n": n,
            "scored": scored,
            "passed": self.passed,
            "mean_score": self.score / scored if scored else None,
            "statuses": {name: self.statuses[name] for name in _STATUSES},
            "repeated_ids": self.repeated_ids,
            "seconds": round(self.seconds, 3),
            "verdicts_per_second": round(n / self.seconds, 1) if self.seconds else None,
            **usage_row(self.usage),
        }

    def text(self) -> str:
        """Return the summary as text."""
        data = self.data()
        share = f" ({self.passed / data['scored']:.1%})" if data["scored"] else ""
        mean = "none" if data["mean_score"] is None else f"{data['mean_score']:.4f}"
        counts = ", ".join(f"{name} {n}" for name, n in data["statuses"].items() if n)
        lines = [
            f"{data['n']} verdicts: {self.passed} of {data['scored']} scored passed{share}, mean "
            f"score {mean}",
            f"status: {counts or 'none'}",
            f"{data['seconds']:.1f} s, {data['verdicts_per_second'] or 0:.0f} verdicts/s",
        ]
        if self.usage is not None:
            usage = self.usage
            line = f"asked: {usage.requests} requests"
            if usage.prompt_tokens is not None:
                line += f", {usage.prompt_tokens} + {usage.completion_tokens} tokens"
            lines.append(line if usage.cost is None else f"{line}, cost {usage.cost:.6g}")
        if self.repeated_ids:
            lines.append(f"warning: {self.repeated_ids} rows repeat an id met before")
        return "\n".join(lines)


_STATUSES = ("ok", "unscorable", "timeout", "busy", "error")


@dataclass(slots=True)
class Job:
    """Reads rows in one thread, prints verdicts in order in another, with a bound between."""

    pool: VerifierPool
    verifier: str
    check: Callable[[Problem], None] | None
    compares: bool = False
    summary: Summary = field(default_factory=Summary)
    broken: BaseException | None = None

    def run(self, rows: Iterable[Numbered], advance: Callable[[], None]) -> Summary:
        """Judge all rows.

        Raises:
            DataError: If a row is malformed; raised after earlier verdicts are printed.
        """
        began = time.monotonic()
        queue: Queue[tuple[Any, Future[Verdict]] | None] = Queue(maxsize=AHEAD)
        printer = Thread(target=self._print_all, args=(queue, advance), daemon=True)
        printer.start()
        fault: BaseException | None = None
        try:
            try:
                self._read(rows, queue)
            except DataError as error:
                fault = error
            queue.put(None)
            printer.join()
        except KeyboardInterrupt as stop:
            self.broken = stop
            self.pool.close()  # pending verdicts fail at once, and are not printed
            raise
        if fault := self.broken or fault:
            raise fault
        self.summary.seconds = time.monotonic() - began
        return self.summary

    def _read(
        self, rows: Iterable[Numbered], queue: Queue[tuple[Any, Future[Verdict]] | None]
    ) -> None:
        seen: set[Any] = set()
        for group in self._groups(rows):
            if self._over():
                return
            id_ = group[0]["id"]
            self.summary.repeated_ids += id_ in seen
            seen.add(id_)
            for verdict in self._submit(group):
                queue.put((id_, verdict))

    def _groups(self, rows: Iterable[Numbered]) -> Iterator[list[dict[str, Any]]]:
        """Yield rows judged together: consecutive rows of one id for group verifiers, else one."""
        if not self.compares:
            yield from ([row] for _, row in rows)
            return
        for _, group in groupby((row for _, row in rows), key=itemgetter("id")):
            yield list(group)

    def _over(self) -> bool:
        return self.broken is not None

    def _submit(self, rows: list[dict[str, Any]]) -> list[Future[Verdict]]:
        """Submit answers to one problem; return the futures of their verdicts."""
        first = rows[0]
        prompt = _prompt(first.get("prompt", ""))
        problem = Problem(str(first["id"]), prompt, self.verifier, first["spec"], "file")
        futures: list[Future[Verdict]] = [Future() for _ in rows]
        refusal = self._refusal(problem)
        if refusal is not None:
            for future in futures:
                future.set_result(refusal)
            return futures
        answers = [Completion.from_text(row["response"]) for row in rows]

        def share(done: Future[list[dict[str, Verdict]]]) -> None:
            for future, verdicts in zip(futures, done.result(), strict=True):
                future.set_result(verdicts[self.verifier])

        self.pool.submit_group(problem, answers, [self.verifier]).add_done_callback(share)
        return futures

    def _refusal(self, problem: Problem) -> Verdict | None:
        if self.check is None:
            return None
        try:
            self.check(problem)
        except ConfigError as error:
            return Verdict(None, "unscorable", detail=_one_line(error))
        except Exception as error:
            return Verdict(None, "error", detail=f"check: {type(error).__name__}: {error}")
        return None

    def _print_all(
        self, queue: Queue[tuple[Any, Future[Verdict]] | None], advance: Callable[[], None]
    ) -> None:
        while (item := queue.get()) is not None:
            if self._over():
                continue  # nobody reads the output any more; let the other thread finish
            try:
                verdict = item[1].result()
                if self._over():
                    continue
                sys.stdout.write(json.dumps(line(item[0], verdict)) + "\n")
                sys.stdout.flush()
            except BaseException as error:
                self.broken = error
            else:
                self.summary.add(verdict)
                advance()


def _one_line(error: ConfigError) -> str:
    return "; ".join(part.strip() for part in str(error).splitlines())


def line(id_: str | int, verdict: Verdict) -> dict[str, Any]:
    """Return one line of output."""
    return {"id": id_, **verdict_row(verdict)}


@contextlib.contextmanager
def _progress(total: int | None) -> Iterator[Callable[[], None]]:
    if is_terminal() or not is_terminal(stderr=True):
        yield lambda: None  # on a terminal the verdicts themselves show the progress
        return
    from rich import progress

    columns = (
        progress.TextColumn("verifying"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("verifying", total=total)
        yield lambda: bar.advance(task)
