"""Normal forms of answers and options: without styling, hidden characters or special tokens."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|</s>|<(?:eos|bos|pad|unk)(?:_token)?>|<(?:start|end)_of_turn(?:_token)?>",
    re.IGNORECASE,
)
"""Special tokens of tokenizers, where one was decoded with them."""


def plain(text: str) -> str:
    """Normalise Unicode, and take out special tokens and characters that are not seen."""
    text = _TOKEN.sub("", unicodedata.normalize("NFKC", text))
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


_STYLE = re.compile(
    r"\\(?:text|mathrm|mathbf|mathit|mathsf|bm|mbox|rm|bf|it)[a-z]*(?![a-z])\s?|\\[()!\[\]]|"
    r"[*_`#$]|</?(?:b|i|u|p|em|strong|code|span)>|\\(?=[.\s]|$)",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\\[,;: ]|~")
_QUOTED = re.compile(
    r"(?<!\w)[\"'\u2018\u201c]([^\"'\u2018\u2019\u201c\u201d]*)[\"'\u2019\u201d](?!\w)"
)
_BRACED = re.compile(r"(?<![\\\w^_}])\{([^{}]*)\}")
ARTICLE = re.compile(r"(?:the|an?)\s+(?=\S)", re.IGNORECASE)


def bare(text: str) -> str:
    """Return a text without its styling."""
    text = _STYLE.sub("", _SPACE.sub(" ", text)).replace(r"\dfrac", r"\frac")
    text = _QUOTED.sub(r"\1", text.replace(r"\tfrac", r"\frac"))
    for _ in range(3):
        text = _BRACED.sub(r"\1", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def key(text: str) -> str:
    """Return a key that is equal for all spellings of an option: no case, spaces or article."""
    text = ARTICLE.sub("", text.strip().rstrip(".;!").casefold(), count=1)
    return re.sub(r"\s+", "", text)


_OBJECT = re.compile(r"\{\s*(?:answer|choice|option|letter)\s*:\s*([^,{}\[\]]*)\}", re.IGNORECASE)


def key_value(text: str) -> str:
    """Return the value of an object ``{answer: ...}``; any other text as it is."""
    match = _OBJECT.fullmatch(text)
    return match[1].strip() if match else text
