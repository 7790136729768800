"""``rlvr regrade``: judges stored completions with another verifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rlvr_core.api import ChecksProblems
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_lab.regrade import Changes


@click.command()
@click.argument("source")
@click.option("--verifier", required=True, metavar="NAME", help="The verifier to judge by.")
@click.option("--with", "options", multiple=True, metavar="KEY=VALUE", help="Set an option of it.")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds a verdict may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def regrade(
    source: str,
    verifier: str,
    options: tuple[str, ...],
    runs_dir: str,
    workers: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Judge the completions stored in SOURCE again, and say what would have been different.

    SOURCE is a run (its name, its folder or 'last') or a result folder of `rlvr eval`. Nothing in
    it is changed.

    Example: rlvr regrade last --verifier math/boxed
    """
    from rlvr_core.config.model import ComponentRef
    from rlvr_core.config.resolve import build, parse_options
    from rlvr_core.data.load import check_problems
    from rlvr_core.plugins.host import load_host
    from rlvr_core.verify.pool import VerifierPool
    from rlvr_core.verify.verdicts import VerifierSpec
    from rlvr_lab.regrade import regrade as judge_again
    from rlvr_lab.stored import open_stored

    host = load_host()
    entry = host.entry("verifier", verifier, "--verifier")
    with_ = parse_options(options)
    ref = ComponentRef.model_validate({"use": entry.name, "with": with_})
    instance = build(host, "verifier", ref, "--with")
    stored = open_stored(source, host, runs_dir)
    if isinstance(instance, ChecksProblems):
        check_problems(list(stored.problems.values()), instance.check)
    spec = VerifierSpec(entry.target, with_)
    with VerifierPool({entry.name: spec}, workers=workers, timeout=timeout, memory_mb=2048) as pool:
        changes = judge_again(stored, pool, entry.name)
    if as_json:
        output.print_json({"source": str(stored.path), "verifier": entry.name, **changes.data()})
    else:
        _print(changes, stored.is_run)


def _print(changes: Changes, of_run: bool) -> None:
    numbers = changes.data()
    rows = [
        ("completions", str(numbers["completions"])),
        ("changed in outcome or score", str(numbers["changed"])),
        *((f"outcome {name}", str(count)) for name, count in numbers["outcomes"].items()),
        *((f"new verdicts: {name}", str(count)) for name, count in numbers["statuses"].items()),
        ("mean change of the score", _number(numbers["score_change"])),
        ("groups of several", str(numbers["groups"])),
        ("groups that gain a signal", str(numbers["groups_gained_signal"])),
        ("groups that lose theirs", str(numbers["groups_lost_signal"])),
    ]
    output.print_table(("what", "found"), rows)
    for example in numbers["examples"]:
        place = f"step {example['step'] + 1}, " if of_run else ""
        output.print_line(
            f"\n{example['problem_id']} ({place}sample {example['sample']}): {example['outcome']}"
        )
        for when in ("before", "after"):
            judged = example[when]
            output.print_line(
                f"  {when}: score {judged['score']}, {judged['status']}, "
                f"answer {judged['extracted']!r}: {judged['detail']}"
            )
        output.print_line(f"  {example['text']!r}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
