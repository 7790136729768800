"""The form in which a stated reference passes, of verifiers that offer no gold response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.builtin.doctor.subject import Reference, Subject

FEWEST = 4
"""Minimum problems with a stated reference to judge by."""
PROBLEMS = 24
"""Maximum problems to try of each pair of data set and verifier."""
FORMS = 16
"""Approximate number of forms to try on a problem."""
SHOWN = 40
"""Characters of a form to show: its end, where the answer stands."""


@dataclass(frozen=True, slots=True)
class Written:
    """References of one pair of data set and verifier, in the form in which most pass.

    Attributes:
        form: The form; empty if the references pass in none.
        forms: Number of tried forms.
        n: Number of tried problems.
        passing: The references that pass in this form, each with its response.
    """

    form: str
    forms: int
    n: int
    passing: tuple[Reference, ...]

    @property
    def name(self) -> str:
        """The form, or its end if it is long."""
        return repr(self.form) if len(self.form) <= SHOWN else f"long text and {self.form[-20:]!r}"


def written(subject: Subject) -> dict[str, Written]:
    """References that have no gold response are tried in no other form."""
    return {}
