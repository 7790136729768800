"""A reward is a function: the text of a completion and the problem's answer in, a number out."""

import re


def correct(text, answer):
    """1 if the number in the last box is the answer, else 0."""
    boxed = re.findall(r"\\boxed\{(\d+)\}", text)
    return float(boxed[-1:] == [answer])
