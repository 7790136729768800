"""A sheet of the first completions: what would keep a run from learning, with its likely cause.

It stops nothing. A run may begin with shares like these and learn; whoever watches it should know.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rlvr_core.builtin.invariants.model_files import ModelFiles

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group, Judged, Problem
    from rlvr_core.api.services import RunConfig

ENOUGH = 48
"""Completions that make a sheet; steps are put together until there are as many."""
STEPS = 4
"""Steps after which there are none."""
MOST = 0.9
"""Share of completions that are cut off, or groups without a difference, from which it is told."""
LEAST_FOUND = 0.02
"""Share of completions in which the verifier finds an answer, below which it is told."""
LEAST_DISTINCT = 0.2
"""Share of completions that are distinct in their group, below which it is told."""
HALF = 0.5
"""Share of completions that loop, are empty or begin another prompt, from which it is told."""
GROUPS = 6
"""Groups below which nothing is said of their differences."""
TURNS = (
    *("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]"),
    *("\nUser:", "\nHuman:", "\nQuestion:"),
)
"""Beginnings of another's turn."""


class FirstSheet:
    """Collects the first completions of a run, and says what is odd about them, once.

    Args:
        config: The run's configuration.
        files: The model's files.
        say: Tells the user.

    Attributes:
        open: Whether completions are still collected; a resumed run has no first ones.
    """

    def __init__(self, config: RunConfig, files: ModelFiles, say: Callable[[str], None]) -> None:
        self._config, self._files, self._say = config, files, say
        self.open = False
        self._groups: list[Group] = []
        self._steps = 0

    def add(self, groups: Sequence[Group]) -> None:
        """Take the groups of a step, and make the sheet if they are enough."""
        if not self.open:
            return
        self._groups += groups
        self._steps += 1
        members = [member for group in self._groups for member in group.members]
        if len(members) < ENOUGH and self._steps < STEPS:
            return
        self.open = False
        if len(members) >= ENOUGH:
            for line in self._lines(members):
                self._say(f"warning: first completions: {line}; see rlvr docs guards#completions")
        self._groups = []

    def _lines(self, members: Sequence[Judged]) -> Iterator[str]:
        completions = [member.completion for member in members]
        yield from self._truncated(completions)
        yield from self._extracted(members)
        yield from self._differences(completions)
        yield from self._text(completions)
        yield from self._constant(members)
        yield from self._failures(members)
        yield from self._problems()

    def _truncated(self, completions: Sequence[Completion]) -> Iterator[str]:
        n = len(completions)
        cut = sum(one.finish_reason == "length" for one in completions)
        if cut < MOST * n:
            return
        special, ends = self._files.special_ids, self._files.end_ids
        passed = Counter(
            token
            for one in completions
            for token in {*one.token_ids} & special
            if token not in ends
        )
        setting, limit = self._limit()
        value = f"{cut} of {n} are cut off at {setting} ({limit}) without an end-of-sequence token"
        if passed and passed.most_common(1)[0][1] > HALF * n:
            token, times = passed.most_common(1)[0]
            yield (
                f"{value}, and {times} write {self._files.named(token)} and go on: make it an "
                "eos_token_id of generation_config.json"
            )
        else:
            yield (
                f"{value}: raise {setting}, or set sampling.stop if the model never "
                "writes the token that ends an answer (a base model, a wrong eos_token_id)"
            )

    def _limit(self) -> tuple[str, int]:
        """What cuts completions off, and at how many tokens."""
        limit = self._config.sampling.max_tokens
        own = [group.problem.max_tokens or limit for group in self._groups]
        if max(own) < limit:
            return "max_tokens of the problems, which is below sampling.max_tokens", max(own)
        return "sampling.max_tokens", limit

    def _extracted(self, members: Sequence[Judged]) -> Iterator[str]:
        parts = [
            float(verdict.parts["extracted"])
            for member in members
            for verdict in list(member.verdicts.values())[:1]
            if "extracted" in verdict.parts
        ]
        if len(parts) < ENOUGH or sum(parts) >= LEAST_FOUND * len(parts):
            return
        stopped = [
            member.completion
            for member in members
            if member.completion.finish_reason == "stop"
            and not {*member.completion.token_ids[-1:]} & self._files.end_ids
        ]
        value = f"the verifier finds an answer in {sum(parts):.0f} of {len(parts)}"
        if len(stopped) > HALF * len(members):
            yield (
                f"{value}, and {len(stopped)} end by a stop string: it cuts answers off (stop of "
                "sampling or of the problems)"
            )
        elif sum(m.completion.finish_reason == "length" for m in members) >= MOST * len(members):
            yield f"{value}: they are cut off before it (sampling.max_tokens)"
        else:
            yield (
                f"{value}: prompt (template, data.prompt.prefix and system) and verifier do not "
                "agree on the form of an answer"
            )

    def _differences(self, completions: Sequence[Completion]) -> Iterator[str]:
        groups = [group for group in self._groups if len(group.members) > 1]
        if len(groups) < GROUPS:
            return
        distinct = sum(len({m.completion.token_ids for m in g.members}) for g in groups)
        drawn = sum(len(group.members) for group in groups)
        if distinct < LEAST_DISTINCT * drawn:
            yield (
                f"{distinct} of {drawn} are distinct, most groups are one answer repeated: raise "
                f"sampling.temperature ({self._config.sampling.temperature:g}; 1 is usual)"
            )
        rewards = [{member.reward for member in group.members} - {None} for group in groups]
        alike = [some for some in rewards if len(some) == 1]
        if len(alike) >= MOST * len(groups):
            values = Counter(reward for some in alike for reward in some).most_common(2)
            shown = ", ".join(f"{times} groups of reward {value:g}" for value, times in values)
            yield (
                f"{len(alike)} of {len(groups)} groups have rewards that do not differ ({shown}), "
                "so there is next to nothing to learn from: easier or harder problems, more "
                "completions (sampling.n), or a verifier that tells answers apart"
            )

    def _text(self, completions: Sequence[Completion]) -> Iterator[str]:
        n, texts = len(completions), [one.text for one in completions]
        for what, cause, some in (
            ("are empty", "an end-of-sequence token or stop string comes at once", _empty(texts)),
            ("repeat themselves", "the prompt may not fit the model", list(filter(_loops, texts))),
            (
                "begin another prompt",
                "set sampling.stop, or the end-of-sequence token that the model was trained with",
                [text for text in texts if any(mark in text for mark in TURNS)],
            ),
        ):
            if len(some) > HALF * n:
                yield f"{len(some)} of {n} {what}: {cause}"

    def _constant(self, members: Sequence[Judged]) -> Iterator[str]:
        """Rewards beside the first that are the same for every completion."""
        scores: dict[str, list[float | None]] = {}
        for member in members:
            for name, verdict in list(member.verdicts.items())[1:]:
                scores.setdefault(name, []).append(verdict.score)
        for name, known in scores.items():
            if len(known) == len(members) and len(set(known)) == 1 and known[0] is not None:
                yield (
                    f"the reward {name} is constant: it gives all {len(known)} the score "
                    f"{known[0]:g}, so nothing is learnt from it"
                )

    def _failures(self, members: Sequence[Judged]) -> Iterator[str]:
        """Completions that fail, by the first verifier's own word, and have unequal scores."""
        failed = [
            (name, verdict)
            for member in members
            for name, verdict in list(member.verdicts.items())[:1]
            if verdict.passed is False and verdict.score is not None
        ]
        for name in dict.fromkeys(name for name, _ in failed):
            own = [verdict for of, verdict in failed if of == name]
            scores = Counter(float(verdict.score or 0.0) for verdict in own)
            if len(scores) < 2:
                continue
            least, most = min(scores), max(scores)
            none = [v.score or 0.0 for v in own if not v.parts.get("extracted", v.extracted)]
            without = f"; without an answer {sum(none) / len(none):.3g} in the mean" if none else ""
            yield (
                f"{len(own)} fail by the verifier {name}, and have scores from {least:g} "
                f"({scores[least]} times) to {most:g} ({scores[most]}), not one{without}: a "
                "penalty or partial credit of the verifier, which is trained on"
            )

    def _problems(self) -> Iterator[str]:
        """Odd characters in prompts, and caps that problems have of their own."""
        problems = list({one.problem.id: one.problem for one in self._groups}.values())
        prompts = [_words(one) for one in problems]
        for what, some in (
            ("end in white space", [one for one in prompts if one[-1:].isspace()]),
            ("have characters that look like spaces or are not seen", list(filter(_odd, prompts))),
            ("have digits or letters of full width", list(filter(_WIDE.search, prompts))),
        ):
            if some:
                shown = sorted({f"U+{ord(c):04X}" for one in some for c in one if c in _UNSEEN})
                yield (
                    f"{len(some)} of {len(prompts)} prompts {what}"
                    f"{' (' + ', '.join(shown[:5]) + ')' if shown else ''}: the tokenizer makes "
                    "other tokens of them; clean the data, or leave them if they are meant"
                )
        most = self._config.sampling.max_tokens
        capped = [one for one in problems if (one.max_tokens or most) < most]
        if 0 < len(capped) < len(problems):
            least = min(one.max_tokens or most for one in capped)
            yield (
                f"{len(capped)} of {len(problems)} problems have a max_tokens of their own, as low "
                f"as {least}, below sampling.max_tokens ({most})"
            )


_UNSEEN = frozenset("\u00a0\u00ad\u200b\u200c\u200d\u2060\ufeff\u202f\u2007\x00\x0b\x0c")
"""No-break and zero-width spaces, soft hyphens, byte-order marks, control characters."""


_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")


def _words(problem: Problem) -> str:
    """Return the text of a problem's last message."""
    prompt = problem.prompt
    if isinstance(prompt, str):
        return prompt
    return str(prompt[-1].content) if prompt else ""


def _odd(text: str) -> bool:
    return any(character in _UNSEEN for character in text)


def _empty(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if not text.strip()]


def _loops(text: str) -> bool:
    """Whether the second half compresses to an eighth: little but repetition."""
    tail = text[len(text) // 2 :].encode()
    return len(tail) >= 100 and len(zlib.compress(tail, 6)) < len(tail) / 8
