"""The probe of a weight sync: a few tokens whose log-probs show that the weights arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import RunError, WeightSource
from rlvr_core.engines.sync import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROBE_TOKENS = 4
"""Tokens sampled by a probe."""

_MEAN_BAND = {torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
# mean |difference| in nats over PROBE_TOKENS tokens. float32 engines differ by about 1e-5 on a
# CPU; TF32 in the trainer's matrix products reaches 1e-3 on a GPU. bfloat16 itself costs 0.03 on
# average: the band only has to tell rounding from old weights.
_TF32_BAND = 2e-2


def probe_prompt(tokenizer: PreTrainedTokenizerBase, vocab: int, length: int) -> tuple[int, ...]:
    """A fixed prompt of ordinary tokens.

    Longer than two cache blocks, it also shows a prefix cache that survived an update: the
    previous probe left its blocks there.

    Args:
        tokenizer: Tells special tokens from ordinary ones.
        vocab: Rows of the embedding; ids stay below it.
        length: Tokens wanted.
    """
    special = set(tokenizer.all_special_ids)
    ordinary = [token for token in range(min(len(tokenizer), vocab)) if token not in special]
    ordinary = ordinary or list(range(vocab))
    return tuple(ordinary[(position * 7919 + 5) % len(ordinary)] for position in range(length))


@torch.no_grad()
def trainer_logprobs(
    module: PreTrainedModel,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    dtype: torch.dtype,
) -> list[float]:
    """The trainer's log-prob of each of ``token_ids`` after ``prompt_ids``, at temperature 1.

    Args:
        module: The trainer's model.
        prompt_ids: The prompt.
        token_ids: What was sampled after it.
        dtype: Compute precision of the run.
    """
    device = next(module.parameters()).device
    ids_1S = torch.tensor([[*prompt_ids, *token_ids]], device=device)
    autocast = torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)
    with evaluating(module), autocast:
        logits_1SV = module(
            input_ids=ids_1S, use_cache=False, logits_to_keep=len(token_ids) + 1
        ).logits
    logp_TV = logits_1SV[0, -len(token_ids) - 1 : -1].float().log_softmax(-1)
    target_T1 = ids_1S[0, -len(token_ids) :, None]
    logprobs: list[float] = logp_TV.gather(-1, target_T1)[:, 0].tolist()
    return logprobs


def source_logprobs(
    source: WeightSource, prompt_ids: Sequence[int], token_ids: Sequence[int], dtype: torch.dtype
) -> list[float]:
    """Return ``trainer_logprobs`` of a source's model. A collective if it is sharded."""
    sharded: Any = source if source.sharded else None
    if sharded is None:
        return trainer_logprobs(source.module, prompt_ids, token_ids, dtype)
    logprobs: list[float] = sharded.logprobs(prompt_ids, token_ids)
    return logprobs


def check_probe(
    engine: Sequence[float],
    trainer: Sequence[float],
    dtype: torch.dtype,
    device: torch.device,
    version: int,
    *,
    name: str = "engine",
) -> None:
    """Compare an engine's log-probs of a probe with the trainer's.

    Raises:
        RunError: If they differ by more than rounding: weights did not arrive, or a cache built
            under older ones was used.
    """
    band = _MEAN_BAND[dtype]
    if dtype == torch.float32 and device.type == "cuda":
        band = _TF32_BAND
    pairs = list(zip(engine, trainer, strict=True))
    mean = sum(abs(ours - theirs) for ours, theirs in pairs) / max(len(pairs), 1)
    if not mean <= band:  # a NaN fails too
        raise RunError(
            f"weight sync to version {version}: {name} and trainer disagree by {mean:.3g} nats on "
            f"a probe of {len(pairs)} tokens (band {band:g} for {dtype})",
            remedy=(
                "the engine did not take all weights, or kept a cache of the old ones",
                "run with engine: transformers to go on, and report model and vLLM version",
            ),
        )


def shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix of two token sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))
