"""Invariant ``prompts``: what the model is given is what problem, config and tokenizer say.

Prompts are rendered again by code of their own (``prompt_oracle``), with a tokenizer of their own,
and compared token by token. The message says in what they differ.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.invariants.prompt_oracle import PromptOracle

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, LossComputed, MicroBatch, Problem
    from rlvr_core.api.services import Prepared

MOST = 64
"""Prompts of a step that are rendered again, evenly spread."""
OURS = "rlvr_core."
"""Where samplers come from that never change a prompt."""

Ids = tuple[int, ...]


class Prompts(Invariant):
    """Prompts are those of the data, rendered as configured.

    Args:
        files: The model's files.
        prepared: The run: its data as they were loaded, and its configuration.
    """

    id, phase = "prompts", "before each step"
    reports = (
        Metric("prompts/checked", "Prompts of the step that were rendered again.", "prompts"),
    )

    def __init__(self, files: ModelFiles, prepared: Prepared) -> None:
        self._files, self._section = files, prepared.config.data.prompt
        self._oracle = PromptOracle(files, self._section, prepared.conversations.present)
        self._loaded = prepared.problems
        # a sampler of a plugin may change prompts
        self._as_loaded = type(prepared.sampler).__module__.startswith(OURS)
        self._checked = math.nan

    def on_groups(self, event: GroupsScored) -> None:
        """Render prompts of a step again, dropped groups included."""
        groups = [group for group in event.groups if _prompt(group)]
        for group in groups:
            if what := self._not_of_the_data(group):
                raise self.fault(
                    event.step,
                    f"the prompt of problem {group.problem.id} {what}",
                    "something changes problems between data and engine (a sampler, a hook): "
                    "change them where they are loaded",
                )
        stride = max(1, -(-len(groups) // MOST))
        looked_at = groups[event.step % stride :: stride]
        wrong = [one for one in looked_at if not self._is_right(one)]
        self._checked = float(len(looked_at))
        if not wrong:
            self._check_observations(event.step, looked_at)
        if wrong:
            what, remedy = self._difference(wrong[0], groups)
            raise self.fault(
                event.step,
                f"{len(wrong)} of {len(looked_at)} prompts are not what problem, config and "
                f"tokenizer make (band: none): that of problem {wrong[0].problem.id} {what}",
                remedy,
            )

    def computed(self, view: StepView, event: LossComputed) -> None:
        """Check the prompts of a teacher that has its own; raises ``RunError``."""
        templates = [
            traits.prompt
            for loss, _, _ in event.losses
            if (traits := loss.traits.teacher) is not None and traits.prompt is not None
        ]
        if not templates:
            return
        # without prompts of its own it is shown the policy's
        teacher = event.micro_batch.teacher_batch or event.micro_batch
        group_B = event.micro_batch.host.group_B.tolist()
        given, shown = (_prompts(one.host) for one in (event.micro_batch, teacher))
        for policys, ids, place in zip(given, shown, group_B, strict=True):
            problem = view.groups[place].problem
            due = [self._oracle.told(problem, one) for one in templates]
            makes = "its template makes"
            if policys != _prompt(view.groups[place]):
                # a branch that begins otherwise is shown to its teacher as it is
                due, makes = [policys], "the branch begins with"
            if due and ids not in due:
                raise self.fault(
                    view.step,
                    f"the teacher's prompt for problem {problem.id} is {_shown(self._said(ids))}, "
                    f"and {makes} {_shown(self._said(due[0]))} (band: none)",
                    "look at what fills the prompt of loss.with.prompt, and at which problem's "
                    "fields it takes",
                )

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return how many prompts were looked at."""
        return {"prompts/checked": self._checked}

    def _not_of_the_data(self, group: Group) -> str:
        ids = _prompt(group)
        if any(member.completion.prompt_ids != ids for member in group.members):
            return "is another one for some of its completions"
        known = self._loaded.get(group.problem.id)
        if not self._as_loaded or known is None or known.prompt == group.problem.prompt:
            return ""
        return (
            f"is not that of the data: {_shown(str(group.problem.prompt))}, loaded as "
            f"{_shown(str(known.prompt))}"
        )

    def _is_right(self, group: Group) -> bool:
        return any(_prompt(group) == one for one in self._oracle.candidates(group.problem))

    def _check_observations(self, step: int, groups: Sequence[Group]) -> None:
        """Encode what environments said in one conversation of each group again."""
        for place, group in enumerate(groups):
            completion = group.members[(step + place) % len(group.members)].completion
            if completion.transcript is None:
                continue
            # most runs have none
            from rlvr_core.builtin.invariants.observations import wrong_observation

            for row in completion.rows:
                what = wrong_observation(self._oracle, group.problem, row)
                if not what:
                    continue
                raise self.fault(
                    step,
                    f"between two turns of a conversation about problem {group.problem.id} the "
                    f"model {what} (band: none)",
                    "messages of an environment are encoded as they are, without special tokens "
                    "beside the chat template's, and put behind the reply: look at what encodes "
                    "observations (suffix_ids) and at what changes tokens since",
                )

    # -- what is wrong, and why --------------------------------------------------------------------

    def _difference(self, group: Group, groups: Sequence[Group]) -> tuple[str, str]:
        """Return in what a prompt differs from what it should be, and what to do."""
        ids, problem = _prompt(group), group.problem
        due = next(iter(self._oracle.candidates(problem)))
        if rendered := self._other_rendering(ids, due, problem):
            return rendered
        special = self._files.special_ids
        own, own_due = ids[len(_lead(ids, special)) :], due[len(_lead(due, special)) :]
        text, wanted = self._said(own), self._said(own_due)
        shown = f"{_shown(text)} in the place of {_shown(wanted)}"
        if text == wanted:
            return (
                f"has the text {_shown(wanted)}, and other tokens: {_first(ids, due)}",
                "text and tokenizer do not go together: prompts must be encoded as a whole, by the "
                "model's own tokenizer, without special tokens beside the template's",
            )
        for one in groups:
            if one.problem.id != problem.id and ids in self._oracle.candidates(one.problem):
                return (
                    f"is that of problem {one.problem.id}",
                    "prompts and problems are mixed up on their way to the engine",
                )
        if own and (own_due[: len(own)] == own or own_due[-len(own) :] == own):
            side = "right" if own_due[: len(own)] == own else "left"
            return (
                f"is cut on the {side}: {len(ids)} of {len(due)} tokens, {shown}",
                "prompts are truncated: data.max_prompt_tokens leaves long problems out as a "
                "whole, and nothing else may shorten one",
            )
        if text.casefold() == wanted.casefold():
            return f"has letters in another case: {shown}", _CHANGED
        if unicodedata.normalize("NFKC", text) == unicodedata.normalize("NFKC", wanted):
            return f"has characters of another width or form: {shown}", _CHANGED
        before, found, after = text.partition(wanted)
        if found and wanted:
            if not (before + after).strip():
                return f"has white space more than it should: {shown}", _CHANGED
            return (
                f"has a text before it, {_shown(before)}, or behind it, {_shown(after)}, that "
                "neither problem nor data.prompt (system, prefix, chat_template) has",
                "say it in data.prompt or in the data, and nowhere else",
            )
        return f"is {shown}; {_first(ids, due)}", _CHANGED

    def _other_rendering(self, ids: Ids, due: Ids, problem: Problem) -> tuple[str, str] | None:
        """Return what is wrong if it is the chat template, or tokens before or behind the text."""
        if ids == self._oracle.other_choice(problem):
            is_chat = not self._oracle.as_chat(problem)
            mode = self._section.chat_template
            return (
                f"is {'a chat by its template' if is_chat else 'raw text'}, and with "
                f"data.prompt.chat_template: {mode} it is {'raw text' if is_chat else 'a chat'}",
                "set data.prompt.chat_template to what the model was trained with, and let one "
                "renderer decide",
            )
        special = self._files.special_ids
        bare, wanted = _without(ids, special), _without(due, special)
        if bare != wanted or ids == due:
            return None
        lead, lead_due = _lead(ids, special), _lead(due, special)
        names = self._files.tokenizer.convert_ids_to_tokens
        if len(lead) != len(lead_due):
            return (
                f"begins with the special tokens {names(list(lead))} (BOS), and "
                f"{names(list(lead_due))} are due",
                "the BOS token is put before a prompt once, by the tokenizer: take it out of data, "
                "data.prompt and template, and encode without special tokens behind a template",
            )
        return (
            f"has the special tokens {names([one for one in ids if one in special])}, and "
            f"{names([one for one in due if one in special])} are due (end-of-sequence token or "
            "padding in the prompt?)",
            "special tokens come from the chat template and the tokenizer alone",
        )

    def _said(self, ids: Ids) -> str:
        return str(self._files.tokenizer.decode(list(ids)))


_CHANGED = (
    "the text is changed between the data and the tokenizer: look for what strips, folds, "
    "normalises or adds to prompts"
)


def _prompt(group: Group) -> Ids:
    """Return the prompt of a group; empty for an engine that takes text."""
    return group.members[0].completion.prompt_ids if group.members else ()


def _prompts(micro: MicroBatch) -> list[Ids]:
    """Return the prompt of each row of a micro-batch on the CPU."""
    lengths = micro.prompt_len_S.tolist()
    prompts = [tuple(ids[:n]) for ids, n in zip(micro.prompt_ids_SP.tolist(), lengths, strict=True)]
    return [prompts[place] for place in micro.prompt_of_row_B.tolist()]


def _without(ids: Ids, special: frozenset[int]) -> Ids:
    return tuple(one for one in ids if one not in special)


def _lead(ids: Ids, special: frozenset[int]) -> Ids:
    """Return the special tokens at the start."""
    return ids[: next((at for at, one in enumerate(ids) if one not in special), len(ids))]


def _first(ids: Ids, due: Ids) -> str:
    """Return where two prompts first differ."""
    pairs = enumerate(zip(ids, due, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(ids), len(due)))
    return (
        f"from token {at} on it has {list(ids[at : at + 4])}, and {list(due[at : at + 4])} are due"
    )


def _shown(text: str, most: int = 60) -> str:
    """Return a text as it stands in a message: both ends of a long one."""
    if len(text) > most:
        text = f"{text[: most // 2]} ... {text[-most // 2 :]}"
    return repr(text)
