"""``rlvr doctor CONFIG`` and ``rlvr selftest CONFIG``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rlvr_core.toolkit import print_line


def doctor(config: Path, overrides: Sequence[str], *, live: bool, as_json: bool) -> int:
    """Examine a configuration and print the report.

    Returns:
        The exit code: 1 if something is wrong.
    """
    from rlvr_doctor.examination.examination import examine, nothing

    say = nothing if as_json else _say
    report = examine(config, overrides, live=live, say=say)
    report.show(as_json=as_json)
    return report.exit_code


def _say(text: str) -> None:
    print_line(f"... {text}", stderr=True)


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key.")
@click.option(
    "--steps",
    type=click.IntRange(4),
    default=40,
    show_default=True,
    help="Most steps in which ten problems are to be learnt.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def selftest(config: Path, overrides: tuple[str, ...], steps: int, as_json: bool) -> None:
    """Test that training works with the model, data and verifier of CONFIG.

    Short runs in a scratch folder: nothing drifts at a learning rate of 0; an update goes where the
    rewards point; ten problems are learnt; a resumed run equals one without a stop. The exit code
    is 1 if a test fails.
    """
    from rlvr_doctor.examination.examination import nothing
    from rlvr_doctor.examination.selftest import selftest as test

    say = nothing if as_json else _say
    report = test(config, overrides, steps=steps, say=say)
    report.show(as_json=as_json)
    raise click.exceptions.Exit(report.exit_code)
