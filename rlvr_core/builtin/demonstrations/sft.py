"""SFT: the log-likelihood of given answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlvr_core.api import (
    AnswersTraits,
    ComponentConfig,
    LossBatch,
    LossOutput,
    LossTraits,
    Metric,
    Normalizer,
)
from rlvr_core.api.services import Tally, token_mean


class SFT:
    """Supervised fine-tuning: minus the log-prob of each token of a given answer, their mean.

    Log-probs are those of temperature 1, whatever the run samples at.
    """

    reports = (Metric("sft/nll", "Mean minus log-prob of the given answers' tokens.", "nats"),)

    class Config(ComponentConfig):
        """Options of SFT."""

        target: str | None = None
        """Field of a problem's spec that holds the answer to imitate; null takes the answers that
        the data set itself demonstrates."""
        rows_per_step: Annotated[int, Field(gt=0)] = 64
        """Answers of one optimizer step."""

    def __init__(self, config: Config) -> None:
        self.traits = LossTraits(answers=AnswersTraits(config.rows_per_step, config.target))

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over all answer tokens of the step."""
        nll_BT = -batch.logp_BT
        tally = Tally(batch.mask_BT)
        tally.mean("sft/nll", nll_BT)
        loss = token_mean(nll_BT, batch.mask_BT, normalizer)
        return LossOutput(loss, tally.sums, tally.maxima)
