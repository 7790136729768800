"""The eval task ``core/dataset``: the problems of any data set, to measure how hard they are.

``rlvr passk`` with it gives the pass rates and order files of the data that a run trains on.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from rlvr_core.api import (
    ComponentConfig,
    ConfigError,
    DataError,
    EvalReport,
    Group,
    Problem,
    SamplingParams,
    config_class,
)
from rlvr_core.api.services import (
    ComponentRef,
    NamedLoader,
    SplitSection,
    build,
    heldout_part,
    load_host,
    load_sources,
)

_WHERE = "the option data of core/dataset"


class DatasetTask:
    """Answers to the problems of a data set, sampled at temperature 1 as in training."""

    class Config(ComponentConfig):
        """Options of ``core/dataset``."""

        data: ComponentRef
        """The dataset loader with its options, as in ``data.sources``."""
        split: SplitSection | None = None
        """Take the held-out share alone, as ``data.sources`` with the same ``split`` leaves it
        out."""
        max_tokens: Annotated[int, Field(gt=0)] = 512
        """Cap on an answer, in tokens; that of training, or pass rates do not compare."""

    n = 1

    def __init__(self, config: Config) -> None:
        self._ref, self._split = config.data, config.split
        self.sampling = SamplingParams(temperature=1.0, max_tokens=config.max_tokens)

    def problems(self) -> Sequence[Problem]:
        """The problems in the order of the data.

        Raises:
            ConfigError: If the loader's name or options are wrong, or the split is left to it.
            DataError: If the data is unusable.
        """
        host = load_host()
        loader = build(host, "dataset", self._ref, _WHERE)
        self._check_split(type(loader))
        (source,) = load_sources([NamedLoader(self._ref.use, loader)])
        if self._split is None:
            return source.problems
        found = heldout_part(source.problems, self._split)
        if not found:
            raise DataError(
                f"split.heldout {self._split.heldout:g} holds out none of the "
                f"{len(source.problems)} problems of {self._ref.use}",
                where="the option split of core/dataset",
                remedy="choose a larger share",
            )
        return found

    def _check_split(self, loader: type[Any]) -> None:
        """Training data is what loaders give by default; an evaluation has to ask for it (T75)."""
        split = config_class(loader).model_fields.get("split")
        if split is not None and "split" not in self._ref.with_ and self._split is None:
            raise ConfigError(
                f"which split of {self._ref.use}? It would be {split.default!r} by default, and an "
                f"evaluation has no default split",
                where=_WHERE,
                remedy=f"name it, as in {{use: {self._ref.use}, with: {{split: ...}}}}",
            )

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Share of the completions with an outcome that passed."""
        passed = [m.passed for group in groups for m in group.members if m.passed is not None]
        return EvalReport({"accuracy": fmean(passed)} if passed else {}, len(groups))
