"""A checkable constraint on a response, and named sets of them.

A constraint's arguments have a schema, so a row that asks for an unknown constraint, leaves an
argument out or adds one is found when data is loaded, and never becomes a silent zero.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError

from rlvr_core.api import Complaint, ComponentConfig, DataError
from rlvr_ifeval.substance import always
from rlvr_ifeval.text import visible

_SHOWN = 80
MAX_CONSTRAINTS = 100
"""Maximum constraints of one problem."""


class Args(ComponentConfig):
    """Base of argument schemas: unknown arguments are errors, values are frozen.

    A null in the data means that the argument is absent: data sets whose rows were forced into
    one column type fill every argument of every constraint with nulls.
    """


class NoArgs(Args):
    """The schema of a constraint without arguments."""


def _whole(value: Any) -> Any:
    """Take 3.0 for 3, as column types turn one into the other; never text or a truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("must be a whole number")
        return int(value)
    return value


Whole = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=10**9)]
"""A whole number from 0; ``3.0`` counts as 3, ``"3"`` and ``true`` are refused."""
Positive = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=10**9)]
"""A whole number from 1."""
Text = Annotated[str, StringConstraints(strict=True, max_length=100_000)]
"""Any text."""
Word = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=10_000)]
"""Text that is not empty."""

A = TypeVar("A", bound=Args)


@dataclass(frozen=True)
class Constraint(Generic[A]):
    """One kind of constraint.

    The functions are pure, deterministic, and finish quickly on any text; an exception in one
    is a bug. An empty or blank response never reaches ``holds``: it follows nothing.

    Attributes:
        id: E.g. ``length_constraints:number_words``.
        args: Schema of its arguments.
        holds: Whether a response follows it.
        wording: The instruction as a prompt says it, with ``{name}`` for an argument; or a function
            that writes it.
        has_content: Whether a response is more than a trivial pass, like a one-letter
            palindrome; asked only with ``min_content``. Five different words when not
            given; None where no pass is trivial.
    """

    id: str
    args: type[A]
    holds: Callable[[str, A], bool]
    wording: str | Callable[[A], str]
    has_content: Callable[[str, A], bool] | None = always

    def text(self, args: A) -> str:
        """Return the instruction for these arguments."""
        return self.wording(args) if callable(self.wording) else self.wording.format(**dict(args))


class Family(list[Constraint[Any]]):
    """Constraints that stand together in a module, each above its rule."""

    def add(
        self,
        id: str,
        args: type[A],
        wording: str | Callable[[A], str],
        *,
        has_content: Callable[[str, A], bool] | None = always,
    ) -> Callable[[Callable[[str, A], bool]], Callable[[str, A], bool]]:
        """Add a constraint whose rule is the decorated function; see ``Constraint``."""

        def decorate(holds: Callable[[str, A], bool]) -> Callable[[str, A], bool]:
            self.append(Constraint(id, args, holds, wording, has_content))
            return holds

        return decorate


@dataclass(frozen=True)
class Bound:
    """A constraint with its arguments."""

    constraint: Constraint[Any]
    args: Args

    @property
    def id(self) -> str:
        """The constraint's id."""
        return self.constraint.id

    @property
    def wording(self) -> str:
        """The instruction as a prompt says it."""
        return self.constraint.text(self.args)

    def follows(self, response: str, *, min_content: bool = False, as_is: bool = False) -> bool:
        """Whether a response follows it; a blank one never does.

        Invisible characters do not count, unless the arguments have some.

        Args:
            response: The response.
            min_content: Whether to refuse a trivial pass.
            as_is: Whether hidden characters count, as they do in the benchmarks' scripts.
        """
        if not as_is:
            shown = visible(response)
            if shown != response and not self._has_hidden():
                response = shown
        if not response.strip() or not self.constraint.holds(response, self.args):
            return False
        enough = self.constraint.has_content
        return not min_content or enough is None or enough(response, self.args)

    def _has_hidden(self) -> bool:
        return any(visible(text) != text for text in _texts(self.args.model_dump()))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (text for item in value for text in _texts(item))


class ConstraintSet:
    """Constraints by id, as one data set or benchmark names them."""

    def __init__(self, name: str, constraints: Iterable[Constraint[Any]] = ()) -> None:
        self.name = name
        self._by_id: dict[str, Constraint[Any]] = {}
        for constraint in constraints:
            self.register(constraint)

    def __iter__(self) -> Iterator[Constraint[Any]]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, in the order they were registered."""
        return tuple(self._by_id)

    def register(self, constraint: Constraint[Any]) -> None:
        """Add a constraint.

        Raises:
            ValueError: If its id is taken.
        """
        if constraint.id in self._by_id:
            raise ValueError(f"{self.name} already has a constraint {constraint.id!r}")
        self._by_id[constraint.id] = constraint

    def get(self, id: str, where: str = "") -> Constraint[Any]:
        """The constraint of this id.

        Raises:
            DataError: If there is none; suggests similar ones.
        """
        if id in self._by_id:
            return self._by_id[id]
        close = difflib.get_close_matches(id, self._by_id, n=3, cutoff=0.5)
        raise DataError(
            f"unknown constraint {short(id)} (set {self.name!r})",
            where=where,
            remedy=f"did you mean {' or '.join(close)}?"
            if close
            else f"known are: {', '.join(self._by_id)}",
        )

    def parse(self, id: str, kwargs: Mapping[str, Any] | None, where: str = "") -> Bound:
        """Bind a constraint to arguments of a data row.

        Args:
            id: The constraint's id.
            kwargs: Its arguments; nulls count as absent.
            where: The row, for messages.

        Raises:
            DataError: If the id is unknown, or an argument is missing, unexpected or of a wrong
                type; all faults at once.
        """
        constraint = self.get(id, where)
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise DataError(f"{id}: arguments must be a mapping, not {short(kwargs)}", where=where)
        given = {key: value for key, value in (kwargs or {}).items() if value is not None}
        try:
            return Bound(constraint, constraint.args.model_validate(given))
        except ValidationError as error:
            names = ", ".join(constraint.args.model_fields) or "none"
            complaints = [
                Complaint(f"{id}: {_fault(fault)}", where, (f"its arguments are: {names}",))
                for fault in error.errors(include_url=False)
            ]
            raise DataError.collect(complaints) from None

    def parse_all(
        self, ids: Sequence[str], kwargs: Sequence[Mapping[str, Any] | None], where: str = ""
    ) -> tuple[Bound, ...]:
        """Bind the constraints of one row, which stand in two lists of equal length.

        Raises:
            DataError: If there are none or too many, the lists differ in length (never cut to
                the shorter), or one does not parse; all faults at once.
        """
        for what, listed in (("constraint ids", ids), ("arguments", kwargs)):
            if not isinstance(listed, list | tuple):
                raise DataError(f"{what} must be a list, not {short(listed)}", where=where)
        if len(ids) != len(kwargs):
            raise DataError(
                f"{len(ids)} constraint ids, but arguments for {len(kwargs)}", where=where
            )
        if not 0 < len(ids) <= MAX_CONSTRAINTS:
            raise DataError(f"{len(ids)} constraints; 1 to {MAX_CONSTRAINTS} can be", where=where)
        bound: list[Bound] = []
        complaints: list[Complaint] = []
        for id, given in zip(ids, kwargs, strict=True):
            try:
                if not isinstance(id, str):
                    raise DataError(f"a constraint id must be text, not {short(id)}", where=where)
                bound.append(self.parse(id, given, where))
            except DataError as error:
                complaints.extend(error.complaints)
        if complaints:
            raise DataError.collect(complaints)
        return tuple(bound)


def _fault(fault: Any) -> str:
    name = ".".join(map(str, fault["loc"])) or "arguments"
    if fault["type"] == "missing":
        return f"argument '{name}' is missing"
    if fault["type"] == "extra_forbidden":
        return f"unexpected argument '{name}' = {short(fault['input'])}"
    message = fault["msg"].removeprefix("Value error, ")
    return f"argument '{name}' = {short(fault['input'])}: {message[:1].lower()}{message[1:]}"


def short(value: object) -> str:
    """A value for messages, cut if it is long."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
