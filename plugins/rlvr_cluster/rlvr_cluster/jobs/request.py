"""Makes the request for a job on machines that do not have this one's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.references import absolute_bases, references, uris
from rlvr_core.api import ConfigError, LaunchRequest, LaunchWords
from rlvr_core.api.launching import EvaluatedBeside
from rlvr_core.config.resolve import find
from rlvr_core.launch.command import set_words, training_request
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.record.secrets import secrets_in, secrets_in_words
from rlvr_core.terminal import output

if TYPE_CHECKING:
    from rlvr_core.config.load import Draft

Options = dict[str, Any]


def remote_request(
    launcher: str,
    words: LaunchWords,
    given: Mapping[str, Any],
    resumed: Callable[[Job, Mapping[str, Any]], Options],
    *,
    evaluates_beside: bool = False,
) -> tuple[LaunchRequest, Options]:
    """Return the request, with everything that has to travel, and the launcher's options.

    Args:
        launcher: Full name of the launcher.
        words: The command line.
        given: The launcher's options on it.
        resumed: Makes the options of a job that goes on with the run of an earlier one.
        evaluates_beside: Whether the launcher evaluates checkpoints while a run trains.

    Raises:
        ConfigError: If a config is wrong, a secret would travel, or a file is not there.
    """
    host, options, continues = load_host(), dict(given), ""
    if words.resume:
        job = _earlier(words.resume, launcher)
        words, options, continues = _as_before(job, words), resumed(job, given), job.runs
        new = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given)) or "nothing"
        output.print_line(f"as job {job.job} was launched; of its own it has {new}", stderr=True)
    if words.eval_config is not None and not evaluates_beside:
        raise ConfigError(
            f"backend '{launcher}' does not evaluate while it trains",
            where="--eval-config",
            remedy=f"start it beside the run: rlvr watch RUN --config {words.eval_config}",
        )
    if words.evaluate is None:
        request, resolved = training_request(words, host)
        tree = resolved.dump()
    else:
        request, tree = _evaluation_request(words, words.evaluate, host)
    beside = None if words.eval_config is None else _beside(words.eval_config, host)
    files = (*request.files, *(beside.files if beside else ()))
    allowed = words.allowed_secrets
    complaints = [complaint for path in files for complaint in secrets_in(path, str(path), allowed)]
    complaints += [*secrets_in_words(request.arguments), *absolute_bases(files)]
    if complaints:
        raise ConfigError.collect(complaints)
    return replace(
        request,
        references=references(tree),
        uris=uris(tree),
        continues=continues,
        beside=beside,
        allowed_secrets=allowed,
    ), options


def _earlier(name: str, launcher: str) -> Job:
    job = JobBook().find(name)
    if job.launcher != launcher:
        raise ConfigError(f"job {job.job} was one of {job.launcher}", where="--resume")
    if _listed(job.details.get("arguments"))[:1] == ["eval"]:
        raise ConfigError(
            f"job {job.job} evaluated a model: it has no run to go on with",
            where="--resume",
            remedy="evaluate once more, with --eval MODEL",
        )
    return job


def _as_before(job: Job, words: LaunchWords) -> LaunchWords:
    """Return the command line of an earlier job, with what is said now in its place."""
    eval_config = job.details.get("eval_config")
    return replace(
        words,
        config=words.config or Path(job.config),
        overrides=(*map(str, _listed(job.details.get("set"))), *words.overrides),
        resume=None,
        eval_config=words.eval_config or (Path(str(eval_config)) if eval_config else None),
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _evaluation_request(words: LaunchWords, model: str, host: Host) -> tuple[LaunchRequest, Any]:
    """Return the request to evaluate a model, and its config as plain data."""
    from rlvr_core.eval.config import read_eval_config

    if words.config is None:
        raise ConfigError("evaluate on what?", remedy="name the YAML file for rlvr eval")
    overrides = (*words.overrides, f"model.path={model}")
    draft = read_eval_config(words.config, overrides)
    _check(draft, {}, host)
    arguments = ("eval", "--config", str(words.config), *set_words(overrides))
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(model.rstrip("/").split("/")[-3:])).strip("-")
    return LaunchRequest(arguments, f"eval-{name}", files=draft.files), draft.root.plain()


def _beside(config: Path, host: Host) -> EvaluatedBeside:
    """Return a config for evaluations beside the training, checked as a watcher does."""
    from rlvr_core.eval.config import read_eval_config

    draft = read_eval_config(config, ())
    _check(draft, {"model": {"path": "a checkpoint"}}, host)
    tree = draft.root.plain()
    if isinstance(tree.get("model"), dict):
        tree["model"].pop("path", None)  # each checkpoint takes its place
    return EvaluatedBeside(config, draft.files, references(tree, str(config)), uris(tree))


def _check(draft: Draft, given: Options, host: Host) -> None:
    """Find mistakes now, and not on a machine that costs money."""
    from rlvr_core.eval.config import eval_config

    for index, ref in enumerate(eval_config(draft, given).tasks):
        find(host, "eval_task", ref.use, ref.with_, draft.root, ("tasks", index))
