"""``rlvr launch``: run on several processes, several machines, or somewhere a plugin knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlvr_core.api import ConfigError, LauncherTraits, ResumesJobs, traits_of
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_core.plugins.host import Host

_OPTIONS = "rlvr.launch.options"


class LaunchCommand(click.Command):
    """A command that has the options of its ``--backend`` too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, then those of the backend that was named."""
        return [*super().get_params(ctx), *ctx.meta.get(_OPTIONS, ())]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the backend first."""
        mine = {option for param in super().get_params(ctx) for option in param.opts}
        ctx.meta[_OPTIONS] = [
            one for one in _options_of(_backend_in(args)) if not {*one.opts} & mine
        ]
        return super().parse_args(ctx, args)


def _backend_in(args: list[str]) -> str:
    for word, following in zip(args, [*args[1:], ""], strict=True):
        if word == "--backend" and following:
            return following
        if word.startswith("--backend="):
            return word.partition("=")[2]
    return "local"


def _options_of(backend: str) -> list[click.Option]:
    """Options as the fields of a launcher's ``Config`` say."""
    from typing import get_args, get_origin

    from rlvr_core.api import config_class
    from rlvr_core.plugins.host import load_host

    options = []
    config = config_class(load_host().entry("launcher", backend).load())
    for name, field in config.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)}
        flag = bool in kinds
        several = any(get_origin(kind) is list or kind is list for kind in kinds)
        word = name.replace("_", "-")
        options.append(
            click.Option(
                [f"--{word}/--no-{word}" if flag else f"--{word}"],
                is_flag=flag,
                default=None,
                multiple=several,
                metavar=None if flag else "TEXT",
                help=" ".join((field.description or "").replace("``", "").split()),
            )
        )
    return options


@click.command(cls=LaunchCommand)
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--backend", default="local", show_default=True, help="Where: see rlvr list launchers."
)
@click.option(
    "--with", "options", multiple=True, metavar="KEY=VALUE", help="Another option of the backend."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one key of the config."
)
@click.option(
    "--resume",
    metavar="RUN",
    help="Go on with a run: its name, its folder, or 'last'; elsewhere, with a job's.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="With --resume: own the run's place in run.mirror, whoever did.",
)
@click.option(
    "--eval",
    "evaluate",
    metavar="MODEL",
    help="Evaluate MODEL instead; CONFIG is then one for rlvr eval. Not every backend can.",
)
@click.option(
    "--eval-config",
    type=click.Path(path_type=Path),
    help="Evaluate each checkpoint beside the training, as rlvr watch --config FILE does. Not "
    "every backend can.",
)
@click.option(
    "--display",
    "display_kind",
    type=click.Choice(["live", "plain", "jsonl", "none"]),
    help="How process 0 shows progress [default: live on a terminal, else plain].",
)
@click.option(
    "--allow-secret",
    "allowed_secrets",
    multiple=True,
    metavar="FILE:LINE",
    help="A line that looks like a secret, and may leave this machine.",
)
@click.option("--dry-run", is_flag=True, help="Check the config, print the plan, and stop.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
def launch(
    config: Path | None,
    backend: str,
    options: tuple[str, ...],
    overrides: tuple[str, ...],
    resume: str | None,
    evaluate: str | None,
    eval_config: Path | None,
    display_kind: str | None,
    take_over: bool,
    allowed_secrets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Train as CONFIG (a YAML file) says, in several processes.

    The run is the one that `rlvr run` would do: one folder, the same completions, the same numbers
    up to rounding. It may be resumed with another number of processes, or with `rlvr run`.

    A backend has more options of its own: rlvr launch --backend NAME --help.

    Ctrl-C or SIGTERM lets it finish the step and write a checkpoint; a second one stops it.
    """
    from dataclasses import replace

    from rlvr_core.config.model import ComponentRef
    from rlvr_core.config.resolve import build, parse_options
    from rlvr_core.launch.request import (
        for_elsewhere,
        to_evaluate,
        to_train,
        with_beside,
    )
    from rlvr_core.plugins.host import load_host

    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run")
    if evaluate is not None and eval_config is not None:
        raise click.UsageError("--eval trains nothing: there are no checkpoints for --eval-config")
    if evaluate is not None and resume:
        raise click.UsageError("--eval trains nothing: there is no run to --resume")
    host = load_host()
    before = _earlier(resume, backend, host) if resume else None
    if before is not None:
        config = config or Path(before.config)
        overrides, resume = (*map(str, _listed(before.details.get("set"))), *overrides), None
        if eval_config is None and before.details.get("eval_config"):
            eval_config = Path(str(before.details["eval_config"]))
    if evaluate is None:
        request, given_tree = to_train(config, overrides, resume, display_kind, host)
        if take_over:
            request = replace(request, arguments=(*request.arguments, "--take-over"))
    else:
        request, given_tree = to_evaluate(config, overrides, evaluate, host)
    given = parse_options(options) | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in flags.items()
        if value not in (None, ())
    }
    for name in {"gpus", "engine_gpus"} & given.keys():  # 0,1
        words = given[name] if isinstance(given[name], list) else [given[name]]
        given[name] = [part.strip() for word in words for part in str(word).split(",")]
    if before is not None:
        given = _as_before(before, given, host)
    ref = ComponentRef.model_validate({"use": backend, "with": given})
    launcher = build(host, "launcher", ref, "rlvr launch")
    traits = traits_of(launcher, LauncherTraits)
    if evaluate is not None and not traits.evaluates:
        raise ConfigError(
            f"backend '{backend}' trains only", where="--eval", remedy="there, give: rlvr eval"
        )
    if before is not None:
        request = replace(request, continues=before.runs)
    if eval_config is not None:
        if not traits.evaluates_beside:
            raise ConfigError(
                f"backend '{backend}' does not evaluate while it trains",
                where="--eval-config",
                remedy=f"start it beside the run: rlvr watch RUN --config {eval_config}",
            )
        request = with_beside(request, eval_config, host)
    request = replace(request, allowed_secrets=allowed_secrets)
    if traits.elsewhere:
        request = for_elsewhere(request, given_tree)
    plan = launcher.plan(request)
    if not dry_run:
        code: int = launcher.submit(plan)
        return code
    from rlvr_core.record.text import Redactor

    hide = Redactor()
    if as_json:
        details = hide.tree(dict(plan.details))
        output.print_json({"launcher": plan.launcher, "plan": details})
    else:
        for line in plan.lines:
            output.print_line(hide.text(line))
    return 0


def _earlier(resume: str, backend: str, host: Host) -> Any:
    """Return the job to go on with; None where the backend cannot."""
    entry = host.entry("launcher", backend)
    launcher = entry.load()
    if not isinstance(launcher, ResumesJobs):
        return None
    job = launcher.find_job(resume)
    if job.launcher != entry.name:
        raise ConfigError(f"job {job.job} was one of {job.launcher}", where="--resume")
    if _listed(job.details.get("arguments"))[:1] == ["eval"]:
        raise ConfigError(
            f"job {job.job} evaluated a model: it has no run to go on with",
            where="--resume",
            remedy="evaluate once more, with --eval MODEL",
        )
    return job


def _as_before(job: Any, given: dict[str, Any], host: Host) -> dict[str, Any]:
    """The options of an earlier job, with those that are given now in their place."""
    options: dict[str, Any] = host.entry("launcher", job.launcher).load().resume_remote(job, given)
    new = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given)) or "nothing"
    output.print_line(f"as job {job.job} was launched; of its own it has {new}", stderr=True)
    return options


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
