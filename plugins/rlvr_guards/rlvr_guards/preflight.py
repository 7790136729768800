"""Guard ``guards/preflight``: what can be known before the model is loaded.

Gold answers pass, and wrong ones do not (``gold``); the longest prompt and answer fit the model's
context; judges that have to be measured before a run trains on them are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rlvr_core.api import BaseGuard, ConfigError, DataReport, NeedsCalibration
from rlvr_core.step.model import stated_positions
from rlvr_guards.gold import gold_lines


class Preflight(BaseGuard):
    """Looks at data, verifiers and the model's config before the run."""

    name = "guards/preflight"

    def preflight(self, prepared: Any) -> Sequence[str]:
        """Return lines for the overview; only the first process looks.

        Raises:
            ConfigError: If prompt and answer do not fit the model's context.
            RunError: If gold answers are judged wrongly, or verdicts do not come.
        """
        if os.environ.get("RANK", "0") != "0":
            return []
        check_context(prepared)
        problems = list(prepared.problems.values())
        held_out = [
            problem for share in prepared.evaluations.held_out.values() for problem in share
        ]
        lines = gold_lines([*problems, *held_out], prepared.judge, prepared.resolved)
        plan = prepared.judge.plan
        if any(isinstance(verifier, NeedsCalibration) for verifier in plan.verifiers.values()):
            given = {"problems": problems, "plan": plan, "resolved": prepared.resolved}
            measured = prepared.resolved.host.provide(
                "calibrate_judges", DataReport, "measuring a judge before the run", "lab", given
            )
            prepared.data_reports.append(measured)  # part of the run's record
            lines += measured.lines
        return lines


def check_context(prepared: Any) -> None:
    """Refuse a run whose longest prompt and answer have more positions than the model.

    Raises:
        ConfigError: If so.
    """
    room = stated_positions(prepared.model_path, prepared.config.model)
    longest = max(prepared.config.sampling.max_tokens, prepared.evaluations.max_tokens)
    needed = prepared.longest_prompt + longest
    if room is not None and needed > room:
        raise ConfigError(
            f"the longest prompt ({prepared.longest_prompt} tokens) and answer ({longest}) need "
            f"{needed} positions, and the model was made for {room}",
            where=prepared.resolved.where(("sampling", "max_tokens")),
            remedy="lower sampling.max_tokens or data.max_prompt_tokens",
        )
