"""``rlvr data``: checks task sets before a run trains on them."""

from __future__ import annotations

import click

from rlvr_core.api import RunError
from rlvr_core.toolkit import ComponentRef, parse_options, print_json


@click.group()
def data() -> None:
    """Check task sets."""


@data.command()
@click.argument("source")
@click.option("--with", "options", multiple=True, metavar="KEY=VALUE", help="Set an option of it.")
@click.option("--verifier", default=None, help="Judge by this verifier, not by the problems' own.")
@click.option("--by", default="", metavar="TAG,TAG", help="Report by these tags.")
@click.option(
    "--per-tag",
    type=click.IntRange(2),
    default=100,
    show_default=True,
    help="Problems tried of each tag.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def check(
    source: str,
    options: tuple[str, ...],
    verifier: str | None,
    by: str,
    per_tag: int,
    as_json: bool,
) -> None:
    """Say whether the problems of SOURCE can be answered without being solved.

    SOURCE is a data set (math/arithmetic), a file or folder of problems, or a config, whose
    sources are checked. References must pass and corrupted ones must not; answers that ignore the
    question (constants, selectors, answers of other problems) must stay below 20 % of each tag;
    ids and contents must not depend on the process.

    Example: rlvr data check bs4/pages --with size=bare --by archetype
    """
    from rlvr_doctor.datacheck.judging import Judge
    from rlvr_doctor.datacheck.sources import check_source, sources_of

    tags = [tag for tag in by.split(",") if tag]
    reports = []
    for named in sources_of(source, parse_options(options)):
        ref = ComponentRef(use=verifier) if verifier else named.verifier
        with Judge(ref) as judge:
            reports.append(check_source(named, judge, by=tags, per_tag=per_tag))
    if as_json:
        print_json({"reports": [report.data() for report in reports]})
    else:
        from rlvr_doctor.datacheck.table import print_report

        for report in reports:
            print_report(report)
    bad = [report for report in reports if not report.ok]
    if bad and as_json:
        raise click.exceptions.Exit(1)  # the report says why; a second JSON value would spoil it
    if bad:
        faults = sum(len(r.faults) + sum(len(tag.faults) for tag in r.tags) for r in bad)
        raise RunError(f"the task set does not pass: {faults} faults", where=bad[0].source)
