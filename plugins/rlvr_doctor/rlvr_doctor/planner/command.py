"""``rlvr plan``: the memory and time of a run on GPUs that need not be here."""

from __future__ import annotations

from pathlib import Path

import click

from rlvr_doctor.cards import CARDS


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--gpu", type=click.Choice(list(CARDS)), required=True, help="The kind of GPU.")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="GPUs in all, those of engines included.",
)
@click.option(
    "--engine-gpus",
    type=click.IntRange(1),
    metavar="N",
    help="How many of them an engine in separate processes uses, as for rlvr launch.",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one key.")
@click.option(
    "--mean-tokens",
    type=click.FloatRange(1),
    help="Mean tokens of a completion, for the time. [default: half of sampling.max_tokens]",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object: bytes and seconds.")
def plan(
    config: Path,
    gpu: str,
    count: int,
    engine_gpus: int | None,
    overrides: tuple[str, ...],
    mean_tokens: float | None,
    as_json: bool,
) -> None:
    """Compute the memory and time that a run of CONFIG would need on GPUs.

    It needs no GPU and reads no weights: the model's config.json is enough. It prints memory by
    part, its peak, the time of a step by phase, MFU, hours and disk; what limits the run, whether
    it fits and by how much, and settings that make it fit or faster, each planned again.

    Example: rlvr plan examples/math.yaml --gpu h100-80 --count 8 --set train.parallel=fsdp
    """
    from rlvr_core.toolkit import load_host, print_json, quiet_libraries
    from rlvr_doctor.planner import report
    from rlvr_doctor.planner.advice import advise
    from rlvr_doctor.planner.plans import Planner

    quiet_libraries()
    planner = Planner(config, overrides, load_host(), gpu, engine_gpus, mean_tokens)
    planned = planner.plan(count)
    changes = advise(planner, planned, count)
    if as_json:
        print_json(report.as_json(planned, changes))
    else:
        report.print_plan(planned, changes, gpu)
