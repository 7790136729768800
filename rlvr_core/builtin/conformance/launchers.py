"""Promises of launchers and commands."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock

import click

from rlvr_core.api import ConfigError, LaunchPlan, LaunchRequest
from rlvr_core.builtin.conformance.subject import Check, Subject, Unchecked, as_json, demand


def _request(subject: Subject) -> LaunchRequest:
    config = subject.folder / "config.yaml"
    config.write_text("run: {name: conformance}\n", encoding="utf-8")
    return LaunchRequest(("run", str(config)), "conformance", files=(config,))


def _plan(launcher: Any, request: LaunchRequest) -> LaunchPlan:
    try:
        plan: LaunchPlan = launcher.plan(request)
    except ConfigError as error:
        raise Unchecked(f"give an Example of its options: {error}") from None
    demand(isinstance(plan, LaunchPlan), f"plan gives a {type(plan).__name__}, not a LaunchPlan")
    return plan


def launcher_plans(subject: Subject) -> None:
    """Check that a plan describes the launch, as text and as data."""
    launcher, request = subject.build(), _request(subject)
    plan, second = _plan(launcher, request), _plan(launcher, request)
    demand(plan == second, f"a second plan of the same request differs: {plan}, {second}")
    readable = bool(plan.lines) and all(isinstance(line, str) and line for line in plan.lines)
    demand(readable, f"the lines of the plan say nothing to people: {plan.lines!r}")
    details = as_json(dict(plan.details), "details of the plan")
    demand(details == dict(plan.details), "details of the plan are not read back as written")


def launcher_plans_quietly(subject: Subject) -> None:
    """Check that a plan starts no process and contacts no other machine."""
    launcher, request = subject.build(), _request(subject)
    with _nothing_starts():
        _plan(launcher, request)


@contextmanager
def _nothing_starts() -> Iterator[None]:
    def refuse(*words: Any, **_: Any) -> NoReturn:
        raise AssertionError(f"plan is not pure: it starts or asks {words[1:] or words}")

    with (
        mock.patch.object(subprocess.Popen, "__init__", refuse),
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch("os.system", refuse),
    ):
        yield


LAUNCHER_CHECKS: tuple[Check, ...] = (
    Check("plan", "a plan for people and, as JSON, for programs; always the same", launcher_plans),
    Check("pure", "planning starts no process and asks no machine", launcher_plans_quietly),
)


# -- commands ------------------------------------------------------------------------------------


def command_is_clicks(subject: Subject) -> None:
    """Check that ``--help`` works and describes the command."""
    command = subject.component
    what = f"it is a {type(command).__name__}: decorate it with @click.command()"
    demand(isinstance(command, click.Command), what)
    text, code = _run(command, ["--help"])
    demand(code == 0, f"--help ends with exit code {code}: {text}")
    demand(bool((command.help or "").strip()), "it says nothing of itself: write a docstring")


def command_explains_options(subject: Subject) -> None:
    """Check that every option has a help text."""
    bare = [
        param.opts[0]
        for command in _commands(subject.component)
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    demand(not bare, f"write help= for {', '.join(bare)}")


def command_refuses_misspellings(subject: Subject) -> None:
    """Check that an unknown option is a usage error with exit code 2."""
    for command in _commands(subject.component):
        loose = command.context_settings.get("ignore_unknown_options", False)
        demand(not loose, f"{command.name} ignores unknown options: they are lost in silence")
    if not isinstance(subject.component, click.Group):
        text, code = _run(subject.component, ["--no-such-option"])
        demand(code == 2, f"--no-such-option ends with exit code {code}, not 2: {text}")


def _commands(command: Any) -> list[click.Command]:
    if not isinstance(command, click.Command):
        raise Unchecked("it is no click command")
    return [command, *(command.commands.values() if isinstance(command, click.Group) else ())]


def _run(command: click.Command, words: list[str]) -> tuple[str, int]:
    from click.testing import CliRunner

    done = CliRunner().invoke(command, words)
    return done.output, done.exit_code


COMMAND_CHECKS: tuple[Check, ...] = (
    Check("help", "it is a click command, and --help says what it does", command_is_clicks),
    Check("options", "every option is explained", command_explains_options),
    Check("typos", "a misspelt option is a usage error", command_refuses_misspellings),
)
