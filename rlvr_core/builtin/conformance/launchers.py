"""Promises of launchers, commands and services."""

from __future__ import annotations

import inspect
import math
import socket
import subprocess
import tomllib
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


# -- services ------------------------------------------------------------------------------------

_KEYS = ("model", "task", "metric", "value", "date", "measured_by", "source")


def _figures(subject: Subject) -> list[dict[str, Any]]:
    """Return the measured figures that a service returns, each with all its keys."""
    text = subject.component()
    demand(isinstance(text, str), f"it gives a {type(text).__name__}, not the text of a TOML file")
    try:
        blocks = tomllib.loads(text)["measured"]
        found = [{**block, **one} for block in blocks for one in block["results"]]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        what = f"it gives no figures: {type(error).__name__}: {error}; see rlvr docs models"
        raise AssertionError(what) from None
    demand(bool(found), "it gives no figures")
    return found


def service_is_a_function(subject: Subject) -> None:
    """Check that it can be called without arguments, and returns the same figures each time."""
    demand(callable(subject.component), f"it is a {type(subject.component).__name__}")
    needed = [
        one.name
        for one in inspect.signature(subject.component).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    demand(not needed, f"it needs the arguments {', '.join(needed)}: it is called without any")
    demand(_figures(subject) == _figures(subject), "a second call gives other figures")


def service_figures_are_whole(subject: Subject) -> None:
    """Check that figures are labelled, and that their values follow from their counts."""
    for one in _figures(subject):
        missing = [key for key in _KEYS if key not in one]
        demand(not missing, f"{one}: {', '.join(missing)} is missing")
        if "correct" in one:
            share = one["correct"] / one["n"] if one.get("n") else math.nan
            what = f"{one['task']}: {one['correct']} of {one.get('n')} is not {one['value']}"
            demand(abs(share - one["value"]) <= 6e-4, what)


SERVICE_CHECKS: tuple[Check, ...] = (
    Check("figures", "measured figures as TOML, each time the same", service_is_a_function),
    Check("whole", "figures say what was measured, when and where", service_figures_are_whole),
)
