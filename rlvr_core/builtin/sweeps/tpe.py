"""Values by the tree-structured Parzen estimator of Optuna, from the results so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from rlvr_core.api import MachineError
from rlvr_core.builtin.sweeps.axes import Axis, Choice, Values

if TYPE_CHECKING:
    from types import ModuleType


def optuna() -> ModuleType:
    """Import Optuna.

    Raises:
        MachineError: If it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise MachineError(
            f"method 'tpe' needs optuna, which does not import: {error}",
            remedy='pip install "rlvr-core[sweep]"',
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def choose(
    axes: Mapping[str, Axis],
    results: Sequence[tuple[Values, float]],
    *,
    direction: str,
    seed: int,
    number: int,
) -> Values:
    """Choose the values of the next trial.

    They depend only on the arguments, so that a resumed sweep chooses the same values. The first
    ten trials with results are Optuna's random start.

    Args:
        axes: The possible values of each parameter.
        results: Values and metric of each trial that has one.
        direction: ``maximize`` or ``minimize``.
        seed: The sweep's seed.
        number: Number of the trial.
    """
    package: Any = optuna()
    spaces = {key: _space(package, axis) for key, axis in axes.items()}
    sampler = package.samplers.TPESampler(seed=Random(f"{seed}/{number}").getrandbits(32))
    study = package.create_study(direction=direction, sampler=sampler)
    for values, value in results:
        params = {key: _code(axes[key], one) for key, one in values.items()}
        study.add_trial(
            package.trial.create_trial(params=params, distributions=spaces, value=value)
        )
    chosen = study.ask(spaces).params
    return {
        key: axis.values[chosen[key]] if isinstance(axis, Choice) else chosen[key]
        for key, axis in axes.items()
    }


def _space(package: Any, axis: Axis) -> Any:
    spaces = package.distributions
    if isinstance(axis, Choice):  # by index, because a value may be a mapping
        return spaces.CategoricalDistribution(list(range(len(axis.values))))
    if axis.kind == "integer":
        return spaces.IntDistribution(int(axis.low), int(axis.high))
    return spaces.FloatDistribution(axis.low, axis.high, log=axis.kind == "log_uniform")


def _code(axis: Axis, value: Any) -> Any:
    return axis.values.index(value) if isinstance(axis, Choice) else value
