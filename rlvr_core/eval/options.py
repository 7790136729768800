"""The common options of ``rlvr eval`` and ``rlvr passk``, and their common start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlvr_core.api import REMOTE, TINY, ConfigError
from rlvr_core.run.ending import Stop
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_core.config.load import Draft
    from rlvr_core.eval.config import EvalConfig
    from rlvr_core.eval.model_ref import ModelRef
    from rlvr_core.eval.session import Session
    from rlvr_core.plugins.host import Host

_OPTIONS = (
    click.option("--task", "tasks", multiple=True, metavar="NAME", help="An eval task; repeat."),
    click.option("--with", "options", multiple=True, metavar="KEY=VALUE", help="Task option."),
    click.option("--grader", "graders", multiple=True, metavar="NAME", help="Further verifier."),
    click.option("--config", "config", type=click.Path(path_type=Path), help="A YAML file."),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."),
    click.option("--step", type=click.IntRange(0), help="Which checkpoint of a run [newest]."),
    click.option("--runs-dir", default="runs", show_default=True, help="Folder of run folders."),
    click.option("--engine", metavar="NAME", help="Engine [default: chosen as in a run]."),
    click.option("--limit", type=click.IntRange(1), help="Only the first so many problems."),
    click.option("--seed", type=click.IntRange(0), help="Of sampling above temperature 0."),
    click.option("--out", type=click.Path(path_type=Path), help="Folder of the results."),
    click.option("--allow-truncation", is_flag=True, help="Accept answers cut off at the cap."),
    click.option(
        "--trained-on", multiple=True, metavar="RUN_OR_JSONL", help="Training data; repeat."
    ),
    click.option("--allow-contamination", is_flag=True, help="Accept problems trained on."),
    click.option("--json", "as_json", is_flag=True, help="Print a JSON object."),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The common options, as click gives them, with their defaults."""

    tasks: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    graders: tuple[str, ...] = ()
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    step: int | None = None
    runs_dir: str = "runs"
    engine: str | None = None
    limit: int | None = None
    seed: int | None = None
    out: Path | None = None
    allow_truncation: bool = False
    trained_on: tuple[str, ...] = ()
    allow_contamination: bool = False
    as_json: bool = False


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options to a command, which receives them by name."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def open_session(
    model: str | None,
    given: Options,
    *,
    n: int | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> tuple[Session, Path]:
    """Check everything the user gave, and load the tasks.

    Returns:
        The session, and the default folder of the results.
    """
    from rlvr_core.data.uri import model_path
    from rlvr_core.eval.config import eval_config, read_eval_config
    from rlvr_core.eval.model_ref import ModelRef, find_model
    from rlvr_core.eval.session import prepare
    from rlvr_core.plugins.host import load_host

    output.quiet_libraries()
    Stop().listen()
    host = load_host()
    draft = read_eval_config(given.config, given.overrides)
    text = model or _model_in(draft)
    remote = text.startswith(REMOTE)
    if text.startswith((REMOTE, TINY)):
        ref = ModelRef(text)
    else:
        ref = find_model(text, step=given.step, runs_dir=given.runs_dir)
    config = eval_config(draft, _values(ref, given, draft))
    _configure_plugins(host, config, draft)
    session = prepare(
        config,
        host,
        lambda: text if remote else model_path(ref.path, host),
        n=n,
        sampling=sampling,
        max_tokens=ref.max_tokens,
    )
    for line in session.lines:
        say(line)
    return session, Path("evals") / ref.label


def _configure_plugins(host: Host, config: EvalConfig, draft: Draft) -> None:
    """Configure plugins; the run of a checkpoint may name plugins that are not installed here."""
    from rlvr_core.config.resolve import plugin_options

    options = {}
    for name, plugin_config in config.plugins.items():
        if host.record(name) is None and draft.root.find(("plugins", name)) is None:
            say(f"plugin '{name}', which the run had options for, is not installed here")
            continue
        options[name] = plugin_options(host, name, plugin_config, draft.root)
    host.configure(options)


def say(text: str) -> None:
    """Print a progress message to stderr."""
    output.print_line(text, stderr=True)


def _model_in(draft: Draft) -> str:
    node = draft.root.find(("model", "path"))
    path = None if node is None else node.plain()
    if not isinstance(path, str):
        raise ConfigError(
            "which model? none was named",
            remedy="name a folder, a hub id, tiny:TASK, or a run; or model: {path: …} in --config",
        )
    return path


def _values(ref: ModelRef, given: Options, draft: Draft) -> dict[str, Any]:
    """Return the command line as configuration keys; the user's values override the run's."""
    values: dict[str, Any] = {"model": {"path": ref.path}}
    for section, keys in ref.sections().items():
        inherited = {
            key: value for key, value in keys.items() if draft.root.find((section, key)) is None
        }
        values[section] = inherited | values.get(section, {})
    if given.options and len(given.tasks) != 1:
        raise ConfigError(
            "--with sets options of one task, and there are several",
            where="--with",
            remedy="give one --task, or write the options of each in a file: --config",
        )
    if given.tasks:
        from rlvr_core.config.resolve import parse_options

        options = parse_options(given.options)
        values["tasks"] = [{"use": name, "with": options} for name in given.tasks]
    if given.engine is not None:
        # --set may give options of this engine; options of another engine in the file are dropped
        named = draft.root.find(("engine", "use")) is not None
        values["engine"] = given.engine if named else {"use": given.engine}
    simple: dict[str, Any] = {
        "limit": given.limit,
        "seed": given.seed,
        "max_truncated": 1.0 if given.allow_truncation else None,
        "trained_on": list(given.trained_on) or None,
        "max_contaminated": 1.0 if given.allow_contamination else None,
        "graders": list(given.graders) or None,
    }
    return values | {key: value for key, value in simple.items() if value is not None}
