"""Reads the content of a group's page: completions, tokens, verdicts, turns and tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rlvr_core.api import BadCall, RlvrError
from rlvr_core.toolkit import RunView, brief, load_host, tool_format
from rlvr_view.viewer.gaps import branches_of
from rlvr_view.viewer.tokens import Token, strength, tokens, unlikely

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rlvr_core.api import ToolFormat

TOKENS = 1500
"""Tokens of a completion that are shown unless the user shows all."""
TEXT = 20_000
"""Characters of a text that are shown unless the user shows all."""


@dataclass(slots=True)
class Turn:
    """A turn of a conversation, or the whole of a single answer.

    Attributes:
        role: Role of the speaker; empty for a single answer.
        text: The text.
        tokens: The tokens; empty if they are not known.
        calls: The tool calls in it, each as text.
    """

    role: str
    text: str
    tokens: Sequence[Token] = ()
    calls: Sequence[str] = ()


@dataclass(slots=True)
class Shown:
    """One completion.

    Attributes:
        sample: Index in the group.
        css: Classes of its advantage.
        outcome: ``right``, ``wrong`` or ``not judged``.
        facts: Name and value of each fact, both short.
        turns: The turns.
        verdicts: Each verifier's name, and the fields of its verdict as pairs.
        unlikely: The most unlikely tokens.
        left_out: Tokens or characters that are not shown.
        matches: Whether it fits the filters.
    """

    sample: int
    css: str
    outcome: str
    facts: dict[str, str]
    turns: list[Turn]
    verdicts: list[tuple[str, list[tuple[str, str]]]]
    unlikely: list[tuple[str, str]] = field(default_factory=list)
    left_out: str = ""
    matches: bool = True


def completions(
    row: Mapping[str, Any], view: RunView, tokenizer: Tokenizer | None, *, whole: bool
) -> list[Shown]:
    """Return the completions of a group as recorded, in their order."""
    formats = tool_formats(view.config)
    members = [completion for completion in row["completions"] if isinstance(completion, dict)]
    return [
        _completion(sample, member, row, tokenizer, formats, whole=whole)
        for sample, member in enumerate(members)
    ]


def not_recorded(row: Mapping[str, Any], tokenizer: Tokenizer | None) -> list[str]:
    """Return sentences on what the page cannot show, and why."""
    members = [completion for completion in row["completions"] if isinstance(completion, dict)]
    notes = []
    if not any(member.get("token_ids") for member in members):
        notes.append("No tokens were recorded of this group: its text has no colours.")
    elif tokenizer is None:
        notes.append(
            "The run's tokenizer is not on this machine (looked for in its checkpoints, the "
            "model's folder and the hub's cache): tokens are shown as their ids, below the text."
        )
    if not any(member.get("gaps") for member in members):
        notes.append(
            "Of these completions no gap between trainer and engine was recorded by token; the "
            "facts above have its mean over the step, where the run measured it."
        )
    if not any(member.get("token_versions") for member in members):
        notes.append("All tokens of a completion are of one policy version.")
    return notes


def tool_formats(config: Any) -> list[ToolFormat]:
    """Return the tool formats that a run's configuration names, else all installed ones."""
    formats = []
    for name in dict.fromkeys(_named(config)) or _installed_formats():
        try:
            formats.append(tool_format(name))
        except RlvrError:
            continue
    return formats


@cache
def _installed_formats() -> tuple[str, ...]:
    entries = load_host().registry.entries.values()
    return tuple(entry.name for entry in entries if entry.kind == "tool_format")


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            if key == "tool_format" and isinstance(child, str):
                yield child
            yield from _named(child)
    elif isinstance(value, list):
        for child in value:
            yield from _named(child)


def _completion(
    sample: int,
    completion: Mapping[str, Any],
    row: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    formats: Sequence[ToolFormat],
    *,
    whole: bool,
) -> Shown:
    count = len(completion["token_ids"]) if isinstance(completion.get("token_ids"), list) else 0
    shown_tokens = tokens(completion, tokenizer, count if whole else TOKENS)
    turns = list(_turns(completion, shown_tokens if tokenizer else [], formats))
    left = max(0, count - TOKENS)
    if not whole and not tokenizer:
        left = 0
        for turn in turns:
            left += max(0, len(turn.text) - TEXT)
            turn.text = turn.text[:TEXT]
    if shown_tokens and not tokenizer:
        turns.append(Turn("token ids", "", shown_tokens))
    turns += _branches(completion, tokenizer, formats, whole=whole)
    unit = "tokens" if tokenizer else "characters"
    advantage = completion.get("advantage")
    advantage = advantage if isinstance(advantage, int | float) else None
    return Shown(
        sample,
        strength(advantage),
        _named_outcome(completion.get("passed"), "right", "wrong", "not judged"),
        _facts(completion, row, advantage),
        turns,
        list(_verdicts(completion)),
        unlikely(completion, shown_tokens),
        f"{left:,} {unit}" if left and not whole else "",
    )


def _facts(
    completion: Mapping[str, Any], row: Mapping[str, Any], advantage: float | None
) -> dict[str, str]:
    transcript = completion.get("transcript")
    transcript = transcript if isinstance(transcript, dict) else {}
    counts = transcript.get("counts")
    facts = {
        "reward": _number(completion.get("reward")),
        "advantage": "none" if advantage is None else brief(advantage),
        "fate": str(completion.get("fate") or row.get("fate") or "").replace("_", " "),
        "finished by": str(completion.get("finish_reason") or ""),
        "tokens": _number(completion.get("n_tokens")),
        "version": _number(completion.get("version")),
        "environment": str(transcript.get("environment") or ""),
        "ended": str(transcript.get("ended") or ""),
        "counts": ", ".join(f"{k} {_number(v)}" for k, v in counts.items())
        if isinstance(counts, dict)
        else "",
        "detail": str(transcript.get("detail") or ""),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _turns(
    completion: Mapping[str, Any], shown_tokens: Sequence[Token], formats: Sequence[ToolFormat]
) -> Iterator[Turn]:
    transcript = completion.get("transcript")
    turns = transcript.get("turns") if isinstance(transcript, dict) else None
    if not isinstance(turns, list):
        yield Turn("", str(completion.get("text") or ""), shown_tokens)
        return
    counts = transcript.get("counts") if isinstance(transcript, dict) else None
    tools = isinstance(counts, dict) and "tool_calls" in counts
    place = 0
    for turn in turns:
        if not isinstance(turn, dict):
            continue
        role, text, n = str(turn.get("role")), str(turn.get("text") or ""), turn.get("n_tokens")
        end = place + (n if isinstance(n, int) else 0)
        calls = list(_calls(text, formats)) if tools and role == "assistant" else []
        yield Turn(role, text, shown_tokens[place:end], calls)
        place = end


def _branches(
    completion: Mapping[str, Any],
    tokenizer: Tokenizer | None,
    formats: Sequence[ToolFormat],
    *,
    whole: bool,
) -> Iterator[Turn]:
    """Yield the turns of a conversation's other branches, each behind a heading."""
    branches = branches_of(completion)
    for number, branch in enumerate(branches, start=1):
        yield Turn(
            f"branch {number} of {len(branches)}",
            "A history of its own, with this reward and advantage.",
        )
        ids = branch.get("token_ids")
        count = len(ids) if isinstance(ids, list) else 0
        shown_tokens = tokens(branch, tokenizer, count if whole else TOKENS)
        for turn in _turns(branch, shown_tokens if tokenizer else [], formats):
            yield turn if whole else replace(turn, text=turn.text[:TEXT])
        if shown_tokens and not tokenizer:
            yield Turn("token ids", "", shown_tokens)


def _calls(text: str, formats: Sequence[ToolFormat]) -> Iterator[str]:
    """Yield the tool calls of a turn, by the first format that finds any."""
    for format_ in formats:
        if calls := format_.parse(text):
            for call in calls:
                if isinstance(call, BadCall):
                    yield f"not a call: {call.error}"
                else:
                    arguments = ", ".join(
                        f"{name}={value!r}" for name, value in call.arguments.items()
                    )
                    yield f"{call.name}({arguments})"
            return


def _verdicts(completion: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    recorded = completion.get("verdicts")
    verdicts = dict(recorded) if isinstance(recorded, dict) else {}
    transcript = completion.get("transcript")
    if isinstance(transcript, dict) and isinstance(transcript.get("verdict"), dict):
        judged = transcript["verdict"]
        if not any(isinstance(v, dict) and _says(v) == _says(judged) for v in verdicts.values()):
            verdicts[f"{transcript.get('environment')} (environment)"] = judged
    for name, verdict in verdicts.items():
        if not isinstance(verdict, dict):
            continue
        parts, spans = verdict.get("parts"), verdict.get("spans")
        facts = {
            "score": _number(verdict.get("score")) or "none",
            "status": str(verdict.get("status") or ""),
            "passed": _named_outcome(verdict.get("passed"), "yes", "no", ""),
            "took as the answer": str(verdict.get("extracted") or ""),
            "reason": str(verdict.get("detail") or ""),
            "parts": ", ".join(f"{k} {_number(v)}" for k, v in parts.items())
            if isinstance(parts, dict)
            else "",
            "spans": "; ".join(map(_span, spans)) if isinstance(spans, list) else "",
        }
        yield str(name), [(key, value) for key, value in facts.items() if value]


def _named_outcome(passed: Any, yes: str, no: str, neither: str) -> str:
    return yes if passed is True else no if passed is False else neither


def _says(verdict: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(verdict.get(key) for key in ("score", "status", "detail"))


def _span(span: Any) -> str:
    if not isinstance(span, dict):
        return ""
    return (
        f"{span.get('unit')} {span.get('start')} to {span.get('end')}: {_number(span.get('score'))}"
    )


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return str(value) if isinstance(value, int) else brief(value)
