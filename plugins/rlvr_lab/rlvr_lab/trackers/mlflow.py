"""Each step's metrics in MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ComponentConfig
from rlvr_core.record.trackers.common import Progress, finite, need

if TYPE_CHECKING:
    from rlvr_core.api import TrackedRun

_ODD = re.compile(r"[^\w./ -]")
_LONGEST = 250
"""Characters of a parameter's value that every version of MLflow takes."""


class MLflow:
    """A run of an MLflow experiment, with the configuration as its parameters.

    Raises:
        MachineError: If mlflow is not installed.
    """

    class Config(ComponentConfig):
        """Options of tracker ``lab/mlflow``."""

        experiment: str = "rlvr"
        """Experiment, made when it is missing."""
        uri: str | None = None
        """Tracking server or store (``sqlite:///mlflow.db``); null is MLflow's own setting."""

    def __init__(self, config: Config) -> None:
        need("mlflow", "lab/mlflow", "rlvr-lab[mlflow]")
        self._config = config
        self._client: Any = None

    def start(self, run: TrackedRun, step: int) -> None:
        """See ``Tracker``."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._config.uri)
        self._progress = Progress(run.folder / "mlflow")
        if not self._progress.run_id:
            experiment = client.get_experiment_by_name(self._config.experiment)
            experiment_id = (
                client.create_experiment(self._config.experiment)
                if experiment is None
                else experiment.experiment_id
            )
            made = client.create_run(experiment_id, tags={"mlflow.runName": run.name})
            self._progress.begin(made.info.run_id)
            params = [Param(key, text[:_LONGEST]) for key, text in _flat(run.config)]
            for begin in range(0, len(params), 100):
                client.log_batch(made.info.run_id, params=params[begin : begin + 100])
        else:
            client.update_run(self._progress.run_id, status="RUNNING")
        self._client = client

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log a step's finite values; what MLflow takes in no name becomes ``_``."""
        from mlflow.entities import Metric

        if self._progress.due(step):
            now = int(time.time() * 1000)
            metrics = [
                Metric(_ODD.sub("_", name), value, now, step)
                for name, value in finite(values).items()
            ]
            self._client.log_batch(self._progress.run_id, metrics=metrics)
            self._progress.done(step)

    def close(self) -> None:
        """End the run."""
        if self._client is not None:
            self._client.set_terminated(self._progress.run_id)


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each value by its dotted path."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield _ODD.sub("_", f"{prefix}{key}"), str(value)
