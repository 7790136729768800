"""Two reward functions as TRL calls them; rlvr calls them the same way."""

import re


def correct(completions, answer, **kwargs):
    """1 if the number in the last box is the answer, else 0."""
    boxes = [re.findall(r"\\boxed\{(\d+)\}", text) for text in completions]
    return [float(found[-1:] == [right]) for found, right in zip(boxes, answer, strict=True)]


def worked(completions, **kwargs):
    """1 for a sum that is worked out before the box, else 0."""
    return [float(bool(re.match(r" \d\+\d=\d+, .*\\boxed", text))) for text in completions]
