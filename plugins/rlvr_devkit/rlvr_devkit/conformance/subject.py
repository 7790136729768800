"""A component under test, checks of it, and their results."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    DataError,
    Example,
    MachineError,
    RlvrError,
    config_class,
)
from rlvr_core.testing.offline import without_hub
from rlvr_core.toolkit import describe
from rlvr_devkit.conformance.cases import Case, load_cases


class Unchecked(Exception):  # noqa: N818 - no error
    """There is nothing to check, or it cannot be checked here; the message says why."""


def demand(condition: bool, message: str) -> None:
    """Raise ``AssertionError`` with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def as_json(value: object, what: str) -> Any:
    """Return a value after a round trip through JSON; ``AssertionError`` if that fails."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what} is no JSON: {error}") from None


@runtime_checkable
class ShowsExample(Protocol):
    """A component class that says how it is used, for the conformance checks."""

    @staticmethod
    def example() -> Example:
        """Return what the class is tried with."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A component under test.

    Attributes:
        kind: The component's kind, such as ``loss``.
        component: The class of the component; for a command or a forward path, its function.
        example: The example to check it with.
        folder: An empty folder that it may write to.
    """

    kind: str
    component: Any
    example: Example = field(default_factory=Example)
    folder: Path = Path()

    def options(self) -> ComponentConfig:
        """Return the options of the example.

        Raises:
            Unchecked: If the component needs options that the example lacks.
        """
        config = config_class(self.component)
        needed = [name for name, option in config.model_fields.items() if option.is_required()]
        lacking = [name for name in needed if name not in self.example.config]
        if lacking:
            raise Unchecked(f"it needs the options {', '.join(lacking)}: give an Example of them")
        return config(**self.example.config)

    def build(self) -> Any:
        """Return a new instance.

        Raises:
            Unchecked: If it needs options that the example lacks, or a package that is missing.
        """
        if self.kind == "tool_format":
            return self.component()  # without options
        try:
            return self.component(self.options())
        except MachineError as error:
            raise Unchecked(f"not on this machine: {error}") from None
        except (ConfigError, DataError) as error:
            if self.example.config:
                raise
            raise Unchecked(f"give an Example of its options: {error}") from None

    def cases(self) -> tuple[Case, ...]:
        """Return the cases of a verifier.

        Raises:
            Unchecked: If there are none.
        """
        if not self.example.cases:
            raise Unchecked("it has no cases: give an Example with some, right and wrong ones")
        return load_cases(self.example.cases)


@dataclass(frozen=True, slots=True)
class Check:
    """One promise.

    Attributes:
        id: Short name.
        promise: The property that holds if it passes.
        run: Raises ``AssertionError`` if it does not hold, ``Unchecked`` if it cannot be checked.
        needs: Optional method without which there is nothing to check.
    """

    id: str
    promise: str
    run: Callable[[Subject], None]
    needs: str = ""

    def applies(self, component: Any) -> bool:
        """Return whether the component has the method that is checked."""
        return not self.needs or hasattr(component, self.needs)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check.

    Attributes:
        check: The check.
        status: Whether the promise is kept, or was not checked.
        detail: The fault, or the reason why it was not checked.
    """

    check: Check
    status: Literal["kept", "broken", "unchecked"]
    detail: str = ""


def example_of(component: Any) -> Example:
    """Return the example that a component gives; an empty one if it gives none."""
    return component.example() if isinstance(component, ShowsExample) else Example()


def results(
    kind: str, component: Any, checks: Sequence[Check], example: Example | None = None
) -> Iterator[Result]:
    """Run checks, each with its own empty folder.

    Args:
        kind: The kind of component.
        component: The component.
        checks: The checks of this kind.
        example: The example to check with; None for the component's own.
    """
    used_example = example_of(component) if example is None else example
    for check in checks:
        if not check.applies(component):
            continue
        with tempfile.TemporaryDirectory(prefix="rlvr-check-") as folder:
            yield result(check, Subject(kind, component, used_example, Path(folder)))


def result(check: Check, subject: Subject) -> Result:
    """Run one check; an exception of the component breaks its promise."""
    try:
        with without_hub():
            check.run(subject)
    except Unchecked as reason:
        return Result(check, "unchecked", str(reason))
    except MachineError as error:
        return Result(check, "unchecked", f"not on this machine: {error}")
    except AssertionError as fault:
        return Result(check, "broken", str(fault))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a component may even call sys.exit
        text = str(error) if isinstance(error, RlvrError) else describe(error)
        return Result(check, "broken", f"it raised {text}")
    return Result(check, "kept")
