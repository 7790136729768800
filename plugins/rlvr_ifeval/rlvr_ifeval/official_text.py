"""How the official scripts see a text: as it is, hidden characters and all.

They know ASCII punctuation only, split words at white space, and take NLTK's sentences and tokens.
"""

from __future__ import annotations

import string
import unicodedata

from rlvr_ifeval.text import sentences, tokens

__all__ = ["AROUND", "ascii_only", "plain", "sentences", "tokens", "words"]

AROUND = string.punctuation + " "
"""What is taken off the ends of a word; no other white space."""
_DELETED = str.maketrans("", "", string.punctuation)


def plain(text: str) -> str:
    """The text without ASCII punctuation."""
    return text.translate(_DELETED)


def words(text: str) -> list[str]:
    """Words between white space, all ASCII punctuation removed."""
    return plain(text).split()


def ascii_only(text: str) -> str:
    """The text without accents, and then without what is not ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
