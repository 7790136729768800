"""How IFBench's script sees a text: as it is, hidden characters and all.

It knows ASCII punctuation only, splits words at white space, and takes NLTK's sentences and tokens.
"""

from __future__ import annotations

import string
import unicodedata

AROUND = string.punctuation + " "
"""Characters stripped from the ends of a word; no other white space."""
_DELETED = str.maketrans("", "", string.punctuation)


def plain(text: str) -> str:
    """The text without ASCII punctuation."""
    return text.translate(_DELETED)


def plain_words(text: str) -> list[str]:
    """Words between white space, all ASCII punctuation removed."""
    return plain(text).split()


def ascii_only(text: str) -> str:
    """The text without accents, and then without what is not ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
