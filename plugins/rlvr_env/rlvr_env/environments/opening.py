"""The tokens of messages that a branch of a conversation begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def opening_texts(opening: Mapping[str, Json]) -> list[str]:
    """Return the text of each message; a message's content may be a list of parts."""
    texts = []
    for message in opening["messages"]:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part["text"] for part in content]
        texts.append("".join(parts))
    return texts


def opening_ids(
    tokenizer: PreTrainedTokenizerBase, opening: Mapping[str, Json], prompt: tuple[int, ...]
) -> tuple[int, ...]:
    """Render messages with the chat template; without one, concatenate their texts.

    Args:
        tokenizer: The run's tokenizer.
        opening: The messages, and the tools for the template.
        prompt: Tokens of the problem's prompt: raw text starts with the same BOS token, if any.
    """
    untyped: Any = tokenizer
    texts = opening_texts(opening)
    if not untyped.chat_template:
        ids = tuple(untyped("".join(texts), add_special_tokens=False)["input_ids"])
        first_id = prompt[:1]
        return (
            first_id + ids if first_id == (untyped.bos_token_id,) and ids[:1] != first_id else ids
        )
    messages = [
        {**message, "content": text}
        for message, text in zip(opening["messages"], texts, strict=True)
    ]
    text = untyped.apply_chat_template(
        messages, tools=opening["tools"] or None, tokenize=False, add_generation_prompt=True
    )
    return tuple(untyped(str(text), add_special_tokens=False)["input_ids"])


def unlike_prompt(
    tokenizer: PreTrainedTokenizerBase, ids: tuple[int, ...], prompt: tuple[int, ...]
) -> str:
    """Say how the first tokens of an environment's own conversation differ from the prompt."""
    return (
        f"its first request does not begin with the prompt of the problem: "
        f"{tokenizer.decode(list(ids))!r:.300} is not {tokenizer.decode(list(prompt))!r:.300}; "
        f"send task['prompt'] first, under the same system message (data.prompt.system)"
    )
