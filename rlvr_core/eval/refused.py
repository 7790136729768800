"""Refuses tasks that another harness runs, where they are not supported."""

from __future__ import annotations

from rlvr_core.api import ConfigError, ExternalTask


def refuse_external(name: str, task: object, command: str, instead: str) -> None:
    """Refuse a task that generates its own answers where that is not supported.

    Raises:
        ConfigError: If it is one.
    """
    if isinstance(task, ExternalTask):
        raise ConfigError(
            f"eval task '{name}' asks the model in its own way, which {command} cannot do",
            remedy=instead,
        )
