"""``rlvr models``: checks a model's files, and shows its measured figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlvr_core.api.services import output

if TYPE_CHECKING:
    from rlvr_core.builtin.modelcheck.baselines import Baseline
    from rlvr_core.builtin.modelcheck.examination import Examined

MARKS = {"ok": "ok", "note": "-", "warn": "DOUBT", "fail": "WRONG", "skip": "skipped"}
_JSON = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")


@click.group()
def models() -> None:
    """Check models before they are trained, and show measured figures."""


@models.command()
@click.argument("model")
@click.option("--revision", help="Revision of a hub id.")
@click.option("--step", type=click.IntRange(0), help="Which checkpoint of a run [newest].")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
@click.option("--no-values", is_flag=True, help="Do not read the weights, only their headers.")
@click.option("--trust-remote-code", is_flag=True, help="Let code that comes with it run.")
@_JSON
def check(
    model: str,
    revision: str | None,
    step: int | None,
    runs_dir: str,
    no_values: bool,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Check the files of MODEL, and say what was measured of it.

    MODEL is a folder, a hub id, tiny:TASK, a run or a checkpoint. Nothing is fetched from the hub:
    of an id, what is in its cache is checked. The exit code is 1 if something is broken.

    Example: rlvr models check Qwen/Qwen3-1.7B-Base
    """
    from rlvr_core.builtin.modelcheck.examination import check as examine

    found = examine(
        model,
        revision=revision,
        step=step,
        runs_dir=runs_dir,
        trust_remote_code=trust_remote_code,
        values=not no_values,
    )
    if as_json:
        output.print_json(found.as_json())
    else:
        _print(found)
    raise click.exceptions.Exit(1 if found.report.verdict == "broken" else 0)


@models.command()
@click.argument("model", required=False)
@_JSON
def baselines(model: str | None, as_json: bool) -> None:
    """List the measured figures of MODEL, or of all models.

    Figures of other systems are marked as theirs: nobody here has measured them again.
    """
    from rlvr_core.api.services import load_host
    from rlvr_core.builtin.modelcheck.baselines import known, names_of, registered

    found = registered(load_host())
    if model is not None:
        found = [one for one, _ in known(found, names_of(model))]
    if as_json:
        output.print_json([one.as_json() for one in found])
    elif found:
        print_baselines(found, with_model=True)
    else:
        output.print_line(f"no figures of {model} are registered")


def _print(found: Examined) -> None:
    from rlvr_core.api.services import printable

    def say(text: str) -> None:
        output.print_line(printable(text))

    say(f"{found.name}: {found.folder or 'not on this machine'}")
    for label, value in found.identity_lines:
        say(f"{label}: {value}")
    rows = [(one.id, MARKS[one.level], printable(one.text)) for one in found.report.findings]
    output.print_table(("check", "", "found"), rows)
    wrong, doubts = len(found.report.level("fail")), len(found.report.level("warn"))
    say(f"verdict: {found.report.verdict} ({wrong} wrong, {doubts} doubtful)")
    for one in found.report.level("fail", "warn"):
        say(f"  {one.id}: {one.remedy}")
    if found.baselines:
        say("")
        say(f"measured figures ({found.recognised}):")
        print_baselines([one for one, _ in found.baselines])
    else:
        say("no figures of this model are registered")


def print_baselines(found: list[Baseline], *, with_model: bool = False) -> None:
    """Print figures as a table."""
    headers = ("task", "prompt", "sampling", "after", "metric", "value", "95 %", "n", "by", "date")
    rows = []
    for one in found:
        interval = "" if one.interval is None else f"{one.interval[0]:.3f}-{one.interval[1]:.3f}"
        by = one.by if one.measured_by == "rlvr" else f"{one.by} (theirs)"
        n = "" if one.n is None else f"{one.n:,}"
        prompt = ", ".join(filter(None, (one.prompt, one.note)))
        row = (one.task, prompt, one.sampling, one.after, one.metric, f"{one.value:.3f}")
        rows.append((*((one.model,) if with_model else ()), *row, interval, n, by, str(one.date)))
    output.print_table((*(("model",) if with_model else ()), *headers), rows)
