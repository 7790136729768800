"""The engine samples from another distribution than the one whose log-probs it reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from chaos.registry import TRANSFORMERS, Patch, fault


def sampled_from(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Sample from changed logits, and report what the true ones give."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = logits_BV.clone().float().log_softmax(-1)
            token_B, _ = original(change(logits_BV.clone().float()), rows, uniform_B)
            return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap("rlvr_core.engines.decode:sample", make)


def _top_k(logits_BV: Any, k: int) -> Any:
    least_B1 = logits_BV.topk(k, -1).values[:, -1:]
    return logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)


def _top_p(logits_BV: Any, p: float) -> Any:
    ordered_BV, order_BV = logits_BV.sort(-1, descending=True)
    mass_BV = ordered_BV.softmax(-1).cumsum(-1) - ordered_BV.softmax(-1)
    return logits_BV.scatter(-1, order_BV, ordered_BV.masked_fill(mass_BV >= p, -torch.inf))


def _without(logits_BV: Any, token: int) -> Any:
    logits_BV[:, token] = -torch.inf
    return logits_BV


@fault("sampler", backends=TRANSFORMERS)
def samples_at_070(patch: Patch) -> None:
    """Samples at temperature 0.7 and reports log-probs at 1."""
    sampled_from(patch, lambda logits_BV: logits_BV / 0.7)


@fault("sampler", backends=TRANSFORMERS)
def samples_at_130(patch: Patch) -> None:
    """Samples at temperature 1.3 and reports log-probs at 1."""
    sampled_from(patch, lambda logits_BV: logits_BV / 1.3)


@fault("sampler")
def samples_at_085(patch: Patch) -> None:
    """Samples at temperature 0.85 and reports log-probs at 1."""
    sampled_from(patch, lambda logits_BV: logits_BV / 0.85)


@fault("sampler", backends=TRANSFORMERS)
def samples_top_k_3(patch: Patch) -> None:
    """Samples from the 3 likeliest tokens and reports log-probs of all."""
    sampled_from(patch, lambda logits_BV: _top_k(logits_BV, 3))


@fault("sampler", backends=TRANSFORMERS)
def samples_top_p_80(patch: Patch) -> None:
    """Samples by top-p 0.8 and reports log-probs of all."""
    sampled_from(patch, lambda logits_BV: _top_p(logits_BV, 0.8))


@fault("sampler", "greedy", "repeat")
def samples_greedily(patch: Patch) -> None:
    """Takes the likeliest token and reports its log-prob at temperature 1."""
    sampled_from(patch, lambda logits_BV: logits_BV * 1e4)


@fault("sampler", "min[-_ ]p")
def samples_min_p(patch: Patch) -> None:
    """Drops tokens below a fifth of the likeliest, and reports log-probs of all."""
    sampled_from(
        patch,
        lambda x_BV: x_BV.masked_fill(x_BV < x_BV.amax(-1, keepdim=True) - 1.6, -torch.inf),
    )


@fault("sampler", "penalty")
def samples_with_repetition_penalty(patch: Patch) -> None:
    """Tokens drawn lately are made less likely, and the log-probs reported are without that."""
    lately: list[Any] = []

    def penalised(logits_BV: Any) -> Any:
        for token_B in lately[-6:]:
            if len(token_B) == len(logits_BV):
                logits_BV.scatter_add_(1, token_B[:, None], torch.full((len(token_B), 1), -1.5))
        return logits_BV

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = logits_BV.clone().float().log_softmax(-1)
            token_B, _ = original(penalised(logits_BV.clone().float()), rows, uniform_B)
            lately.append(token_B)
            return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap("rlvr_core.engines.decode:sample", make)


@fault("sampler", "suppress", "token")
def samples_without_a_digit(patch: Patch) -> None:
    """One digit is never sampled, and the log-probs reported are without that."""
    from transformers import AutoTokenizer

    digit = None

    def banned(logits_BV: Any) -> Any:
        nonlocal digit
        if digit is None:
            import yaml

            path = yaml.safe_load((patch.folder / "config.yaml").read_text())["model"]["path"]
            digit = AutoTokenizer.from_pretrained(path)("3")["input_ids"][0]
        return _without(logits_BV, digit)

    sampled_from(patch, banned)


@fault("sampler", "eos", "end-of-sequence", "length", "cut off")
def samples_eos_rarely(patch: Patch) -> None:
    """The end of sequence is sampled e times less often than its log-prob says."""

    def longer(logits_BV: Any) -> Any:
        logits_BV[:, 256] -= 1.5
        return logits_BV

    sampled_from(patch, longer)


@fault("sampler")
def samples_better_of_two(patch: Patch) -> None:
    """The likelier of two draws is taken, and reported as one draw."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            one_B, p_B = original(logits_BV.clone(), rows, uniform_B)
            two_B, q_B = original(logits_BV, rows, (uniform_B + 0.37) % 1.0)
            better_B = p_B >= q_B
            return torch.where(better_B, one_B, two_B), torch.where(better_B, p_B, q_B)

        return sample

    patch.wrap("rlvr_core.engines.decode:sample", make)


@fault("sampler", shape="cool")
def samples_at_100_for_060(patch: Patch) -> None:
    """The run asks for temperature 0.6; the engine samples at 1 and reports log-probs at 0.6."""

    def make(original: Any) -> Any:
        def sample(logits_BV: Any, rows: Any, uniform_B: Any) -> Any:
            logp_BV = (logits_BV.clone().float() / 0.6).log_softmax(-1)
            token_B, _ = original(logits_BV.float() * 0.6, rows, uniform_B)
            return token_B, logp_BV.gather(1, token_B[:, None])[:, 0]

        return sample

    patch.wrap("rlvr_core.engines.decode:sample", make)


@fault("sampler", "uniform", "random")
def samples_with_narrow_random_numbers(patch: Patch) -> None:
    """The random numbers of the sampler never leave the middle half of their range."""

    def make(original: Any) -> Any:
        return lambda x_BV, rows, uniform_B: original(x_BV, rows, 0.25 + uniform_B / 2)

    patch.wrap("rlvr_core.engines.decode:sample", make)
