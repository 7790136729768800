"""The tiny model itself: its sizes, its data as rows, and the supervised warm start."""

from __future__ import annotations

import math
import random
import string
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

    from rlvr_core.step.batch import Row

Size = Literal["0.2M", "0.8M", "10M"]
Progress = Callable[[int, int, float], None]
"""Called after each warm-start step with (steps done, steps in all, loss)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a Qwen3 model."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int


SHAPES: dict[Size, Shape] = {
    "0.2M": Shape(64, 3, 2, 2, 32, 192),
    "0.8M": Shape(128, 4, 4, 2, 32, 384),
    "10M": Shape(384, 6, 6, 3, 64, 1024),
}
PEAK_LR: dict[Size, float] = {"0.2M": 4e-3, "0.8M": 2e-3, "10M": 1e-3}
INIT_STD = 0.1
"""Larger than the customary 0.02: at this width it shortens the warm start."""
BATCH = 32
WARMUP_STEPS = 20
MAX_POSITIONS = 2048
FAR_EVERY, FAR_ROWS, FAR_LENGTH = 20, 8, 600
_GAPS = (*[" "] * 12, ", ", ". ", "? ", "'s ", "\n", "$")


def new_model(size: Size, tokenizer: PreTrainedTokenizerBase) -> Qwen3ForCausalLM:
    """A Qwen3 with tied embeddings and random weights from torch's global generator."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = SHAPES[size]
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.mlp,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        initializer_range=INIT_STD,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]


def rows_of(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]) -> list[Row]:
    """(prompt, completion) pairs as rows to train on, all of each completion under the loss.

    Prompt and completion are tokenised apart, as in a run, and the completion ends with the
    end-of-sequence token.
    """
    prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    answers = tokenizer([answer for _, answer in pairs])["input_ids"]
    rows = []
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = (*answer, tokenizer.eos_token_id)
        n = len(tokens)
        from rlvr_core.step.batch import Row

        rows.append(Row(tuple(prompt), tokens, (True,) * n, (0.0,) * n, 0.0))
    return rows


def batches_of(
    tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], seed: int
) -> list[list[Row]]:
    """The rows of each warm-start step: ``BATCH`` pairs, in order.

    Every ``FAR_EVERY``-th step takes ``FAR_ROWS`` of its pairs, each prompt put somewhere into a
    long random text. Without them the model breaks down behind prompts longer than the task's
    own, and could not stand in for a real model on real problems.
    """
    rng = random.Random(f"far {seed}")
    batches = []
    for start in range(0, len(pairs) - BATCH + 1, BATCH):
        chosen = pairs[start : start + BATCH]
        if (start // BATCH) % FAR_EVERY == FAR_EVERY // 2:
            chosen = [(_far(prompt, rng), answer) for prompt, answer in chosen[:FAR_ROWS]]
        batches.append(rows_of(tokenizer, chosen))
    return batches


def _far(prompt: str, rng: random.Random) -> str:
    """The prompt at a random place in a text of random words and numbers."""
    length, text = rng.randrange(FAR_LENGTH), ""
    while len(text) < length:
        is_word = rng.random() < 0.9
        letters = rng.choices(string.ascii_letters, k=rng.randint(1, 9))
        text += "".join(letters) if is_word else str(rng.randint(0, 200))
        text += rng.choice(_GAPS)
    cut = rng.randint(0, len(text))
    return text[:cut] + prompt + text[cut:]


def warm_start(
    model: Qwen3ForCausalLM,
    batches: Sequence[Sequence[Row]],
    *,
    peak_lr: float,
    progress: Progress | None = None,
) -> float:
    """Train on the batches in order, one a step, and return the last step's loss in nats.

    AdamW (betas .9/.98, weight decay .01), linear warm-up, cosine to 5% of the peak, gradient
    norm clipped at 1.
    """
    import torch

    from rlvr_core.api.progress import counting

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    steps = len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, steps))
    model.train()
    loss = float("nan")
    for done, rows in enumerate(counting("warm-start steps", batches, steps), 1):
        loss = _step(model, rows, optimizer)
        schedule.step()
        if progress:
            progress(done, steps, loss)
    model.eval()  # type: ignore[no-untyped-call]
    return loss


def _step(model: Qwen3ForCausalLM, rows: Sequence[Row], optimizer: Optimizer) -> float:
    import torch

    from rlvr_core.step.batch import micro_batches
    from rlvr_core.step.forward import completion_logprobs

    (batch,) = micro_batches(rows, tokens_per_micro_batch=sys.maxsize)
    logp_BT = completion_logprobs(model, batch, temperature=1.0)
    loss = -logp_BT.sum() / batch.mask_BT.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _share(step: int, steps: int) -> float:
    """Learning rate at a step as a share of the peak."""
    if step < WARMUP_STEPS:
        return (step + 1) / WARMUP_STEPS
    done = (step - WARMUP_STEPS) / max(1, steps - WARMUP_STEPS)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))
