"""The task both sides of the benchmark do: model, tokenizer, prompts, reward.

The models are random. Text that ends by itself is ruled out by an end-of-sequence id that lies
outside the model's vocabulary, so that every completion has full length on both sides at no cost
to either; ``natural`` puts it inside.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from rlvr_core.tiny.tiny_tokenizer import train_tokenizer

# hidden, layers, heads, key-value heads, head dimension, MLP
SIZES = {
    "0.8M": (128, 4, 4, 2, 32, 384),
    "10M": (384, 6, 6, 3, 64, 1024),
}
PROMPT_TOKENS = 24


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    size: str
    prompts: int
    group: int
    tokens: int
    natural: bool = False

    @property
    def completions(self) -> int:
        """Completions of a step."""
        return self.prompts * self.group

    @classmethod
    def parse(cls, text: str) -> Case:
        """The case that ``spec`` writes."""
        size, _, rest = text.partition(":")
        natural = rest.endswith(":natural")
        prompts, group, tokens = map(int, rest.removesuffix(":natural").split("x"))
        return cls(size, prompts, group, tokens, natural)

    @property
    def spec(self) -> str:
        """As on the command line: ``SIZE:PROMPTSxGROUPxTOKENS``, and ``:natural``."""
        ends = ":natural" if self.natural else ""
        return f"{self.size}:{self.prompts}x{self.group}x{self.tokens}{ends}"

    def __str__(self) -> str:
        ends = " natural" if self.natural else ""
        return f"{self.size} {self.prompts}x{self.group}x{self.tokens}{ends}"


def prompts(count: int) -> list[str]:
    """Different texts of the same number of tokens."""
    rng = random.Random(0)
    return [f"Sum: {' '.join(str(rng.randrange(10)) for _ in range(20))} =" for _ in range(count)]


def reward(text: str) -> float:
    """Share of digits among the characters: cheap, and never the same for a whole group."""
    return len(re.findall("[0-9]", text)) / max(len(text), 1)


def tokenizer(natural: bool) -> PreTrainedTokenizerBase:
    """About 420 tokens, trained on the prompts and some words."""
    words = [f"{a}{b}{c}" for a in "bcdfgklm" for b in "aeiou" for c in ("nd", "st", "r", "ll")]
    made = train_tokenizer([*prompts(64), *(f"The {w} is {w}ing" for w in words)], 419)
    if not natural:
        made.add_special_tokens({"eos_token": "<never>"})
    return made


def write_model(folder: Path, case: Case) -> None:
    """Write a model folder that both sides load."""
    hidden, layers, heads, kv_heads, head_dim, mlp = SIZES[case.size]
    words = tokenizer(case.natural)
    vocabulary = len(words) if case.natural else len(words) - 1
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            intermediate_size=mlp,
            tie_word_embeddings=True,
            max_position_embeddings=1024,
            bos_token_id=None,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )
    if case.natural:  # one logit with a wide spread: lengths from a few tokens to the cap
        with torch.no_grad():
            model.lm_head.weight[words.eos_token_id] *= 12
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    lengths = {len(words(text)["input_ids"]) for text in prompts(64)}
    assert len(lengths) == 1, lengths
