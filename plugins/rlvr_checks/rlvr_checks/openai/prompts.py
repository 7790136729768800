"""Renders a problem to the text sent to a remote model: without tokenizer or chat template."""

from __future__ import annotations

from collections.abc import Callable

from rlvr_core.api import ConfigError, DataError, Message, Problem, Prompt
from rlvr_core.data.prompts import framed, raw_text
from rlvr_core.toolkit import PromptSection


class TextRenderer:
    """Renders problems for an engine that takes text.

    Args:
        section: How problems are rendered.
        as_chat: Whether the engine takes chat messages rather than raw text.
        present: Returns a problem as its environment presents it.

    Raises:
        ConfigError: If the section uses settings that such an engine does not support.
    """

    def __init__(
        self,
        section: PromptSection,
        *,
        as_chat: bool,
        present: Callable[[Problem], Problem],
    ) -> None:
        self._section, self._as_chat = section, as_chat
        self._present = present
        impossible = "never" if as_chat else "always"
        if section.chat_template == impossible:
            takes = "a chat, which the server puts in its template" if as_chat else "raw text"
            raise ConfigError(
                f"chat_template is '{impossible}', but the engine sends {takes}",
                where="prompt.chat_template",
                remedy=f"set the engine's api to {'completions' if as_chat else 'chat'}",
            )
        if section.template_options:
            raise ConfigError(
                "template_options are for a chat template here, and the server has its own",
                where="prompt.template_options",
                remedy="give them to the server: the engine's option extra, such as "
                "{chat_template_kwargs: {enable_thinking: false}} for vLLM",
            )

    def describe(self) -> str:
        """Describe the form of the prompts."""
        if self._as_chat:
            return "sent as a chat; the server puts it in its template"
        return "sent as raw text"

    def prompt(self, problem: Problem) -> Prompt:
        """Return the prompt as chat messages, and as text for the record.

        Raises:
            DataError: If the problem cannot be rendered in this form.
        """
        problem = self._present(problem)
        if problem.tools:
            raise DataError(
                f"problem {problem.id} has tools, which no chat template here tells the model of",
                remedy="let the prompt itself tell of them",
            )
        content = problem.prompt
        turns = (Message("user", content),) if isinstance(content, str) else content
        system, turns, prefix = framed(turns, self._section)
        if self._as_chat:
            return self._chat(problem, system, turns, prefix)
        if len(turns) != 1 or turns[0].role != "user":
            raise DataError(
                f"problem {problem.id} is a chat of {len(turns)} turns, and the engine sends raw "
                f"text",
                remedy="set the engine's api to chat",
            )
        text = raw_text(system, turns[0], prefix)
        return Prompt((), text, (Message("user", text),))

    def _chat(
        self,
        problem: Problem,
        system: str | None,
        turns: tuple[Message, ...],
        prefix: str | None,
    ) -> Prompt:
        if prefix:
            raise DataError(
                f"problem {problem.id}: the answer is to begin with {prefix!r:.40}, which a chat "
                f"API has no place for",
                where="prompt.prefix",
                remedy="leave the prefix out, or set the engine's api to completions",
            )
        if system is not None:
            turns = (Message("system", system), *turns)
        text = "\n\n".join(f"[{turn.role}]\n{turn.content}" for turn in turns)
        return Prompt((), text, turns)
