"""What ``rlvr launch`` asks a backend for: the request, with everything that has to travel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, EngineTraits, traits_of

if TYPE_CHECKING:
    from rlvr_core.api import LaunchRequest
    from rlvr_core.config.load import Draft
    from rlvr_core.plugins.host import Host


def to_train(
    config: Path | None,
    overrides: tuple[str, ...],
    resume: str | None,
    display_kind: str | None,
    host: Host,
) -> tuple[LaunchRequest, Any]:
    """The request to train, and the resolved config as plain data."""
    from rlvr_core.api import LaunchRequest
    from rlvr_core.cli.run import what_to_run

    resolved, folder = what_to_run(config, overrides, resume, host)
    words = ["run", *([str(config)] if config else []), *_sets(overrides)]
    if folder is not None:
        words += ["--resume", str(folder.path.absolute())]
    if display_kind is not None:
        words += ["--display", display_kind]
    engine = resolved.config.engine
    apart = resolved.config.train.max_staleness > 0 or (
        engine.use != "auto"
        and traits_of(host.entry("engine", engine.use).load(), EngineTraits).separate
    )
    request = LaunchRequest(
        arguments=tuple(words),
        name=resolved.config.run.name,
        engine_apart=apart,
        files=resolved.loaded.draft.files,
    )
    return request, resolved.dump()


def to_evaluate(
    config: Path | None, overrides: tuple[str, ...], model: str, host: Host
) -> tuple[LaunchRequest, Any]:
    """The request to evaluate a model, and its config as plain data."""
    import re

    from rlvr_core.api import LaunchRequest
    from rlvr_core.eval.config import read_eval_config

    if config is None:
        raise ConfigError("evaluate on what?", remedy="name the YAML file for rlvr eval")
    draft = read_eval_config(config, [*overrides, f"model.path={model}"])
    _check(draft, {}, host)
    words = ["eval", "--config", str(config), *_sets((*overrides, f"model.path={model}"))]
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(model.rstrip("/").split("/")[-3:])).strip("-")
    return LaunchRequest(tuple(words), f"eval-{name}", files=draft.files), draft.root.plain()


def with_beside(request: LaunchRequest, config: Path, host: Host) -> LaunchRequest:
    """The request with a config for evaluations beside the training, checked as a watcher does."""
    from dataclasses import replace

    from rlvr_core.api.launching import EvaluatedBeside
    from rlvr_core.eval.config import read_eval_config
    from rlvr_core.launch.references import references, uris

    draft = read_eval_config(config, ())
    _check(draft, {"model": {"path": "a checkpoint"}}, host)
    tree = draft.root.plain()
    if isinstance(tree.get("model"), dict):
        tree["model"].pop("path", None)  # each checkpoint takes its place
    beside = EvaluatedBeside(config, draft.files, references(tree, str(config)), uris(tree))
    return replace(request, beside=beside)


def _check(draft: Draft, given: dict[str, Any], host: Host) -> None:
    """Find mistakes now, and not on a machine that costs money."""
    from rlvr_core.eval.config import eval_config

    for index, ref in enumerate(eval_config(draft, given).tasks):
        from rlvr_core.config.resolve import find

        find(host, "eval_task", ref.use, ref.with_, draft.root, ("tasks", index))


def for_elsewhere(request: LaunchRequest, tree: Any) -> LaunchRequest:
    """The request with what has to travel with it.

    Raises:
        ConfigError: If a secret would travel too, or a file is not there.
    """
    from dataclasses import replace

    from rlvr_core.launch.references import absolute_bases, references, uris
    from rlvr_core.record.secrets import secrets_in, secrets_in_words

    beside = request.beside
    files = (*request.files, *(beside.files if beside else ()))
    allowed = request.allowed_secrets
    complaints = [complaint for path in files for complaint in secrets_in(path, str(path), allowed)]
    complaints += secrets_in_words(request.arguments)
    complaints += absolute_bases(files)
    if complaints:
        raise ConfigError.collect(complaints)
    if "--resume" in request.arguments:
        raise ConfigError(
            "a job on other machines cannot go on with a run that lies here",
            where="--resume",
            remedy="start a run from its checkpoint: --set model.path=…/checkpoints/step…",
        )
    return replace(request, references=references(tree), uris=uris(tree))


def _sets(overrides: tuple[str, ...]) -> list[str]:
    return [word for override in overrides for word in ("--set", override)]
