"""The errors that rlvr and its plugins raise, each with an exit code.

An ``RlvrError`` is printed without a traceback: what is wrong, where, and what to do. Anything
else that escapes is a bug, of ours or of a plugin, and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong.

    Attributes:
        what: The fault, in one sentence.
        where: File and line, config path, or row; empty when there is no place to point at.
        remedy: What the user can do about it; one line per step.
    """

    what: str
    where: str = ""
    remedy: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  at {self.where}")
        lines.extend(f"  {line}" for line in self.remedy)
        return "\n".join(lines)


class RlvrError(Exception):
    """Base of all errors that are shown to a user as a message, not as a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", remedy: str | Sequence[str] = ()) -> None:
        lines = (remedy,) if isinstance(remedy, str) else tuple(remedy)
        self.complaints: tuple[Complaint, ...] = (
            Complaint(what, where, tuple(line for line in lines if line)),
        )
        super().__init__(what)

    @classmethod
    def collect(cls, complaints: Sequence[Complaint]) -> RlvrError:
        """Make one error that reports several faults at once.

        Args:
            complaints: The faults, in the order they are to be shown; at least one.
        """
        error = cls(complaints[0].what)
        error.complaints = tuple(complaints)
        return error

    def as_json(self) -> list[dict[str, object]]:
        """Return the complaints as JSON."""
        return [asdict(complaint) for complaint in self.complaints]

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.complaints))

    def __str__(self) -> str:
        return "\n".join(str(complaint) for complaint in self.complaints)


def _rebuild(cls: type[RlvrError], complaints: tuple[Complaint, ...]) -> RlvrError:
    return cls.collect(complaints)


class RunError(RlvrError):
    """A run that started and could not go on. Exit code 1."""


class IdleError(RunError):
    """A run in which nothing can be learned: no step changes the weights. Exit code 6."""

    exit_code = 6


class ConfigError(RlvrError):
    """The configuration, or a file it names, is wrong. Exit code 2."""

    exit_code = 2


class DataError(ConfigError):
    """A dataset or a row of it is wrong; the message names the row. Exit code 2."""


class PluginError(RlvrError):
    """A plugin is missing, broken or clashes with another. Exit code 3."""

    exit_code = 3


class MachineError(RlvrError):
    """The machine lacks something: a model folder, a package, memory, disk. Exit code 4."""

    exit_code = 4


class RefusedError(MachineError):
    """A store or service refuses for good: no permission, no such bucket. Exit code 4."""


class ChangedError(MachineError):
    """A file of a store is not what its writer last knew: somebody else has written it."""


def one_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its text."""
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
