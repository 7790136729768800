"""Prompts by the rules of ``docs/data.md``, written a second time: what ``prompts`` compares with.

Nothing here calls the run's renderer or touches its tokenizer: whatever happens to a prompt there
does not happen here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rlvr_core.builtin.invariants.model_files import ModelFiles

if TYPE_CHECKING:
    from rlvr_core.api import Message, Problem
    from rlvr_core.api.services import PromptSection

MARK = "\u2713answer\u2713"
"""Stands for what the assistant says, where a template is tried."""
STORED = "rlvr_text_as_chat"
"""Key of ``tokenizer_config.json`` in our checkpoints: the choice of the run that wrote it."""
CLOCK = "strftime_now"
"""What a chat template calls that writes the date into its prompt."""


class PromptOracle:
    """Renders problems from the model's files and the config alone.

    Args:
        files: The model's files.
        section: The config's ``data.prompt``.
        present: Returns a problem as its environment presents it.
    """

    def __init__(
        self, files: ModelFiles, section: PromptSection, present: Callable[[Problem], Problem]
    ) -> None:
        self._files, self._section, self._present = files, section, present
        self._began = time.time()

    def candidates(self, problem: Problem) -> Iterator[tuple[int, ...]]:
        """Yield the tokens that a prompt may be; more than one if its template reads the clock."""
        problem = self._present(problem)
        chat = self.as_chat(problem)
        if not chat or CLOCK not in str(self._files.tokenizer.chat_template):
            yield self._ids(problem, chat=chat)
            return
        now = datetime.now()
        began = datetime.fromtimestamp(self._began)
        for moment in (now, now - timedelta(days=1), began):
            yield self._ids(problem, chat=True, more={CLOCK: moment.strftime})

    def other_choice(self, problem: Problem) -> tuple[int, ...] | None:
        """Return the prompt with a chat template in the place of raw text, or the reverse.

        None if there is no such prompt.
        """
        problem = self._present(problem)
        chat = not self.as_chat(problem)
        if chat and not self._files.tokenizer.chat_template:
            return None
        if not chat and not isinstance(problem.prompt, str):
            return None
        return self._ids(problem, chat=chat)

    def suffixes(self, problem: Problem, said: Sequence[Message]) -> set[tuple[int, ...]]:
        """Return the tokens that may stand between two turns of the model, for these messages.

        The template's end of a turn is there, or has been sampled by the model. Empty where that
        is not known: if the template reads the clock, or leaves out what was said.
        """
        problem = self._present(problem)
        if not self.as_chat(problem):
            return {self._files.encode("".join(message.content for message in said))}
        tokenizer = self._files.tokenizer
        if CLOCK in str(tokenizer.chat_template) or any(MARK in one.content for one in said):
            return set()
        turns = [("user", "-"), ("assistant", MARK), *((one.role, one.content) for one in said)]
        text = tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in turns],
            tools=[dict(tool) for tool in problem.tools] or None,
            tokenize=False,
            add_generation_prompt=True,
            **self._section.template_options,
        )
        _, found, rest = str(text).rpartition(MARK)
        ids = self._files.encode(rest)
        if not found or not ids:
            return set()
        return {ids, ids[1:]} if ids[0] in self._files.special_ids else {ids}

    def told(self, problem: Problem, template: str) -> tuple[int, ...]:
        """Return the prompt of a teacher that is told more: its last user turn in a template."""
        said = problem.prompt
        if isinstance(said, str):
            text = filled(template, {**problem.spec, "prompt": said})
            return next(self.candidates(replace(problem, prompt=text)))
        users = [place for place, turn in enumerate(said) if turn.role == "user"]
        last = users[-1] if users else 0
        text = filled(template, {**problem.spec, "prompt": said[last].content})
        turns = [
            replace(one, role="user", content=text) if place == last else one
            for place, one in enumerate(said)
        ]
        return next(self.candidates(replace(problem, prompt=tuple(turns))))

    def as_chat(self, problem: Problem) -> bool:
        """Whether a problem is to be rendered by the chat template."""
        if isinstance(problem.prompt, str):
            return self._text_as_chat
        return self._section.chat_template != "never"

    def _ids(
        self, problem: Problem, *, chat: bool, more: Mapping[str, Any] | None = None
    ) -> tuple[int, ...]:
        ids = self._files.encode(self._text(problem, chat=chat, more=more or {}))
        lead = () if chat else self._lead
        return ids if ids[: len(lead)] == lead else lead + ids

    def _text(self, problem: Problem, *, chat: bool, more: Mapping[str, Any]) -> str:
        prompt, system, prefix = problem.prompt, self._section.system, self._section.prefix
        said = (
            [("user", prompt)] if isinstance(prompt, str) else [(m.role, m.content) for m in prompt]
        )
        if said[-1][0] == "assistant":
            prefix = said.pop()[1]
        if said and said[0][0] == "system":
            system = said.pop(0)[1]
        if not chat:
            return (f"{system}\n\n" if system else "") + said[0][1] + (prefix or "")
        if system is not None:
            said.insert(0, ("system", system))
        rendered = self._files.tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in said],
            tools=[dict(tool) for tool in problem.tools] or None,
            tokenize=False,
            add_generation_prompt=True,
            **self._section.template_options,
            **more,
        )
        return str(rendered) + (prefix or "")

    @cached_property
    def _lead(self) -> tuple[int, ...]:
        """The tokens that the tokenizer itself puts before a text."""
        whole = tuple(self._files.tokenizer("a")["input_ids"])
        own = self._files.encode("a")
        places = [at for at in range(len(whole)) if whole[at : at + len(own)] == own]
        return whole[: places[0]] if places else ()

    @cached_property
    def _text_as_chat(self) -> bool:
        """Whether plain text becomes a chat turn."""
        tokenizer, mode = self._files.tokenizer, self._section.chat_template
        if mode != "auto":
            return mode == "always"
        if not tokenizer.chat_template:
            return False
        if (stored := tokenizer.init_kwargs.get(STORED)) is not None:
            return bool(stored)
        folder = PurePath(str(tokenizer.name_or_path)).name
        if re.search(r"(?:^|[-_.])base$", folder, re.IGNORECASE):
            return False
        return self._ends_its_turns()

    def _ends_its_turns(self) -> bool:
        """Whether the token behind an answer in the template is one that the model stops at."""
        from jinja2 import TemplateError

        said = [{"role": "user", "content": "question"}, {"role": "assistant", "content": MARK}]
        try:
            text = self._files.tokenizer.apply_chat_template(
                said, tokenize=False, **self._section.template_options
            )
        except TemplateError:
            return False
        behind = self._files.encode(str(text).rpartition(MARK)[2].lstrip())[:1]
        marked = self._files.special_ids | set(self._files.tokenizer.added_tokens_decoder)
        return bool(behind) and behind[0] in marked & self._files.turn_end_ids


def filled(template: str, row: Mapping[str, Any]) -> str:
    """Return a template with the fields of a row in it; ``{{`` and ``}}`` are braces."""
    parts = re.split(r"(\{\{|\}\}|\{[A-Za-z_][\w-]*\})", template)
    # every second part is a placeholder, or a brace that stands for itself
    parts[1::2] = [one[0] if one in ("{{", "}}") else str(row[one[1:-1]]) for one in parts[1::2]]
    return "".join(parts)
