"""Invariant ``completions``: their text, finish reason and version follow from their tokens.

All completions of a step are checked by their token ids, and a part of them is decoded. At the
start, a sheet of absolute bounds says what would keep a run from learning (``first_sheet``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.conversations import wrong_conversation
from rlvr_core.builtin.invariants.endings import Endings, Turn, Wrong, remedy, turns_of
from rlvr_core.builtin.invariants.first_sheet import FirstSheet
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.invariants.replays import Replays

if TYPE_CHECKING:
    from rlvr_core.api import (
        Completion,
        Group,
        GroupsScored,
        LossComputed,
        RunStarted,
        WeightSource,
    )
    from rlvr_core.api.services import Conversations, RunConfig
    from rlvr_core.builtin.invariants.seeds import Seeds

AT_FIRST = 128
"""Completions that are decoded in the first step, evenly spread."""
LATER = 32
"""The same in each later step."""
PIECE = "\u2581"
"""What a piece of SentencePiece begins with that stands for a space before it."""


@dataclass(slots=True)
class _Counts:
    """How the completions of a step ended."""

    turns: int = 0
    by_token: int = 0
    by_string: int = 0
    wrong: list[tuple[Group, int, Wrong]] = field(default_factory=list)


class Completions(Invariant):
    """What is judged and trained is what was sampled, as it was sampled.

    Args:
        config: The run's configuration.
        files: The model's files.
        conversations: Present problems, and have their environments.
        seeds: Follows the draws of the sampler; None if it counts them in another way.
        room: Tokens of prompt and completion that the engine was told to make room for.
        say: Tells the user.
    """

    id, phase = "completions", "before each step"
    reports = (
        Metric("completions/end_token", "Share that ends with an end-of-sequence token.", "share"),
        Metric("completions/stop_string", "Share that ends with a stop string.", "share"),
        Metric("completions/decoded", "Completions of the step that were decoded again.", ""),
    )

    def __init__(
        self,
        config: RunConfig,
        files: ModelFiles,
        conversations: Conversations,
        seeds: Seeds | None,
        room: int,
        say: Callable[[str], None],
    ) -> None:
        self._files, self._present = files, conversations.present
        self._environment = conversations.environment
        self._replays = Replays(config.environment.max_turns, conversations.environment, seeds)
        self._endings, self._room = Endings(files, room), room
        self._sampling, self._turn_cap = config.sampling, config.environment.max_turn_tokens
        self._max_turns = config.environment.max_turns
        self._in_turns = config.train.max_staleness == 0
        self._sheet = FirstSheet(config, files, say)
        self._found: dict[str, float] = {}
        self._base: int | None = None
        self._loaded: set[int] = set()

    def run_started(self, event: RunStarted) -> None:
        """Begin where the sampler is."""
        self._replays.run_started()

    def weights_loaded(self, step: int, version: int, source: WeightSource) -> None:
        """Note which versions the engine has had."""
        self._loaded.add(version)

    def on_groups(self, event: GroupsScored) -> None:
        """Check the completions of a step, dropped groups included."""
        self._check_versions(event)
        self._check_conversations(event)
        places = [(group, number) for group in event.groups for number in range(len(group.members))]
        stride = max(1, -(-len(places) // (LATER if event.step else AT_FIRST)))
        decoded = places[event.step % stride :: stride]
        chosen = {(id(group), number) for group, number in decoded}
        counts = _Counts()
        for group in event.groups:
            self._count(group, counts, chosen)
        self._check_endings(event.step, counts)
        self._check_texts(event.step, decoded)
        self._sheet.open |= event.step == 0
        self._sheet.add(event.groups)
        self._found = {"completions/decoded": float(len(decoded))}
        if counts.turns:
            self._found["completions/end_token"] = counts.by_token / counts.turns
            self._found["completions/stop_string"] = counts.by_string / counts.turns

    def _count(self, group: Group, counts: _Counts, chosen: Set[tuple[int, int]]) -> None:
        """Count how a group's completions ended, and what contradicts it."""
        shown = self._present(group.problem)
        stops = tuple(dict.fromkeys((*self._sampling.stop, *group.problem.stop, *shown.stop)))
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
        most = self._sampling.max_tokens
        cap = min(most, group.problem.max_tokens or most)
        return turns_of(group.members[number].completion, cap, self._turn_cap)

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return how completions ended."""
        return self._found

    # -- conversations -----------------------------------------------------------------------------

    def _check_conversations(self, event: GroupsScored) -> None:
        """Check that conversations are what their transcripts say."""
        for group in event.groups:
            environment = self._environment(group.problem)
            for number, member in enumerate(group.members):
                if found := wrong_conversation(member.completion, environment, self._max_turns):
                    what, remedy = found
                    raise self.fault(
                        event.step,
                        f"conversation {number} about problem {group.problem.id} {what} "
                        "(band: none)",
                        remedy,
                    )
        if what := self._replays.wrong(event):
            raise self.fault(
                event.step,
                f"{what} (band: none)",
                "conversations, their states or verdicts are mixed up or changed between the "
                "environment and the record, or the environment says otherwise each time: then its "
                "EnvironmentTraits must not have deterministic=True",
            )

    def given(self, view: StepView, event: LossComputed) -> None:
        """Check that answers to imitate end as a model has to end them, and are trained on."""
        micro, mask_BT = event.micro_batch, event.losses[0][1].mask_BT
        last_B1 = (micro.completion_len_B - 1).clamp(min=0)[:, None]
        columns = (micro.completion_ids_BT.gather(1, last_B1), mask_BT.gather(1, last_B1))
        rows = torch.cat([one.long() for one in columns], dim=1).tolist()
        endless = sum(token not in self._files.end_ids for token, _ in rows)
        untrained = sum(not inside for _, inside in rows)
        if endless or untrained:
            what = "lack the end-of-sequence token" if endless else "leave it out of the loss mask"
            raise self.fault(
                view.step,
                f"{endless or untrained} of {len(rows)} given answers (demonstrations) of a "
                f"micro-batch {what} (band: none)",
                "a model that imitates them never learns to stop: look at what encodes the answers "
                "and makes their rows",
            )

    # -- versions ----------------------------------------------------------------------------------

    def _check_versions(self, event: GroupsScored) -> None:
        if self._base is None:
            self._base = event.version
        wrong = [
            (group, number, what)
            for group in event.groups
            for number, member in enumerate(group.members)
            for row in member.completion.rows
            if (what := self._wrong_version(group, row, event.version))
        ]
        if wrong:
            group, number, what = wrong[0]
            n = sum(len(one.members) for one in event.groups)
            raise self.fault(
                event.step,
                f"{len(wrong)} of {n} completions have a version label that is not that of the "
                f"weights they were sampled from: completion {number} of problem "
                f"{group.problem.id} {what}",
                "an engine labels what it samples with the version that its last load_weights was "
                "given, read before generation begins: staleness, and all that compares policies, "
                "go by this label",
            )

    def _wrong_version(self, group: Group, completion: Completion, now: int) -> str:
        labels = completion.token_versions or (completion.version,)
        versions = {completion.version, *labels}
        if max(versions) > now:
            return f"says version {max(versions)}, and the policy is at version {now}"
        if min(versions) < 0 or list(labels) != sorted(labels) or labels[0] != completion.version:
            return (
                f"begins under version {completion.version} and has tokens of {sorted({*labels})}"
            )
        if self._in_turns:
            # a group of an earlier step is for the guard tokens to name
            if group.version == now and versions != {now}:
                return f"says version {min(versions)}, and the engine has that of version {now}"
            return ""
        assert self._base is not None
        unknown = {one for one in versions if one > self._base} - self._loaded
        return f"says version {min(unknown)}, which no engine was ever given" if unknown else ""

    # -- endings -----------------------------------------------------------------------------------

    def _check_endings(self, step: int, counts: _Counts) -> None:
        if not counts.wrong:
            return
        kind = Counter(wrong.kind for *_, wrong in counts.wrong).most_common(1)[0][0]
        same = [one for one in counts.wrong if one[2].kind == kind]
        group, number, wrong = same[0]
        raise self.fault(
            step,
            f"the finish reason of {len(counts.wrong)} of {counts.turns} completions contradicts "
            f"their tokens (band: none): completion {number} of problem {group.problem.id} "
            f"{wrong.what}",
            remedy([one for *_, one in same], self._room),
        )

    # -- texts -------------------------------------------------------------------------------------

    def _check_texts(self, step: int, places: Sequence[tuple[Group, int]]) -> None:
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
            return
        group, number, ids, text, due = wrong[0]
        raise self.fault(
            step,
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
