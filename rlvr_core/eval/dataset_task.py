"""The eval task ``core/dataset``: measures the pass rate on the problems of any data set.

Use it with ``rlvr passk`` to get pass rates and order files of training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    DataError,
    EvalReport,
    ExternalTask,
    Group,
    Problem,
    SamplingParams,
    config_class,
)
from rlvr_core.config.model import ComponentRef, Positive, SplitSection
from rlvr_core.config.resolve import build
from rlvr_core.data.load import NamedLoader, heldout_part, load_sources
from rlvr_core.plugins.host import load_host

_WHERE = "the option data of core/dataset"


def refuse_external(name: str, task: object, command: str, instead: str) -> None:
    """Refuse a task that generates its own answers where that is not supported.

    Raises:
        ConfigError: If it is one.
    """
    if isinstance(task, ExternalTask):
        raise ConfigError(
            f"eval task '{name}' asks the model in its own way, which {command} cannot do",
            remedy=instead,
        )


class DatasetTask:
    """Pass rate on the problems of a data set, sampled at temperature 1 as in training."""

    class Config(ComponentConfig):
        """Options of ``core/dataset``."""

        data: ComponentRef
        """The dataset loader with its options, as in ``data.sources``."""
        split: SplitSection | None = None
        """Use only the held-out share, which ``data.sources`` with the same ``split`` leaves out of
        training."""
        max_tokens: Positive | None = None
        """Cap on an answer, in tokens; null: ``sampling.max_tokens`` of the run, or of that whose
        checkpoint is evaluated, and 512 for any other model."""
        limit: Positive | None = None
        """Use only this many problems, from the start; null: all."""

    n = 1

    def __init__(self, config: Config) -> None:
        self._ref, self._split, self._limit = config.data, config.split, config.limit
        self._capped = config.max_tokens is not None
        self.sampling = SamplingParams(temperature=1.0, max_tokens=config.max_tokens or 512)

    def take_cap(self, max_tokens: int) -> None:
        """Take the cap of a run, unless the options set one."""
        if not self._capped:
            self.sampling = SamplingParams(temperature=1.0, max_tokens=max_tokens)

    def problems(self) -> Sequence[Problem]:
        """Return the problems in the order of the data.

        Raises:
            ConfigError: If the loader's name or options are wrong, or no split is chosen.
            DataError: If the data is unusable.
        """
        host = load_host()
        loader = build(host, "dataset", self._ref, _WHERE)
        self._check_split(type(loader))
        (source,) = load_sources([NamedLoader(self._ref.use, loader)])
        if self._split is None:
            return source.problems[: self._limit]
        heldout = heldout_part(source.problems, self._split)
        if not heldout:
            raise DataError(
                f"split.heldout {self._split.heldout:g} holds out none of the "
                f"{len(source.problems)} problems of {self._ref.use}",
                where="the option split of core/dataset",
                remedy="choose a larger share",
            )
        return heldout[: self._limit]

    def _check_split(self, loader: type[Any]) -> None:
        """Refuse a loader without a chosen split: loaders default to training data."""
        split = config_class(loader).model_fields.get("split")
        if split is not None and "split" not in self._ref.with_ and self._split is None:
            raise ConfigError(
                f"which split of {self._ref.use}? It would be {split.default!r} by default, and an "
                f"evaluation has no default split",
                where=_WHERE,
                remedy=f"name it, as in {{use: {self._ref.use}, with: {{split: ...}}}}",
            )

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Return the share of completions that passed, among those with an outcome."""
        passed = [m.passed for group in groups for m in group.members if m.passed is not None]
        return EvalReport({"accuracy": fmean(passed)} if passed else {}, len(groups))
