"""Promises of launchers and commands."""

from __future__ import annotations

import click

from rlvr_core.api import ConfigError, LaunchPlan, LaunchRequest
from rlvr_devkit.conformance.subject import Check, Subject, Unchecked, as_json, demand


def launcher_plans(subject: Subject) -> None:
    """Check that a plan describes the launch, as text and as data, and is always the same."""
    config = subject.folder / "config.yaml"
    config.write_text("run: {name: conformance}\n", encoding="utf-8")
    request = LaunchRequest(("run", str(config)), "conformance", files=(config,))
    launcher = subject.build()
    try:
        plan, second = launcher.plan(request), launcher.plan(request)
    except ConfigError as error:
        raise Unchecked(f"give an Example of its options: {error}") from None
    demand(isinstance(plan, LaunchPlan), f"plan gives a {type(plan).__name__}, not a LaunchPlan")
    demand(plan == second, f"a second plan of the same request differs: {plan}, {second}")
    readable = bool(plan.lines) and all(isinstance(line, str) and line for line in plan.lines)
    demand(readable, f"the lines of the plan say nothing to people: {plan.lines!r}")
    details = as_json(dict(plan.details), "details of the plan")
    demand(details == dict(plan.details), "details of the plan are not read back as written")


LAUNCHER_CHECKS: tuple[Check, ...] = (
    Check("plan", "a plan for people and, as JSON, for programs; always the same", launcher_plans),
)


def command_explains_itself(subject: Subject) -> None:
    """Check that ``--help`` works, and describes the command and its options."""
    from click.testing import CliRunner

    command = subject.component
    what = f"it is a {type(command).__name__}: decorate it with @click.command()"
    demand(isinstance(command, click.Command), what)
    shown = CliRunner().invoke(command, ["--help"])
    demand(shown.exit_code == 0, f"--help ends with exit code {shown.exit_code}: {shown.output}")
    demand(bool((command.help or "").strip()), "it says nothing of itself: write a docstring")
    below = command.commands.values() if isinstance(command, click.Group) else ()
    options = (param for shown_command in (command, *below) for param in shown_command.params)
    bare = [
        option.opts[0] for option in options if isinstance(option, click.Option) and not option.help
    ]
    demand(not bare, f"write help= for {', '.join(bare)}")


COMMAND_CHECKS: tuple[Check, ...] = (
    Check("help", "--help explains it and its options", command_explains_itself),
)
