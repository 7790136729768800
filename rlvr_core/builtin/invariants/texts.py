"""What completions say of themselves, their text and how they ended, follows from their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlvr_core.builtin.invariants.endings import Endings, Turn, Wrong, remedy, turns_of
from rlvr_core.builtin.invariants.model_files import ModelFiles

if TYPE_CHECKING:
    from rlvr_core.api import Group, Problem
    from rlvr_core.api.services import Conversations

PIECE = "\u2581"
"""What a piece of SentencePiece begins with that stands for a space before it."""


@dataclass(slots=True)
class Counts:
    """How the completions of a step ended."""

    turns: int = 0
    by_token: int = 0
    by_string: int = 0
    wrong: list[tuple[Group, int, Wrong]] = field(default_factory=list)


class Texts:
    """Judges texts and endings of completions.

    Args:
        files: The model's files.
        conversations: Present problems.
        stop: Stop strings, beside those of each problem.
        max_tokens: The most tokens of a completion; a problem may have fewer.
        room: Tokens of prompt and completion that the engine was told to make room for.
        turn_cap: The most tokens of one turn of a conversation.
    """

    def __init__(
        self,
        files: ModelFiles,
        conversations: Conversations,
        *,
        stop: Sequence[str],
        max_tokens: int,
        room: int,
        turn_cap: int | None,
    ) -> None:
        self._files, self._present = files, conversations.present
        self._endings, self._room = Endings(files, room), room
        self._stop, self._max_tokens, self._turn_cap = stop, max_tokens, turn_cap

    def wrong(
        self, groups: Sequence[Group], decoded: Sequence[tuple[Group, int]]
    ) -> tuple[str, str] | None:
        """Return what is wrong with the endings of groups and the texts of some, with a remedy.

        Args:
            groups: The groups.
            decoded: Groups, and numbers of their completions, whose text is looked at.
        """
        return self.wrong_ending(self.count(groups, decoded)) or self.wrong_text(decoded)

    def count(self, groups: Sequence[Group], decoded: Sequence[tuple[Group, int]]) -> Counts:
        """Count how the completions of groups ended, and what contradicts it; see ``wrong``."""
        counts, chosen = Counts(), {(id(group), number) for group, number in decoded}
        for group in groups:
            self._count(group, counts, chosen)
        return counts

    def _count(self, group: Group, counts: Counts, chosen: Set[tuple[int, int]]) -> None:
        """Count how a group's completions ended, and what contradicts it."""
        shown = self._present(group.problem)
        stops = tuple(dict.fromkeys((*self._stop, *group.problem.stop, *shown.stop)))
        ends = self._endings.end_ids(stops)
        for number in range(len(group.members)):
            decode = (id(group), number) in chosen
            for turn in self._turns(group, number):
                counts.turns += 1
                ended = bool(turn.ids) and turn.ids[-1] in ends
                counts.by_token += ended
                if wrong := self._endings.wrong(turn, ends, stops, decode=decode):
                    counts.wrong.append((group, number, wrong))
                elif not ended and turn.ended == "stop":
                    counts.by_string += 1

    def _turns(self, group: Group, number: int) -> list[Turn]:
        most = self._max_tokens
        cap = min(most, group.problem.max_tokens or most)
        return turns_of(group.members[number].completion, cap, self._turn_cap)

    def wrong_ending(self, counts: Counts) -> tuple[str, str] | None:
        """Return what contradicts the finish reasons, with its remedy; None if nothing does."""
        if not counts.wrong:
            return None
        kind = Counter(wrong.kind for *_, wrong in counts.wrong).most_common(1)[0][0]
        same = [one for one in counts.wrong if one[2].kind == kind]
        group, number, wrong = same[0]
        return (
            f"the finish reason of {len(counts.wrong)} of {counts.turns} completions contradicts "
            f"their tokens (band: none): completion {number} of problem {group.problem.id} "
            f"{wrong.what}",
            remedy([one for *_, one in same], self._room),
        )

    def wrong_text(self, places: Sequence[tuple[Group, int]]) -> tuple[str, str] | None:
        """Return how texts are not those of their tokens, with a remedy; None if they are.

        Args:
            places: Groups, and numbers of their completions.
        """
        wrong = []
        for group, number in places:
            mine, judged = self._turns(group, number), group.members[number].completion.text
            texts = [(turn.ids, turn.text) for turn in mine]
            if mine and judged != mine[-1].text:
                texts.append((mine[-1].ids, judged))
            for ids, text in texts:
                if (due := self._files.decode(ids)) != text and not self._alike(ids, text, due):
                    wrong.append((group, number, ids, text, due))
        if not wrong:
            return None
        group, number, ids, text, due = wrong[0]
        return (
            f"the text that is judged and the tokens that are trained on disagree in {len(wrong)} "
            f"of {len(places)} completions that were decoded again (band: none): completion "
            f"{number} of problem {group.problem.id} is judged by {_around(text, due)}, and its "
            f"tokens decode to {_around(due, text)}{_in_common(wrong, places)}",
            self._why(ids, text, due),
        )

    def _alike(self, ids: tuple[int, ...], text: str, due: str) -> bool:
        """Whether a text is that of the tokens as another decoder writes it.

        One that decodes as tokens come holds back a character that never became whole, keeps the
        space before the first piece, and does not clean up spaces before punctuation.
        """
        decode = self._files.tokenizer.decode
        plain = str(decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
        first = str(self._files.tokenizer.convert_ids_to_tokens(list(ids[:1]))[:1])
        spaces = ("", " ") if PIECE in first else ("",)
        forms = {space + one for one in (due, plain) for space in spaces}
        return bool({text, text.rstrip("\ufffd")} & {*forms, *(f.rstrip("\ufffd") for f in forms)})

    def _why(self, ids: tuple[int, ...], text: str, due: str) -> str:
        tokenizer = self._files.tokenizer
        if text == str(tokenizer.decode(list(ids))):
            return "decode with skip_special_tokens=True: special tokens are no text"
        pieces = [str(tokenizer.decode([one], skip_special_tokens=True)) for one in ids]
        if text in ("".join(pieces), " ".join(pieces)):
            return (
                "tokens are decoded one by one: decode them together, as the text of a token "
                "depends on its neighbours"
            )
        if text in due:
            return (
                "characters or tokens are lost on the way to the verifier: judge the text as it "
                "is, and let the verifier leave out what it does not want"
            )
        if due and (text.startswith(due) or text.endswith(due)):
            return (
                "the text is changed, or first or last tokens are written over or dropped since, "
                "as the last token by an end of sequence: token_ids are all that the engine sampled"
            )
        return (
            "the text is changed, or is that of another completion: a Generation's text is its "
            "token_ids decoded without special tokens, and nothing else"
        )


def _in_common(
    wrong: Sequence[tuple[Group, int, object, object, object]], places: Sequence[tuple[Group, int]]
) -> str:
    """Say how all of the wrong completions ended, if others ended otherwise."""
    ends = {group.members[number].completion.finish_reason for group, number, *_ in wrong}
    others = {group.members[number].completion.finish_reason for group, number in places}
    if len(ends) > 1 or ends == others:
        return ""
    how = "truncated" if ends == {"length"} else f"those with finish_reason {min(ends)}"
    return f"; all of them are {how}"


def _around(text: str, other: str, most: int = 48) -> str:
    """Return a text around the first place where it differs from another."""
    pairs = enumerate(zip(text, other, strict=False))
    at = next((at for at, (one, two) in pairs if one != two), min(len(text), len(other)))
    begin = max(0, at - most // 2)
    end = begin + most
    return f"{'...' if begin else ''}{text[begin:end]!r}{'...' if end < len(text) else ''}"


def others_than_asked(
    groups: Sequence[Group], problems: Sequence[Problem], n: int
) -> tuple[str, str] | None:
    """Return how the groups of an evaluation are not those that were asked for, with a remedy.

    Args:
        groups: What was sampled, in order.
        problems: The problems of the task, in order.
        n: Completions of each.
    """
    cause = (
        "completions are lost, counted twice or mixed up on their way from the engine or from "
        "other processes: look at what gathers them"
    )
    if len(groups) != len(problems):
        return f"are {len(groups)} groups, and its task has {len(problems)} problems", cause
    for place, (group, problem) in enumerate(zip(groups, problems, strict=True)):
        if group.problem.id != problem.id:
            return f"group {place} is of problem {group.problem.id}, and not {problem.id}", cause
        if len(group.members) != n:
            return f"problem {problem.id} has {len(group.members)} completions, and not {n}", cause
        if len({member.completion.prompt_ids for member in group.members}) > 1:
            return f"completions of problem {problem.id} have several prompts", cause
    return None
