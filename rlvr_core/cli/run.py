"""``rlvr run``, and the displays that show its progress."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlvr_core.api import ConfigError
from rlvr_core.terminal.observer import Display, Silent
from rlvr_core.terminal.output import no_secrets_printed, quiet_libraries

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.parallel.ranks import Ranks
    from rlvr_core.plugins.host import Host
    from rlvr_core.record.rundir import RunFolder
    from rlvr_core.run.ending import Stop
    from rlvr_core.run.inputs import Inputs


def make_display(kind: str | None, total_steps: int) -> Display:
    """Create the display of this kind.

    Args:
        kind: ``live``, ``plain``, ``jsonl`` or ``none``; None selects ``live`` on a terminal and
            ``plain`` elsewhere.
        total_steps: Steps of the whole run; 0 if they are not known before it starts.
    """
    if kind == "none":
        return Silent()
    from rlvr_core.terminal import display

    return display.make_display(kind, total_steps)


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key.")
@click.option("--dry-run", is_flag=True, help="Check everything, say what would run, and stop.")
@click.option("--resume", metavar="RUN", help="Go on with a run: its name, its folder, or 'last'.")
@click.option("--take-over", is_flag=True, help="Own its place in run.mirror, whoever did.")
@click.option(
    "--display",
    "display_kind",
    type=click.Choice(["live", "plain", "jsonl", "none"]),
    help="How to show progress [default: live on a terminal, else plain].",
)
def run(
    config: Path | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    resume: str | None,
    display_kind: str | None,
    take_over: bool,
) -> None:
    """Train as CONFIG (a YAML file) says.

    Writes a folder <run.dir>/<run.name>-<time> with everything about the run; see it with
    `rlvr show last`. A run that was stopped, killed or interrupted goes on from its newest
    complete checkpoint with --resume, exactly as if nothing had happened. Without CONFIG it is
    looked for in 'runs', or where --set run.dir=DIR says.
    """
    from rlvr_core.parallel import ranks
    from rlvr_core.plugins.host import load_host
    from rlvr_core.run.ending import Stop

    if take_over:  # asked once, for all processes of the run
        os.environ.setdefault("RLVR_TAKE_OVER", os.urandom(8).hex())
    stop = Stop(patient=ranks.launched())
    stop.listen()
    host = load_host()
    kind = display_kind if os.environ.get("RANK", "0") == "0" else "none"
    with stop.heeded(), no_secrets_printed(), closing(make_display(kind, 0)) as display:
        display.phase("reading the configuration")
        resolved, folder = what_to_run(config, overrides, resume, host)
        quiet_libraries()
        with ranks.joined(resolved.config.run.timeout) as together:
            from rlvr_core.run.agreement import check_agreement

            check_agreement(resolved, together)
            carry_out(resolved, folder, host, display, together, stop, dry_run=dry_run)


def carry_out(
    resolved: Resolved,
    folder: RunFolder | None,
    host: Host,
    display: Display,
    together: Ranks,
    stop: Stop,
    *,
    dry_run: bool = False,
) -> RunFolder | None:
    """Build a run and take its steps; return its folder, or None for a dry run."""
    from rlvr_core.data.uri import model_path
    from rlvr_core.run.build import build

    def look(inputs: Inputs) -> Inputs | None:
        if not dry_run:
            return inputs
        from rlvr_core.rollout.samplers.preview import preview

        display.plan([*inputs.lines, *preview(inputs.sampler)])
        display.finish(["dry run: nothing was trained and nothing written"])
        return None

    with build(
        resolved,
        lambda: model_path(resolved.config.model.path, host),
        display,
        folder=folder,
        command=sys.argv,
        ranks=together,
        stop=stop,
        look=look,
    ) as session:
        if session is None:
            return None
        session.run(resolved.dump())
    return session.folder


def what_to_run(
    config: Path | None, overrides: tuple[str, ...], resume: str | None, host: Host
) -> tuple[Resolved, RunFolder | None]:
    """Return the checked configuration, and when resuming the folder of the run to continue."""
    if resume is not None:
        from rlvr_core.run.resumption.chosen import run_to_resume as find

        return find(resume, config, overrides, host)
    if config is None:
        raise ConfigError(
            "nothing to run", remedy="rlvr run CONFIG.yaml, or rlvr run --resume last"
        )
    from rlvr_core.config.resolve import resolve_file

    return resolve_file(config, overrides, host), None
