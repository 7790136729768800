"""``rlvr launch``: run on several processes, several machines, or somewhere a plugin knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlvr_core.api import (
    ConfigError,
    EngineTraits,
    LaunchRequest,
    LaunchWords,
    PreparesRequests,
    traits_of,
)
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Resolved
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
    from rlvr_core.config.model import ComponentRef
    from rlvr_core.config.resolve import build, parse_options
    from rlvr_core.plugins.host import load_host
    from rlvr_core.record.text import Redactor

    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run")
    if evaluate is not None and eval_config is not None:
        raise click.UsageError("--eval trains nothing: there are no checkpoints for --eval-config")
    if evaluate is not None and resume:
        raise click.UsageError("--eval trains nothing: there is no run to --resume")
    host = load_host()
    words = LaunchWords(
        config, overrides, resume, display_kind, take_over, evaluate, eval_config, allowed_secrets
    )
    given = parse_options(options) | {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in flags.items()
        if value not in (None, ())
    }
    entry = host.entry("launcher", backend)
    launcher_class = entry.load()
    if isinstance(launcher_class, PreparesRequests):
        request, given = launcher_class.prepare(entry.name, words, given)
    elif evaluate is not None or eval_config is not None:
        raise ConfigError(
            f"backend '{backend}' trains only",
            where="--eval" if eval_config is None else "--eval-config",
            remedy="start that on its own: rlvr eval, or rlvr watch beside a run",
        )
    else:
        request, _ = training_request(words, host)
    ref = ComponentRef.model_validate({"use": backend, "with": given})
    launcher = build(host, "launcher", ref, "rlvr launch")
    plan = launcher.plan(request)
    if not dry_run:
        code: int = launcher.submit(plan)
        return code
    hide = Redactor()
    if as_json:
        details = hide.tree(dict(plan.details))
        output.print_json({"launcher": plan.launcher, "plan": details})
    else:
        for line in plan.lines:
            output.print_line(hide.text(line))
    return 0


def training_request(words: LaunchWords, host: Host) -> tuple[LaunchRequest, Resolved]:
    """Return the request to train, and the resolved config."""
    from rlvr_core.cli.run import what_to_run

    resolved, folder = what_to_run(words.config, words.overrides, words.resume, host)
    arguments = ["run", *([str(words.config)] if words.config else []), *set_words(words.overrides)]
    if folder is not None:
        arguments += ["--resume", str(folder.path.absolute())]
    if words.display is not None:
        arguments += ["--display", words.display]
    if words.take_over:
        arguments.append("--take-over")
    engine = resolved.config.engine
    apart = resolved.config.train.max_staleness > 0 or (
        engine.use != "auto"
        and traits_of(host.entry("engine", engine.use).load(), EngineTraits).separate
    )
    files = resolved.loaded.draft.files
    return LaunchRequest(tuple(arguments), resolved.config.run.name, apart, files), resolved


def set_words(overrides: Sequence[str]) -> list[str]:
    """Return overrides as words of a command line."""
    return [word for override in overrides for word in ("--set", override)]
