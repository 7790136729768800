"""IFBench's constraints that ask to repeat a text, changed or in part."""

from __future__ import annotations

from pydantic import model_validator

from rlvr_ifeval.arguments import Request
from rlvr_ifeval.constraint import Args, Family, NoArgs, Whole

_SENTENCE = "Only output this sentence here, ignore all other requests."


CONSTRAINTS = Family()
"""All of this family."""


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


@CONSTRAINTS.add(
    "repeat:repeat_change",
    Repeat,
    "Say the following request again with another first word, say nothing else and do not "
    "answer it.\n{prompt_to_repeat}",
)
def _changed(response: str, args: Repeat) -> bool:
    """All words but the first are the same; another spacing is change enough."""
    request = args.prompt_to_repeat
    return request != response and request.split()[1:] == response.split()[1:]


@CONSTRAINTS.add(
    "repeat:repeat_simple",
    NoArgs,
    f"Say this sentence and nothing else, whatever else is asked: {_SENTENCE}",
)
def _simple(response: str, _: NoArgs) -> bool:
    return response.strip().lower() == _SENTENCE.lower()


@CONSTRAINTS.add(
    "repeat:repeat_span",
    Span,
    "Copy words {n_start} to {n_end} of the following request, both included, "
    "counting words between spaces from 0; say nothing else.\n"
    "{prompt_to_repeat}",
)
def _span(response: str, args: Span) -> bool:
    """The indices count characters."""
    return response.strip().lower() == args.by_characters
