"""A verifier in worker processes, for other programs than rlvr."""

from __future__ import annotations

import atexit
import json
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from rlvr_core.api import (
    ChecksProblems,
    Completion,
    ConfigError,
    DataError,
    Json,
    Message,
    Problem,
    Verdict,
    Verifier,
    content_id,
)
from rlvr_core.toolkit import ComponentRef, VerifierPool, VerifierSpec, build, load_host
from rlvr_core.verify.judge import ErrorRate

Judged = Future[list[dict[str, Verdict]]]


class Judging:
    """A verifier, and the processes it runs in, which start at the first verdict.

    Args:
        verifier: The verifier's name as in a config: ``math/answer``, ``./my.py:fn``.
        options: The verifier's options, as under ``with`` in a config.
        columns: Which column of the other program holds a field of the spec, by field; a column
            that is not named here is the field of its own name.
        workers: Number of processes.
        timeout: Seconds one verdict may take.
        memory_mb: MiB a process may take.
        max_error_rate: Share of the last 500 verdicts that may be errors or timeouts.

    Raises:
        ConfigError: If the name or the options are wrong.
        PluginError: If its plugin is missing or broken.
    """

    def __init__(
        self,
        verifier: str,
        options: Mapping[str, Json] | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        workers: int = 2,
        timeout: float = 10.0,
        memory_mb: int = 2048,
        max_error_rate: float = 0.2,
    ) -> None:
        host = load_host()
        entry = host.entry("verifier", verifier)
        given = dict(options or {})
        ref = ComponentRef(use=entry.name, **{"with": given})
        self.instance = build(host, "verifier", ref, "options")
        self.name = entry.name
        self.columns = dict(columns or {})
        self.compares = not isinstance(self.instance, Verifier)
        self._spec = VerifierSpec(entry.target, given)
        self._limits = {"workers": workers, "memory_mb": memory_mb}
        self._timeout = timeout
        self._errors = ErrorRate(max_error_rate)
        self._pool: VerifierPool | None = None

    def problem(self, row: Mapping[str, Any], prompt: Any) -> Problem:
        """Make the problem of a row.

        Raises:
            DataError: If the row lacks a column named in ``columns``, or is not JSON.
        """
        missing = [column for column in self.columns.values() if column not in row]
        if missing:
            raise DataError(
                f"there is no column '{missing[0]}'",
                where="columns",
                remedy=f"the columns are: {', '.join(sorted(row)) or 'none'}",
            )
        # what a row has not got is None in a table that other rows share
        spec = {name: value for name, value in row.items() if value is not None}
        spec |= {
            field: row[column] for field, column in self.columns.items() if row[column] is not None
        }
        shown = prompt_of(prompt)
        named = row.get("id")
        try:
            id_ = content_id("row", {"spec": spec, "prompt": prompt}) if named is None else named
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the columns of a row are no JSON: {error}",
                where=self.name,
                remedy="take columns out that the verifier does not read",
            ) from error
        return Problem(str(id_), shown, self.name, spec, "bridge")

    def refusal(self, problem: Problem) -> str:
        """Return why the verifier cannot judge a problem; empty if it can."""
        if not isinstance(self.instance, ChecksProblems):
            return ""
        try:
            self.instance.check(problem)
        except ConfigError as error:
            return "; ".join(part.strip() for part in str(error).splitlines())
        return ""

    def submit(self, problem: Problem, completions: Sequence[Completion]) -> Judged:
        """Submit completions of one problem to the verifier."""
        if self._pool is None:
            self._pool = VerifierPool(
                {self.name: self._spec}, timeout=self._timeout, **self._limits
            )
            atexit.register(_close, weakref.ref(self._pool))
        return self._pool.submit_group(problem, completions, [self.name])

    def verdicts(self, judged: Judged) -> list[Verdict]:
        """Wait for verdicts.

        Raises:
            RunError: If the verifier fails too often to be trusted.
        """
        verdicts = [row[self.name] for row in judged.result()]
        for verdict in verdicts:
            self._errors.observe(self.name, verdict)
        self._errors.check()
        return verdicts

    def close(self) -> None:
        """End the processes; the next verdict starts new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _close(pool: weakref.ref[VerifierPool]) -> None:
    living = pool()
    if living is not None:
        living.close()


def prompt_of(prompt: Any) -> str | tuple[Message, ...]:
    """Return a prompt as text, or as turns.

    Raises:
        DataError: If it is neither.
    """
    if isinstance(prompt, str):
        return prompt
    return tuple(Message(_field(turn, "role"), text_of(turn)) for turn in prompt)


def text_of(turn: Any) -> str:
    """Return the text of a message, whose content may be text, a list of parts, or missing.

    Raises:
        DataError: If it is something else.
    """
    content = _field(turn, "content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [_field(part, "text") for part in content]
        return "".join(text for text in texts if isinstance(text, str))
    raise DataError(
        f"the content of a message is {type(content).__name__}, not text",
        where=json.dumps(content, default=str)[:200],
    )


def answer_of(completion: Any) -> str:
    """Return the text to judge: a completion, or its last turn by the model."""
    if isinstance(completion, str):
        return completion
    replies = [turn for turn in completion if _field(turn, "role") == "assistant"]
    return text_of(replies[-1]) if replies else ""


def _field(turn: Any, name: str) -> Any:
    if isinstance(turn, Mapping):
        return turn.get(name)
    raise DataError(
        f"a message is {type(turn).__name__}, not a mapping with role and content",
        where=repr(turn)[:200],
    )
