"""``rlvr watch``: every checkpoint of a run, as it appears."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlvr_core.api import ConfigError
from rlvr_core.run.ending import Stop
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_lab.watch import Job


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="An eval task; repeat.")
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file for rlvr eval.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the results [evals/watch].")
@click.option("--devices", help="GPUs to use, one evaluation on each, by place or UUID.")
@click.option(
    "--poll",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds between two looks.",
)
def watch(
    runs: tuple[str, ...],
    tasks: tuple[str, ...],
    config: Path | None,
    overrides: tuple[str, ...],
    runs_dir: str,
    out: Path | None,
    devices: str | None,
    poll: float,
) -> None:
    """Evaluate every checkpoint of RUNS as soon as it is complete; stop when the runs have ended.

    RUNS are names or folders of runs. Writes table.md, table.csv and table.json: step by task by
    metric. A watcher that was stopped goes on where it was.

    Example: rlvr watch last --task math/gsm8k-test --devices 6,7
    """
    from rlvr_core.data.uri import local_path
    from rlvr_core.record.files import lock_folder
    from rlvr_core.record.find import find_run
    from rlvr_lab.watch import Watcher
    from rlvr_lab.watch_table import table

    if not tasks and config is None:
        raise ConfigError("evaluate what?", remedy="give --task NAME, or --config FILE")
    arguments = [word for name in tasks for word in ("--task", name)]
    arguments += ["--config", str(config)] if config else []
    arguments += [word for override in overrides for word in ("--set", override)]

    def command(job: Job) -> list[str]:
        start = [sys.executable, "-m", "rlvr_core.cli.main", "eval", str(job.checkpoint)]
        return [*start, *arguments, "--out", str(job.out)]

    folder = out or Path("evals") / "watch"
    watched = [find_run(str(local_path(text)), runs_dir) for text in runs]
    if len({run.name for run in watched}) < len(watched):
        raise ConfigError("two runs have the same name", remedy="watch each with its own --out")
    device_list = _devices(devices)
    _check(tasks, config, overrides)
    Stop().listen()
    folder.mkdir(parents=True, exist_ok=True)
    lock_folder(folder, "wait for it, or give another --out")
    watcher = Watcher(
        runs=watched,
        out=folder,
        command=command,
        devices=device_list,
        say=lambda text: output.print_line(text, stderr=True),
    )
    watcher.watch(poll)
    if not table(folder):
        watcher.say("the runs have ended without a checkpoint to evaluate")
    output.print_line((folder / "table.md").read_text(encoding="utf-8").rstrip())


def _check(tasks: tuple[str, ...], config: Path | None, overrides: tuple[str, ...]) -> None:
    """Report configuration mistakes now, not only when the first checkpoint appears."""
    from rlvr_core.config.resolve import find
    from rlvr_core.config.tree import Mark, made
    from rlvr_core.eval.config import eval_config, read_eval_config
    from rlvr_core.plugins.host import load_host

    task_values = {"tasks": list(tasks)} if tasks else {}
    values = {"model": {"path": "a checkpoint"}, **task_values}
    host = load_host()
    for ref in eval_config(read_eval_config(config, overrides), values).tasks:
        find(host, "eval_task", ref.use, ref.with_, made({}, Mark("--task")), ())


def _devices(text: str | None) -> list[str | None]:
    from rlvr_core.parallel.gpus import chosen_gpus

    if text is None:
        return [None]
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(
            f"'{text}' is no list of devices", where="--devices", remedy="0,1 are two, each once"
        )

    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [*chosen_gpus(names, shown, "--devices")]
