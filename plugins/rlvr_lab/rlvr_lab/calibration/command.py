"""``rlvr calibrate``: measures judges before a run trains on them."""

from __future__ import annotations

from pathlib import Path

import click

from rlvr_core.api import ConfigError, Problem
from rlvr_core.terminal import output


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def calibrate(config: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Measure the judges in the rewards of CONFIG, as rlvr run does before it trains on them.

    On some problems of its data: agreement with the rule, difference between two scores of one
    answer, rise of a wrong answer's score when it asks for the best one, share without a score.
    Fails if a value is out of its bound (option calibration of the judge).

    Example: rlvr calibrate config.yaml --set rewards.1.with.calibration.problems=64
    """
    from rlvr_core.config.resolve import resolve_file
    from rlvr_core.data.load import problems_given
    from rlvr_core.plugins.host import load_host
    from rlvr_core.verify.reward import RewardPlan
    from rlvr_lab.calibration.gate import lines_of, measured, refuse

    host = load_host()
    resolved = resolve_file(config, overrides, host)
    host.configure(resolved.plugins)
    problems: list[Problem] = []
    for index, ref in enumerate(resolved.config.data.sources):
        loc = ("data", "sources", index)
        loader = resolved.make(loc)
        problems += problems_given(loader.load(), ref.use, "load()", resolved.where(loc))
    plan = RewardPlan.build(
        resolved.config.rewards, {problem.verifier for problem in problems}, host
    )
    results = measured(problems, plan, resolved)
    if not results:
        raise ConfigError(
            "rewards has no judge to calibrate", where=str(config), remedy="checks/judge is one"
        )
    if as_json:
        output.print_json({"judges": {name: result.data() for name, result in results.items()}})
    else:
        for line in lines_of(results):
            output.print_line(line)
    refuse(results)
