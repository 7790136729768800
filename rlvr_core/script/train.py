"""``rlvr_core.train``: a run from Python, in a script or a notebook."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError
from rlvr_core.terminal.observer import Display

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlvr_core.config.model import RunConfig
    from rlvr_core.record.view import RunView

GIVEN = "the config given to rlvr_core.train"
"""File name in messages about a configuration without a file."""

DISPLAYS = ("live", "plain", "jsonl", "none")
"""Names of displays."""


def train(
    config: str | os.PathLike[str] | Mapping[str, Any] | RunConfig,
    *,
    rewards: Sequence[Callable[..., Any] | str | Mapping[str, Any]] | None = None,
    set: Mapping[str, Any] | None = None,
    display: str | Display | None = None,
) -> RunView:
    """Train as a configuration says; the same as ``rlvr run``.

    An interrupt (Ctrl-C, or the stop button of a notebook) ends the run after the step it is at,
    with a checkpoint; a second one ends it at once.

    Args:
        config: A YAML file, or what one holds: a mapping, in which functions and classes may stand
            where a component is named, or a ``RunConfig``.
        rewards: In the place of the config's: functions, names of verifiers, or mappings as in
            YAML.
        set: Values by dotted key, on top of the config: ``{"train.steps": 10}``.
        display: ``live``, ``plain``, ``jsonl`` or ``none``; left out, ``live`` on a terminal and
            ``plain`` elsewhere. Or an object of your own.

    Returns:
        The run, as its folder has it.

    Raises:
        RlvrError: What ``rlvr run`` would say; ``str(error)`` has it all.
        KeyboardInterrupt: If it was interrupted; its folder has a checkpoint to go on from.
    """
    from rlvr_core.config.resolve import resolve_file
    from rlvr_core.parallel import ranks
    from rlvr_core.plugins.blame import faults_named
    from rlvr_core.plugins.host import load_host
    from rlvr_core.record.view import RunView
    from rlvr_core.run.ending import Stop
    from rlvr_core.terminal.output import quiet_libraries

    overrides = overrides_of(set, rewards=rewards)
    if not (display is None or display in DISPLAYS or isinstance(display, Display)):
        raise ConfigError(
            f"there is no display {display!r}",
            where="display",
            remedy=f"take {', '.join(DISPLAYS)}, or give an object of a subclass of Display",
        )
    host = load_host()
    path, text = source(config)
    resolved = resolve_file(path, overrides, host, text)
    quiet_libraries()
    stop = Stop(patient=True)
    with (
        signals_restored(),
        faults_named(),
        ranks.joined(resolved.config.run.timeout) as together,
    ):
        stop.listen()
        from rlvr_core.cli.run import carry_out, make_display

        if display is None or isinstance(display, str):
            kind = display if together.main else "none"
            display = make_display(kind, resolved.config.train.steps)
        folder = carry_out(resolved, None, host, display, together, stop)
    assert folder is not None, "this was no dry run"
    return RunView(folder)


def overrides_of(changes: Any, **lists: Any) -> list[str]:
    """Return what ``train`` or ``evaluate`` was given as options of ``--set``.

    Args:
        changes: The argument ``set``.
        lists: Arguments that stand for the key of their name, or None.

    Raises:
        ConfigError: If one is no list, ``set`` no mapping, or a value cannot be written as YAML.
    """
    if not isinstance(changes, Mapping | None):
        raise ConfigError(
            f"set is a {type(changes).__name__}, not a mapping",
            where="set",
            remedy='write it as {"train.steps": 10}',
        )
    for name, given in lists.items():
        if not isinstance(given, Sequence | None) or isinstance(given, str):
            raise ConfigError(
                f"{name} is a {type(given).__name__}, not a list",
                where=name,
                remedy=f"write {name}=[...]",
            )
    values = {name: list(given) for name, given in lists.items() if given is not None}
    return [option(key, value) for key, value in {**values, **(changes or {})}.items()]


def source(
    config: str | os.PathLike[str] | Mapping[str, Any] | RunConfig,
) -> tuple[Path, str | None]:
    """The file of a configuration; or a name for it, and its text."""
    if isinstance(config, str | os.PathLike):
        return Path(config), None
    from rlvr_core.api import ComponentConfig

    if isinstance(config, ComponentConfig):
        config = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"a config is a YAML file or a mapping, not a {type(config).__name__}", where=GIVEN
        )
    from rlvr_core.config.dialect import write

    return Path(GIVEN), write(plain(config))


def option(key: str, value: Any) -> str:
    """A value as ``--set`` takes it."""
    try:
        return f"{key}={json.dumps(plain(value), allow_nan=False)}"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key} cannot be {value!r}: {error}", where="set") from error


def plain(value: Any) -> Any:
    """A value as YAML holds it; functions and classes become the names they are found by."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if inspect.isfunction(value) or isinstance(value, type):
        from rlvr_core.script.ship import reference

        return reference(value)
    return value


@contextlib.contextmanager
def signals_restored() -> Iterator[None]:
    """Restore the signal handlers, such as a notebook's, after this block."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.alarm(0)
            for number, handler in before.items():
                signal.signal(number, handler)
