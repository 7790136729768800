"""Styles of text: in colours, or without any where ``NO_COLOR`` asks for that."""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

_COLOURED = {
    "title": "bold", "quiet": "dim", "label": "bold cyan", "fault": "bold yellow",
    "right": "bold green", "wrong": "bold red", "heard": "cyan", "call": "magenta",
    "same": "", "added": "green underline", "removed": "red strike",
    "s1": "#d7d7af", "s2": "#d7d75f", "s3": "#ffaf00", "s4": "#ff8700",
    "s5": "bold #ff5f5f", "s6": "bold #ffffff on #af0000",
    "out": "dim strike",
    "up1": "#afd7af", "up2": "#87d787", "up3": "#5fd75f", "up4": "bold #00d700",
    "down1": "#d7afaf", "down2": "#ff8787", "down3": "#ff5f5f", "down4": "bold #ff0000",
    "v1": "#87afff", "v2": "#af87ff", "v3": "bold #d787ff",
}  # fmt: skip
_PLAIN = {
    "title": "bold", "quiet": "dim", "label": "bold", "fault": "bold", "right": "bold",
    "wrong": "bold", "added": "underline", "removed": "strike",
    "s3": "italic", "s4": "underline", "s5": "bold underline", "s6": "reverse",
    "out": "dim strike",
    "up2": "bold", "up3": "bold", "up4": "bold underline",
    "down2": "italic", "down3": "italic underline", "down4": "reverse",
    "v1": "italic", "v2": "underline", "v3": "reverse",
}  # fmt: skip
for _styles in (_COLOURED, _PLAIN):  # gaps have the styles of log-probs
    _styles |= {f"g{grade}": _styles.get(f"s{grade}", "") for grade in range(7)}
KEYS = {
    "logprob": [
        ("s0", "> 95 %"), ("s1", "to 95 %"), ("s2", "to 78 %"), ("s3", "to 50 %"),
        ("s4", "to 20 %"), ("s5", "to 5 %"), ("s6", "< 0.7 %"),
    ],
    "gap": [
        ("g0", "< 0.003 nats"), ("g1", "to 0.01"), ("g2", "to 0.03"), ("g3", "to 0.1"),
        ("g4", "to 0.3"), ("g5", "to 1"), ("g6", "> 1"),
    ],
    "advantage": [
        ("down4", "< -1.5"), ("down3", "< -0.75"), ("down2", "< -0.25"), ("down1", "< 0"),
        ("a0", "0 or none"), ("up1", "> 0"), ("up2", "> 0.25"), ("up3", "> 0.75"), ("up4", "> 1.5"),
    ],
    "mask": [("", "in the loss"), ("out", "not in the loss")],
    "version": [("v0", "the newest of its completion"), ("v1", "one before"), ("v2", "two before"),
                ("v3", "older")],
    "none": [],
}  # fmt: skip
"""What the styles of each colouring mean."""


@lru_cache(maxsize=512)
def style(name: str, coloured: bool) -> Style:
    """Return the style of a name; of an unknown one none."""
    return Style.parse((_COLOURED if coloured else _PLAIN).get(name, ""))


def token_style(css: str, answer: str, colour: str) -> str:
    """Return the name of a token's style.

    Args:
        css: Classes of the token.
        answer: Class of its completion's advantage.
        colour: What tokens are coloured by.
    """
    if colour == "advantage":
        return answer
    first = {"logprob": "s", "gap": "g", "mask": "out", "version": "v"}.get(colour)
    names = css.split() if first else []
    return next((one for one in names if first and one.startswith(first)), "")
