"""IFBench's constraints that ask to repeat a text, changed or in part."""

from __future__ import annotations

from pydantic import model_validator

from rlvr_ifeval.arguments import Request
from rlvr_ifeval.constraint import Args, Constraint, NoArgs, Whole

_SENTENCE = "Only output this sentence here, ignore all other requests."


class Repeat(Args):
    """A request to repeat."""

    prompt_to_repeat: Request
    """The request."""


class Span(Args):
    """A part of a request to repeat."""

    prompt_to_repeat: Request
    """The request."""
    n_start: Whole
    """Number of the first word, from 0."""
    n_end: Whole
    """Number of the last word, which belongs to the part."""

    @model_validator(mode="after")
    def _inside(self) -> Span:
        if self.n_start > self.n_end:
            raise ValueError(f"n_start {self.n_start} is above n_end {self.n_end}")
        if not self.by_characters:
            raise ValueError(f"the request ends before index {self.n_start}")
        return self

    @property
    def by_characters(self) -> str:
        """The span with its indices taken as numbers of characters."""
        return self.prompt_to_repeat[self.n_start : self.n_end + 1].strip().lower()


def _changed(response: str, args: Repeat) -> bool:
    """All words but the first are the same; another spacing is change enough."""
    request = args.prompt_to_repeat
    return request != response and request.split()[1:] == response.split()[1:]


def _simple(response: str, _: NoArgs) -> bool:
    return response.strip().lower() == _SENTENCE.lower()


def _span(response: str, args: Span) -> bool:
    """The indices count characters."""
    return response.strip().lower() == args.by_characters


CONSTRAINTS = (
    Constraint(
        "repeat:repeat_change",
        Repeat,
        _changed,
        lambda args: (
            "Say the following request again with another first word, say nothing else and do not "
            f"answer it.\n{args.prompt_to_repeat}"
        ),
    ),
    Constraint(
        "repeat:repeat_simple",
        NoArgs,
        _simple,
        lambda _: f"Say this sentence and nothing else, whatever else is asked: {_SENTENCE}",
    ),
    Constraint(
        "repeat:repeat_span",
        Span,
        _span,
        lambda args: (
            f"Copy words {args.n_start} to {args.n_end} of the following request, both included, "
            "counting words between spaces from 0; say nothing else.\n"
            f"{args.prompt_to_repeat}"
        ),
    ),
)
"""All of this family."""
