"""The engine samples from another distribution than the one whose log-probs it reports."""

from __future__ import annotations

from typing import Any

import torch

from tests.together.chaos.changes import DECODE, END, sampled_from
from tests.together.chaos.registry import BOTH, Patch, fault


@fault("seeds", backends=BOTH)
def samples_at_085(patch: Patch) -> None:
    """Samples at temperature 0.85 and reports log-probs at 1."""
    sampled_from(patch, lambda logits_BV: logits_BV / 0.85)


@fault("seeds", backends=BOTH)
def samples_top_k_3(patch: Patch) -> None:
    """Samples from the 3 likeliest tokens and reports log-probs of all."""

    def likeliest(logits_BV: Any) -> Any:
        least_B1 = logits_BV.topk(3, -1).values[:, -1:]
        return logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)

    sampled_from(patch, likeliest)


@fault("seeds")
def samples_with_repetition_penalty(patch: Patch) -> None:
    """Tokens drawn lately are made less likely, and the log-probs reported are without that."""
    lately: list[Any] = []

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = logits_BV.clone().float().log_softmax(-1)
            less_BV = logits_BV.clone().float()
            for token_B in lately[-6:]:
                if len(token_B) == len(less_BV):
                    less_BV.scatter_add_(1, token_B[:, None], torch.full((len(token_B), 1), -1.5))
            token_B, _ = original(less_BV, rows, uniform_B)
            lately.append(token_B)
            return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@fault("seeds")
def end_sampled_too_rarely(patch: Patch) -> None:
    """The end of sequence is sampled e times less often than its log-prob says."""

    def longer(logits_BV: Any) -> Any:
        logits_BV[:, END] -= 1.5
        return logits_BV

    sampled_from(patch, longer)


@fault("seeds")
def better_of_two_draws(patch: Patch) -> None:
    """The likelier of two draws is taken, and reported as one draw."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            one_B, p_B = original(logits_BV.clone(), rows, uniform_B)
            two_B, q_B = original(logits_BV, rows, (uniform_B + 0.37) % 1.0)
            better_B = p_B >= q_B
            return torch.where(better_B, one_B, two_B), torch.where(better_B, p_B, q_B)

        return sample

    patch.wrap(f"{DECODE}:sample", make)


@fault("seeds")
def random_numbers_from_the_middle(patch: Patch) -> None:
    """The random numbers of the sampler never leave the middle half of their range."""

    def make(original: Any) -> Any:
        return lambda x_BV, rows, uniform_B: original(x_BV, rows, 0.25 + uniform_B / 2)

    patch.wrap(f"{DECODE}:sample", make)
