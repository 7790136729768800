"""``rlvr_core.evaluate``: an evaluation from Python, in a script or a notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError
from rlvr_core.eval.options import Options, open_session, say
from rlvr_core.eval.view import EvaluationView
from rlvr_core.plugins.blame import faults_named
from rlvr_core.record.view import RunView
from rlvr_core.script.train import overrides_of, plain, signals_restored

if TYPE_CHECKING:
    from collections.abc import Callable


def evaluate(
    model: str | os.PathLike[str] | RunView,
    tasks: Sequence[str | Mapping[str, Any] | type[Any]] = (),
    *,
    config: str | os.PathLike[str] | None = None,
    rewards: Sequence[Callable[..., Any] | str | Mapping[str, Any]] | None = None,
    set: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> EvaluationView:
    """Evaluate a model or a run on held-out tasks, as ``rlvr eval`` does.

    Args:
        model: A folder, Hub id or ``tiny:TASK``; or a run, for its newest complete checkpoint.
        tasks: Names of eval tasks, mappings as in YAML (``{"use": …, "with": {…}}``), or classes.
        config: A YAML file of an evaluation.
        rewards: Functions, names of verifiers, or mappings as in YAML, instead of each problem's
            own verifier.
        set: Values by dotted key, which override the config: ``{"limit": 100, "engine.use":
            "transformers"}``.
        out: Folder of the results; ``evals/<model>`` if omitted.

    Returns:
        The evaluation, read from its folder.

    Raises:
        RlvrError: For every error that ``rlvr eval`` reports; ``str(error)`` is the full message.
    """
    overrides = overrides_of(set, tasks=tasks or None, rewards=rewards)
    if not isinstance(model, str | os.PathLike | RunView):
        raise ConfigError(
            f"model is a {type(model).__name__}, not a folder, a hub id or a run", where="model"
        )
    options = Options(
        config=None if config is None else Path(config),
        overrides=tuple(overrides),
        out=None if out is None else Path(out),
    )
    text = plain(model) if isinstance(model, str | os.PathLike) else str(model.path)
    with signals_restored(), faults_named():
        session, folder = open_session(text, options)
        results_folder = options.out or folder
        from rlvr_core.eval import evaluate as evaluation

        summaries = evaluation.evaluate(session, results_folder, say)
    evaluation.check_truncation(summaries)
    return EvaluationView(results_folder)
