"""Removes the frames of prompts: the text that most prompts of a data set begin and end with."""

from __future__ import annotations

from collections.abc import Sequence

MIXED = 40
"""From this many prompts on, frames of a tenth of them are removed too (mixed data sets)."""
_LEAST = 8
"""Minimum characters of such a frame without a line break: questions can begin alike by chance."""
_POINTS = 16


def unframed(texts: Sequence[str]) -> list[str]:
    """Return each text without the beginning and the end that most texts share.

    A few texts without the frame do not prevent its removal from the others. In data of several
    styles, the frame of each style is removed from its texts.
    """
    turned = [text[::-1] for text in _without_start(texts)]
    return [text[::-1].strip() for text in _without_start(turned)]


def _without_start(texts: Sequence[str]) -> list[str]:
    ordered = sorted(texts)
    common = _frame(ordered, len(ordered) // 2, len(ordered) // 2 + 1)
    frames = [common] if common else []
    if len(texts) >= MIXED and len(common) < _LEAST:
        places = ((2 * point + 1) * len(ordered) // (2 * _POINTS) for point in range(_POINTS))
        found = {_frame(ordered, place, len(ordered) // 10) for place in places}
        longer = (one for one in found if len(one) >= _LEAST or "\n" in one)
        frames = [*sorted(longer, key=len, reverse=True), *frames]
    return [
        text[len(next((one for one in frames if text.startswith(one)), "")) :] for text in texts
    ]


def _frame(ordered: Sequence[str], place: int, least: int) -> str:
    """Return the longest beginning of a text that ``least`` texts have, cut to whole words.

    Args:
        ordered: All texts, sorted.
        place: Index of the text. Texts with a common beginning stand together: what more than half
            of them begin with, the one in the middle begins with.
        least: Number of texts.
    """
    if not ordered:
        return ""
    text, short, long = ordered[place], 0, len(ordered[place])
    while short < long:
        middle = (short + long + 1) // 2
        start = text[:middle]
        if sum(one.startswith(start) for one in ordered) >= least:
            short = middle
        else:
            long = middle - 1
    while short and text[short - 1].isalnum():
        short -= 1
    return text[:short]
