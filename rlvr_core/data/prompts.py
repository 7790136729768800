"""Renders a problem to the token ids of its prompt, in training and evaluation alike.

The choice between raw text and chat template is made once, from the tokenizer, and is reported: a
chat template applied to a base model makes it babble, and base models often ship with one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, DataError, Message, Problem, Prompt
from rlvr_core.config.model import PromptSection

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BASE = re.compile(r"(^|[-_.])base$", re.IGNORECASE)
_OURS = (
    "messages", "tools", "add_generation_prompt", "tokenize", "raise_exception", "strftime_now",
)  # fmt: skip
"""Variables that every chat template is given."""
STORED_CHOICE = "rlvr_text_as_chat"
"""Key of ``tokenizer_config.json`` in checkpoints: whether plain text becomes a chat turn."""
_ANSWER = "\u2713answer\u2713"
_REPLY = "\u2713reply\u2713"


def _variables(template: str) -> set[str]:
    """Return the variables that a chat template reads without setting them.

    If the template is broken, or has custom tags that only transformers can parse, every word in it
    counts as a variable.
    """
    from jinja2 import Environment, TemplateSyntaxError, meta

    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
        return set(meta.find_undeclared_variables(parsed))
    except TemplateSyntaxError:
        return set(re.findall(r"\w+", template))


def _as_it_is(problem: Problem) -> Problem:
    return problem


class Renderer:
    """Renders problems for one tokenizer.

    Args:
        tokenizer: The model's tokenizer.
        section: The config's ``data.prompt``.
        present: Returns a problem as its environment presents it; the problem itself if omitted.

    Attributes:
        text_as_chat: Whether a plain text prompt becomes a chat turn.

    Raises:
        ConfigError: If ``chat_template: always`` and the tokenizer has none, or the template does
            not use one of ``template_options``.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        section: PromptSection,
        present: Callable[[Problem], Problem] | None = None,
    ) -> None:
        self.present = present or _as_it_is
        self._tokenizer: Any = tokenizer
        self._section = section
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        if section.chat_template == "always" and not self._has_template:
            raise ConfigError(
                f"chat_template is 'always', but {self._name} has no chat template",
                where="data.prompt.chat_template",
                remedy="set it to auto or never, or use the tokenizer of a chat model",
            )
        self._check_options()
        self.text_as_chat, self._reason = self._choose()

    @property
    def _name(self) -> str:
        return f"the tokenizer '{self._tokenizer.name_or_path}'"

    def _check_options(self) -> None:
        """Refuse template options that the template would silently ignore."""
        text = str(getattr(self._tokenizer, "chat_template", None) or "")
        known = _variables(text)
        for name in self._section.template_options:
            if name in _OURS or name not in known:
                why = "is not yours to set" if name in _OURS else "is nowhere in its chat template"
                close = difflib.get_close_matches(name, sorted(known.difference(_OURS)), n=1)
                remedy = f"did you mean '{close[0]}'?" if close else "take it out"
                raise ConfigError(
                    f"template option '{name}' {why} as a variable ({self._name})",
                    where="data.prompt.template_options",
                    remedy=remedy,
                )

    def _choose(self) -> tuple[bool, str]:
        """Decide whether a plain text prompt becomes a chat turn; return choice and reason."""
        mode = self._section.chat_template
        if mode != "auto":
            return mode == "always", f"chat_template is '{mode}'"
        if not self._has_template:
            return False, f"{self._name} has no chat template"
        stored = self._tokenizer.init_kwargs.get(STORED_CHOICE)
        if stored is not None:
            return bool(stored), "as in the run that the model was trained in"
        name = PurePath(str(self._tokenizer.name_or_path)).name
        if _BASE.search(name):
            return False, f"'{name}' is a base model by its name, whatever its tokenizer brings"
        return self._by_end_of_turn()

    def _by_end_of_turn(self) -> tuple[bool, str]:
        """Detect a chat model: it stops at the token that closes a turn in its template.

        The base model of a family often carries the family's template, but its end-of-sequence
        token then differs from the one that closes a turn.
        """
        closing = self._closing_id()
        if closing is None:
            return False, "the chat template does not close the assistant's turn with a token"
        token = self._tokenizer.convert_ids_to_tokens(closing)
        if closing in self._end_ids:
            return True, f"the model stops at {token}, which closes a turn of its chat template"
        return False, (
            f"its chat template closes a turn with {token}, but the model stops at "
            f"{', '.join(map(str, self._tokenizer.convert_ids_to_tokens(sorted(self._end_ids))))}: "
            f"a base model that carries its family's template"
        )

    def _closing_id(self) -> int | None:
        """Return the special token that the template puts after an answer, if any."""
        from jinja2 import TemplateError

        turns = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": _ANSWER},
        ]
        try:
            text = self._tokenizer.apply_chat_template(
                turns, tokenize=False, **self._section.template_options
            )
        except TemplateError:
            return None
        rest = str(text).rpartition(_ANSWER)[2]
        ids = self.encode(rest.lstrip())
        special = set(self._tokenizer.all_special_ids) | set(self._tokenizer.added_tokens_decoder)
        return ids[0] if ids and ids[0] in special else None

    @cached_property
    def _end_ids(self) -> set[int]:
        """The tokens the model stops at: the tokenizer's, and those of its generation config."""
        from transformers import GenerationConfig

        ends = {self._tokenizer.eos_token_id}
        try:
            config = GenerationConfig.from_pretrained(
                self._tokenizer.name_or_path, local_files_only=True
            )
        except (OSError, ValueError):
            config = None  # the tokenizer was created in code, or the model has no such file
        ids = getattr(config, "eos_token_id", None)
        ends.update(ids if isinstance(ids, list) else [ids])
        return {id_ for id_ in ends if id_ is not None}

    @cached_property
    def _leading_ids(self) -> tuple[int, ...]:
        """The tokens that the tokenizer puts before raw text by default: none, or a BOS token."""
        bare = list(self.encode("x"))
        full = list(self._tokenizer("x")["input_ids"])
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return tuple(full[:start])
        return ()

    def describe(self) -> str:
        """Return the choice made and the reason."""
        chosen = "the chat template" if self.text_as_chat else "raw text"
        unseen = ""
        if self._section.template_options and not self.text_as_chat:
            unseen = "; template_options reach only prompts that are chats"
        return f"plain text is rendered as {chosen}: {self._reason}{unseen}"

    def text(self, problem: Problem) -> str:
        """Return the prompt as text, as the model sees it except for a leading BOS token.

        Raises:
            DataError: If the problem is a chat and cannot be rendered as one.
        """
        problem = self.present(problem)
        prompt = problem.prompt
        turns = (Message("user", prompt),) if isinstance(prompt, str) else prompt
        as_chat = self.as_chat(problem)
        if problem.tools and not as_chat:
            raise DataError(
                f"problem {problem.id} has tools, which only a chat template tells the model of",
                remedy="use a chat model, or let the prompt itself tell of them",
            )
        if as_chat and not self._has_template:
            raise DataError(
                f"problem {problem.id} is a chat, but {self._name} has no chat template",
                remedy="set data.prompt.chat_template to never, or use a chat model's tokenizer",
            )
        return self._render(problem, turns, as_chat)

    def as_chat(self, problem: Problem) -> bool:
        """Whether a problem is rendered with the chat template."""
        if isinstance(problem.prompt, str):
            return self.text_as_chat
        return self._section.chat_template != "never"

    def _render(self, problem: Problem, turns: tuple[Message, ...], as_chat: bool) -> str:
        system, turns, prefix = framed(turns, self._section)
        if as_chat:
            chat = [{"role": turn.role, "content": turn.content} for turn in turns]
            if system is not None:
                chat.insert(0, {"role": "system", "content": system})
            return self.apply_template(problem, chat) + (prefix or "")
        if len(turns) != 1 or turns[0].role != "user":
            raise DataError(
                f"problem {problem.id} is a chat of {len(turns)} turns, and chat_template is "
                f"'never'",
                remedy="set data.prompt.chat_template to auto",
            )
        return raw_text(system, turns[0], prefix)

    def apply_template(self, problem: Problem, chat: list[dict[str, str]]) -> str:
        """Render a conversation as text that ends where the model's turn begins.

        Raises:
            DataError: If the template raises.
        """
        from jinja2 import TemplateError

        try:
            return str(
                self._tokenizer.apply_chat_template(
                    chat,
                    tools=[dict(tool) for tool in problem.tools] or None,
                    tokenize=False,
                    add_generation_prompt=True,
                    **self._section.template_options,
                )
            )
        except TemplateError as error:
            roles = ", ".join(turn["role"] for turn in chat)
            raise DataError(
                f"the chat template of {self._name} refuses problem {problem.id} "
                f"(roles {roles}): {error}"
            ) from error

    def render(self, problem: Problem) -> tuple[int, ...]:
        """Render the prompt to token ids.

        Raises:
            DataError: If the problem cannot be rendered, or renders to an empty prompt.
        """
        ids = self.encode(self.text(problem))
        lead = self._leading_ids
        if not self.as_chat(self.present(problem)) and ids[: len(lead)] != lead:
            ids = lead + ids
        if not ids:
            raise DataError(f"the prompt of problem {problem.id} has no tokens")
        return ids

    def prompt(self, problem: Problem) -> Prompt:
        """Render the prompt to token ids and to the corresponding text.

        Raises:
            DataError: As for ``render``.
        """
        ids = self.render(problem)
        return Prompt(ids, str(self._tokenizer.decode(list(ids))))

    def suffix_ids(
        self, problem: Problem, reply_ids: Sequence[int], messages: Sequence[Message]
    ) -> tuple[int, ...]:
        """Return the tokens between two turns of the model: turn end, messages, next turn's start.

        A conversation is never rendered again as a whole. The model's turns stay the tokens that
        were sampled, and only the tokens that follow are appended: training sees exactly what the
        model saw, even if the template would rewrite earlier turns (by removing their reasoning,
        say). The template's end-of-turn token is left out if the model has sampled one itself.

        Args:
            problem: The conversation's problem.
            reply_ids: Tokens of the model's last turn.
            messages: The messages that answer it.

        Raises:
            DataError: If the chat template refuses such a conversation, or its output lacks these
                messages.
        """
        problem = self.present(problem)
        if not self.as_chat(problem):
            return self.encode("".join(message.content for message in messages))
        mark = _REPLY
        while any(mark in message.content for message in messages):
            mark += "\u2713"
        chat = [
            {"role": "user", "content": "-"},
            {"role": "assistant", "content": mark},
            *({"role": message.role, "content": message.content} for message in messages),
        ]
        _, separator, rest = self.apply_template(problem, chat).rpartition(mark)
        if not separator:
            raise DataError(
                f"the chat template leaves out what the model said before a message of role "
                f"'{messages[0].role}'",
                where=problem.id,
                remedy="let the environment speak as 'user'",
            )
        ids = self.encode(rest)
        ended = bool(reply_ids) and self.is_end(reply_ids[-1])
        return ids[1:] if ended and ids and self.is_end(ids[0]) else ids

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenize a text without adding special tokens."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def is_end(self, token: int) -> bool:
        """Whether a token ends a turn: a special one, such as end-of-text."""
        return token in self._special_ids

    @cached_property
    def _special_ids(self) -> set[int]:
        added = self._tokenizer.added_tokens_decoder
        return {
            *self._tokenizer.all_special_ids,
            *(id_ for id_, token in added.items() if token.special),
        }


def framed(
    turns: tuple[Message, ...], section: PromptSection
) -> tuple[str | None, tuple[Message, ...], str | None]:
    """Return system message, messages and answer prefix, from the problem and the config.

    A value of the problem overrides the config. None means "not given"; "" is a value.
    """
    system, prefix = section.system, section.prefix
    if turns[-1].role == "assistant":
        prefix, turns = turns[-1].content, turns[:-1]
    if turns and turns[0].role == "system":
        system, turns = turns[0].content, turns[1:]
    return system, turns, prefix


def raw_text(system: str | None, turn: Message, prefix: str | None) -> str:
    """Assemble a prompt without a chat template."""
    before = f"{system}\n\n" if system else ""
    return before + turn.content + (prefix or "")
