"""A complete rlvr plugin in one module: an advantage estimator that rewards raising the best."""

from __future__ import annotations

import numpy as np

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    ComponentConfig,
    JudgedStep,
    Metric,
    Registrar,
    hookimpl,
)


@hookimpl
def register_advantages(registrar: Registrar) -> None:
    """Add our estimator; it becomes ``maxrl/marginal``."""
    registrar.add(
        "marginal", "rlvr_maxrl:Marginal", summary="What a completion adds to its group's best."
    )


class Marginal:
    """A = scale * (max of the group's rewards - max of the others' rewards)."""

    traits = AdvantageTraits(min_completions=2)
    reports = (Metric("advantage/sole_best", "Completions that alone were best.", "share"),)

    class Config(ComponentConfig):
        """Options of ``maxrl/marginal``."""

        scale: float = 1.0
        """Factor on every advantage."""

    def __init__(self, config: Config) -> None:
        if config.scale == 0:
            raise ValueError("scale 0 would train on nothing")
        self._scale = config.scale

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """One advantage a completion; 0 but for the only best one of each group."""
        advantage_N = np.zeros(len(step.reward_N))
        for place in range(len(step.groups)):
            members = np.flatnonzero((step.group_N == place) & step.scorable_N)
            for i in members if len(members) > 1 else ():
                others = step.reward_N[members[members != i]]
                gain = step.reward_N[members].max() - others.max()
                advantage_N[i] = self._scale * gain
        return AdvantageOutput(advantage_N, {"sole_best": float((advantage_N != 0).mean())})
