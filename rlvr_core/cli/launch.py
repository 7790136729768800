"""``rlvr launch``: run on several processes, several machines, or somewhere a plugin knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlvr_core.cli import output

_FLAGS = ("processes", "gpus", "engine_gpus", "nodes", "node_rank", "main_address", "main_port")


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--backend", default="local", show_default=True, help="Where: see rlvr list launchers."
)
@click.option("--processes", type=click.IntRange(min=1), help="Processes on this machine.")
@click.option("--gpus", metavar="0,1", help="GPUs to train on, one for each process.")
@click.option("--engine-gpus", metavar="2,3", help="GPUs of an engine in processes of its own.")
@click.option("--nodes", type=click.IntRange(min=1), help="Machines; give the command on each.")
@click.option("--node-rank", type=click.IntRange(min=0), help="This machine's number, from 0.")
@click.option("--main-address", metavar="NAME", help="Machine 0, as the others reach it.")
@click.option("--main-port", type=click.IntRange(1, 65535), help="A free port there.")
@click.option(
    "--with", "options", multiple=True, metavar="KEY=VALUE", help="Another option of the backend."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key of the config."
)
@click.option("--resume", metavar="RUN", help="Go on with a run: its name, its folder, or 'last'.")
@click.option(
    "--display",
    "display_kind",
    type=click.Choice(["live", "plain", "jsonl", "none"]),
    help="How process 0 shows progress [default: live on a terminal, else plain].",
)
@click.option("--dry-run", is_flag=True, help="Check the config, print the plan, and stop.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print the plan as JSON.")
def launch(
    config: Path | None,
    backend: str,
    options: tuple[str, ...],
    overrides: tuple[str, ...],
    resume: str | None,
    display_kind: str | None,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Train as CONFIG (a YAML file) says, in several processes.

    The run is the one that `rlvr run` would do: one folder, the same completions, the same numbers
    up to rounding. It may be resumed with another number of processes, or with `rlvr run`.

    Ctrl-C or SIGTERM lets it finish the step and write a checkpoint; a second one stops it.
    """
    from rlvr_core.cli.run import what_to_run
    from rlvr_core.config.model import ComponentRef
    from rlvr_core.config.resolve import build, parse_options
    from rlvr_core.plugins import load_host
    from rlvr_core.protocols import LaunchRequest
    from rlvr_core.record.text import Redactor

    if as_json and not dry_run:
        raise click.UsageError("--json prints the plan: it goes with --dry-run")
    host = load_host()
    resolved, folder = what_to_run(config, overrides, resume, host)
    words = ["run", *([str(config)] if config else [])]
    for override in overrides:
        words += ["--set", override]
    if folder is not None:
        words += ["--resume", str(folder.path.absolute())]
    if display_kind is not None:
        words += ["--display", display_kind]
    engine = resolved.config.engine
    apart = resolved.config.train.max_staleness > 0 or (
        engine.use != "auto" and getattr(host.entry("engine", engine.use).load(), "separate", False)
    )
    given = parse_options(options) | _given(flags)
    launcher = build(
        host,
        "launcher",
        ComponentRef.model_validate({"use": backend, "with": given}),
        "rlvr launch",
    )
    plan = launcher.plan(LaunchRequest(tuple(words), resolved.config.run.name, apart))
    if not dry_run:
        code: int = launcher.submit(plan)
        return code
    hide = Redactor()
    if as_json:
        details = hide.tree(dict(plan.details))
        output.print_json({"launcher": plan.launcher, "plan": details})
    else:
        for line in plan.lines:
            output.print_line(hide.text(line))
    return 0


def _given(flags: dict[str, Any]) -> dict[str, Any]:
    """The options of the command line that were given, as the launcher's."""
    given = {name: flags[name] for name in _FLAGS if flags[name] is not None}
    for name in ("gpus", "engine_gpus"):
        if name in given:
            given[name] = [part.strip() for part in given[name].split(",")]
    return given
