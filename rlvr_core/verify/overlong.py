"""The verifier ``core/overlong``: DAPO's soft penalty on completions near the token cap."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rlvr_core.api import Completion, ComponentConfig, Problem, Verdict, VerifierTraits


class Overlong:
    """0 up to ``max_tokens - buffer`` tokens, from there linearly down to -1 at ``max_tokens``.

    Yu et al. 2025, arXiv:2503.14476, eq. 13. It stands beside the verifier that decides what is
    right, and has no outcome of its own.
    """

    traits = VerifierTraits(decides=False)

    class Config(ComponentConfig):
        """Options of ``core/overlong``."""

        max_tokens: Annotated[int, Field(gt=0)]
        """The length that costs the whole penalty, usually ``sampling.max_tokens``."""
        buffer: Annotated[int, Field(gt=0)]
        """Tokens below it over which the penalty grows."""

        @model_validator(mode="after")
        def _buffer_fits(self) -> Overlong.Config:
            if self.buffer > self.max_tokens:
                raise ValueError(
                    f"buffer ({self.buffer}) must be at most max_tokens ({self.max_tokens})"
                )
            return self

    def __init__(self, config: Config) -> None:
        self._config = config

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """The penalty; a completion that was cut off gets all of it, however short its cap."""
        length, config = len(completion.token_ids), self._config
        if not length and completion.text:
            return Verdict(None, "unscorable", detail="the answer is known by its text alone")
        over = (length - (config.max_tokens - config.buffer)) / config.buffer
        cut_off = completion.finish_reason == "length"
        penalty = 1.0 if cut_off else min(max(over, 0.0), 1.0)
        return Verdict(0.0 - penalty, detail=f"{length} tokens" + (", cut off" if cut_off else ""))
