"""``rlvr plan``: what a run would take on GPUs that need not be here."""

from __future__ import annotations

from pathlib import Path

import click

_GPUS = ("h100-80", "h200", "a100-80", "a100-40", "l4-24", "rtx4090-24")


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--gpu", type=click.Choice(_GPUS), required=True, help="The kind of GPU.")
@click.option(
    "--count",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="GPUs in all, those of vLLM servers included.",
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
    overrides: tuple[str, ...],
    mean_tokens: float | None,
    as_json: bool,
) -> None:
    """Say what memory and time the run that CONFIG describes would take on GPUs.

    It needs no GPU and reads no weights: the model's config.json is enough. It prints memory by
    part, the peak and what is left; the time of a step by phase; MFU, hours and disk; what limits
    the run, whether it fits, and changes that help, each with its effect.

    Example: rlvr plan examples/math.yaml --gpu h100-80 --count 8 --set train.parallel=fsdp
    """
    from rlvr_core.api import ConfigError
    from rlvr_core.api.services import load_host, model_path, output, resolve_file
    from rlvr_core.builtin.planner import report
    from rlvr_core.builtin.planner.setup import setup_of
    from rlvr_core.builtin.planner.shape import read_model

    output.quiet_libraries()
    host = load_host()
    resolved = resolve_file(config, overrides, host)
    section = resolved.config.model
    shape, trained = read_model(model_path(section.path, host), section)
    if mean_tokens is not None and mean_tokens > resolved.config.sampling.max_tokens:
        most = resolved.config.sampling.max_tokens
        raise ConfigError(
            f"a mean of {mean_tokens:g} tokens is above sampling.max_tokens ({most})",
            where="--mean-tokens",
            remedy=f"give at most {most}",
        )
    found = report.plan_of(*setup_of(resolved, gpu, count, shape, trained, mean_tokens))
    if as_json:
        output.print_json(report.as_json(found))
    else:
        report.print_plan(found, gpu)
