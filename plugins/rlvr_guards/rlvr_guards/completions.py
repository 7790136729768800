"""Guard ``guards/completions``: text, finish reason and version follow from a completion's tokens.

All completions of a step that are one turn are looked at by their token ids, and a few are decoded.
Each token has a log-prob that can be one, and the version is that of weights the engine had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlvr_core.api import BaseGuard, Metric

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group, GroupsScored, GuardContext, Problem

AT_FIRST, LATER = 64, 16
"""Completions that are decoded in the first step, and in each later one."""

ABOVE = 1e-3
"""What rounding may put above a log-prob of 0."""

REMEDIES = {
    "goes on": "the engine does not stop at an end-of-sequence token of the model: compare what it "
    "stops at with eos_token_id of config.json, generation_config.json and the tokenizer",
    "no end": "the end-of-sequence token was taken off (it must be trained), or what was cut off "
    "says 'stop': look at what makes finish_reason, and at the engine's list of stop tokens",
    "over the cap": "the engine was given another cap than sampling.max_tokens or the problem's",
    "cut off": "the engine was given another cap or a shorter context, or it gave up: an answer "
    "that it aborts must be sampled again",
    "text": "the text that is judged must be that of the sampled tokens, decoded without special "
    "ones: texts are mixed up between completions, or changed on their way",
    "log-prob": "the engine must report the log-prob of each sampled token under the distribution "
    "that it sampled from",
}
"""What to do about each kind of contradiction."""


class Completions(BaseGuard):
    """What is judged and trained is what was sampled, as it was sampled."""

    name = "guards/completions"
    reports = (
        Metric("completions/end_token", "Share that ends with an end-of-sequence token.", "share"),
    )

    def bind(self, context: GuardContext) -> None:
        """Learn the model's end-of-sequence tokens."""
        super().bind(context)
        model, tokenizer = context.trainer.model, context.tokenizer
        generation = getattr(model, "generation_config", None)
        inner = model.config.get_text_config()
        given = [getattr(part, "eos_token_id", None) for part in (generation, model.config, inner)]
        self._ends = frozenset().union(*map(_ids, [*given, tokenizer.eos_token_id]))
        special = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
        self._special = dict(special)
        self._in_turns = context.config.train.max_staleness == 0

    def on_groups(self, event: GroupsScored) -> None:
        """Check the completions of a step, dropped groups included."""
        places = list(_single_turns(event)) if self.is_due(event.step) else []
        stride = max(1, -(-len(places) // (LATER if event.step else AT_FIRST)))
        ended = 0
        for number, (group, completion) in enumerate(places):
            if what := self._wrong_version(group, completion, event.version):
                raise self.fault(
                    event.step,
                    f"a completion of problem {group.problem.id} {what}",
                    "an engine labels what it samples with the version that its last load_weights "
                    "was given, read before generation begins: staleness goes by this label",
                )
            ended += completion.token_ids[-1] in self._ends
            kind, what = self._wrong_ending(group.problem, completion)
            if not kind and number % stride == event.step % stride:
                kind, what = self._wrong_text(completion)
            if kind:
                raise self.fault(
                    event.step,
                    f"a completion of problem {group.problem.id} {what}",
                    REMEDIES[kind],
                )
        self.numbers = {"completions/end_token": ended / len(places)} if places else {}

    def _wrong_ending(self, problem: Problem, completion: Completion) -> tuple[str, str]:
        """Return the kind of contradiction between tokens and finish reason, and what it is."""
        ids, sampling = completion.token_ids, self.context.config.sampling
        if not all(logp <= ABOVE for logp in completion.logprobs):  # a NaN is not
            return "log-prob", "has a log-prob that is above 0 or no number"
        stops = (*sampling.stop, *problem.stop)
        ends = self._ends | {self._special[stop] for stop in stops if stop in self._special}
        cap = problem.max_tokens or sampling.max_tokens
        early = next((n for n, id_ in enumerate(ids) if id_ in ends), len(ids))
        if early < len(ids) - 1:
            behind = len(ids) - 1 - early
            return (
                "goes on",
                f"goes on for {behind} tokens behind the token {ids[early]} that ends it",
            )
        if len(ids) > cap:
            return "over the cap", f"has {len(ids)} tokens, and the cap is {cap}"
        ended = ids[-1] in ends
        full = len(ids) == cap or len(completion.prompt_ids) + len(ids) >= self.context.room
        if completion.finish_reason == "stop" and not ended and not self._has_stop(ids, stops):
            return "no end", f"says that it stopped, and ends with the token {ids[-1]}"
        if completion.finish_reason == "length" and not full:
            return "cut off", f"is cut off (length) after {len(ids)} tokens, and the cap is {cap}"
        return "", ""

    def _has_stop(self, ids: tuple[int, ...], stops: tuple[str, ...]) -> bool:
        """Whether a stop string is in the text."""
        text = self.context.tokenizer.decode(list(ids), skip_special_tokens=False) if stops else ""
        return any(stop in text for stop in stops)

    def _wrong_text(self, completion: Completion) -> tuple[str, str]:
        """Return how the text is not that of the tokens."""
        ids = list(completion.token_ids)
        due = self.context.tokenizer.decode(ids, skip_special_tokens=True)
        plain = ["".join(text.split()) for text in (completion.text, due)]
        if plain[0] == plain[1] or (plain[0] and plain[1].startswith(plain[0])):
            return "", ""  # a stop string may be taken off the end
        return "text", (f"has the text {completion.text[-40:]!r}, and its tokens are {due[-40:]!r}")

    def _wrong_version(self, group: Group, completion: Completion, now: int) -> str:
        labels = completion.token_versions or (completion.version,)
        if max(labels) > now:
            return f"says version {max(labels)}, and the policy is at version {now}"
        if min(labels) < 0 or list(labels) != sorted(labels) or labels[0] != completion.version:
            return (
                f"begins under version {completion.version} and has tokens of {sorted({*labels})}"
            )
        if self._in_turns and group.version == now and set(labels) != {now}:
            return f"says version {min(labels)}, and the engine has that of version {now}"
        return ""


def _single_turns(event: GroupsScored) -> Iterator[tuple[Group, Completion]]:
    """Yield the completions that an engine sampled in one turn, with tokens."""
    for group in event.groups:
        for member in group.members:
            completion = member.completion
            if completion.transcript is None and completion.token_ids and completion.logprobs:
                yield group, completion


def _ids(value: Any) -> set[int]:
    """Return the tokens that a file gives as one number, as a list, or not at all."""
    if value is None:
        return set()
    return {int(token) for token in value} if isinstance(value, list | tuple) else {int(value)}
