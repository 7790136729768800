"""The tokens of messages that a branch of a conversation begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def opening_texts(opening: Mapping[str, Json]) -> list[str]:
    """Return the texts of its messages, whose content may be parts."""
    texts = []
    for message in opening["messages"]:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part["text"] for part in content]
        texts.append("".join(parts))
    return texts


def opening_ids(
    tokenizer: PreTrainedTokenizerBase, opening: Mapping[str, Json], prompt: tuple[int, ...]
) -> tuple[int, ...]:
    """Render messages by the chat template; texts one after another where there is none.

    Args:
        tokenizer: The run's tokenizer.
        opening: The messages, and the tools that a template tells of.
        prompt: Tokens of the problem's prompt: raw text begins with the token that it begins with.
    """
    untyped: Any = tokenizer
    texts = opening_texts(opening)
    if not untyped.chat_template:
        ids = tuple(untyped("".join(texts), add_special_tokens=False)["input_ids"])
        lead = prompt[:1]
        return lead + ids if lead == (untyped.bos_token_id,) and ids[:1] != lead else ids
    said = [
        {**message, "content": text}
        for message, text in zip(opening["messages"], texts, strict=True)
    ]
    text = untyped.apply_chat_template(
        said, tools=opening["tools"] or None, tokenize=False, add_generation_prompt=True
    )
    return tuple(untyped(str(text), add_special_tokens=False)["input_ids"])
