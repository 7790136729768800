"""A verifier as the metric of a task of lm-evaluation-harness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlvr_core.api import Completion, DataError, Json
from rlvr_env.bridges.judging import Judging, answer_of

ProcessResults = Callable[[dict[str, Any], Sequence[Any]], dict[str, float]]


def lm_eval_metric(
    verifier: str,
    options: Mapping[str, Json] | None = None,
    *,
    name: str = "score",
    columns: Mapping[str, str] | None = None,
    **limits: Any,
) -> ProcessResults:
    """Return the ``process_results`` of an lm-evaluation-harness task that uses a verifier.

    For each document it gives ``name``, the mean score of its responses, and ``name_unscored``,
    the share of them that got none (an error, a timeout). Of a document without a score, ``name``
    is left out, so that its mean is over what could be judged.

    Args:
        verifier: The verifier's name as in a config: ``math/answer``, ``./my.py:fn``.
        options: The verifier's options, as under ``with`` in a config.
        name: Name of the metric in the task's ``metric_list``.
        columns: The column of each field that the verifier needs, by field; a column of the
            document that is not named here is the field of its own name.
        limits: ``timeout``, ``memory_mb`` and ``max_error_rate`` of ``Judging``.

    Raises:
        ConfigError: If the name or the options are wrong.
        PluginError: If its plugin is missing or broken.
    """
    # the harness asks for one document after the other
    judging = Judging(verifier, options, columns=columns, workers=1, **limits)

    def process_results(doc: dict[str, Any], results: Sequence[Any]) -> dict[str, float]:
        problem = judging.problem(doc, "")
        fault = judging.refusal(problem)
        if fault:
            raise DataError(
                f"{judging.name} cannot judge a document: {fault}",
                where="columns",
                remedy=f"it has: {', '.join(doc)}; name the column of a field by "
                "columns={'field': 'column'}",
            )
        answers = [Completion.from_text(answer_of(text)) for text in _flat(results)]
        scores = [verdict.score for verdict in judging.verdicts(judging.submit(problem, answers))]
        known = [score for score in scores if score is not None]
        unscored = (len(scores) - len(known)) / max(len(scores), 1)
        metrics = {f"{name}_unscored": unscored}
        return {name: math.fsum(known) / len(known), **metrics} if known else metrics

    return process_results


def _flat(results: Sequence[Any]) -> list[str]:
    """Responses to a document: one, or with ``repeats`` and ``take_first_k`` a list of them."""
    flat: list[str] = []
    for result in results:
        flat += [result] if isinstance(result, str) else list(result)
    return flat
