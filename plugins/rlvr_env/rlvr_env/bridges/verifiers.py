"""``verifiers_environment``: what a ``load_environment`` of the package ``verifiers`` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from rlvr_core.api import ConfigError, DataError, Json, MachineError, Problem
from rlvr_core.script.train import signals_restored
from rlvr_core.toolkit import ComponentRef, Host, build, load_host
from rlvr_env.bridges.judging import Judging

_ITSELF = "env/environment"
"""The verifier that takes the environment's own word."""


def verifiers_environment(
    dataset: str,
    options: Mapping[str, Json] | None = None,
    *,
    verifier: str | None = None,
    verifier_options: Mapping[str, Json] | None = None,
    tool_format: str = "hermes",
    max_turns: int = 8,
    count: int | None = None,
    limits: Mapping[str, Any] | None = None,
    **given: Any,
) -> Any:
    """Make an environment of the package ``verifiers`` 0.3 from rlvr's components.

    Its rows are the problems of the data set, and its reward is the score of their verifier. Where
    problems name an environment of rlvr, it plays them, with its tools.

    Args:
        dataset: Name of the data set, as in a config: ``math/gsm8k``.
        options: Options of the data set.
        verifier: Name of the verifier; None for each problem's own.
        verifier_options: Options of the verifier.
        tool_format: The syntax of tool calls that the environment reads.
        max_turns: Turns the model may write in an environment.
        count: How many problems; None for all.
        limits: ``workers``, ``timeout`` and ``memory_mb`` of ``Judging``.
        given: Other arguments of ``Environment``, such as ``sampling_args``.

    Raises:
        ConfigError: If a name or an option is wrong.
        DataError: If there are no problems, or a verifier refuses one.
        MachineError: If verifiers is missing.
    """
    try:
        from rlvr_env.bridges import outside
    except ImportError as error:
        raise MachineError(
            f"this needs the package verifiers, 0.3, which does not import: {error}",
            remedy="pip install 'rlvr-core[verifiers]'",
        ) from error
    import verifiers as vf

    host = load_host()
    problems = _problems(host, dataset, options, count)
    if verifier is not None:
        name = host.entry("verifier", verifier).name
        problems = [replace(problem, verifier=name) for problem in problems]
    played = {problem.environment for problem in problems}
    if len(played) > 1:
        raise ConfigError("its problems are played in different environments", where="environment")
    (name_of,) = played
    itself = {_ITSELF} if name_of is not None else set()
    judges = {
        name: Judging(name, verifier_options, **(limits or {}))
        for name in sorted({problem.verifier for problem in problems} - itself)
    }
    for problem in problems:
        fault = judges[problem.verifier].refusal(problem) if problem.verifier in judges else ""
        if fault:
            raise DataError(
                f"{problem.verifier} cannot judge {problem.id}: {fault}", where=problem.where
            )
    with signals_restored():  # verifiers takes Ctrl-C for itself
        if name_of is None:
            shown = {"dataset": outside.table(problems), "rubric": outside.rubric_of(judges)}
            return vf.SingleTurnEnv(**shown, **given)
        world = build(host, "environment", ComponentRef(use=name_of), "dataset")
        problems = [outside.presented(world, problem) for problem in problems]
        return outside.Conversation(
            world,
            tool_format,
            dataset=outside.table(problems),
            rubric=outside.rubric_of(judges),
            tool_defs=outside.tools_of(problems),
            max_turns=max_turns,
            **given,
        )


def _problems(
    host: Host, dataset: str, options: Mapping[str, Json] | None, count: int | None
) -> list[Problem]:
    ref = ComponentRef(use=dataset, **{"with": dict(options or {})})
    problems = list(islice(build(host, "dataset", ref, "options").load(), count))
    if not problems:
        raise DataError(f"data set '{dataset}' has no problems", where="dataset")
    return problems
