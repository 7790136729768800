"""A byte-level tokenizer of a few hundred tokens, trained on a task's own demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS, PAD = "<|endoftext|>", "<pad>"

_PIECES = r" ?\\[A-Za-z]+\{?| ?[A-Za-z]+|[0-9]|\s+(?! )| ?[^\sA-Za-z0-9]+"
"""LaTeX commands, words, single digits, white space and punctuation; merges stay inside a piece."""


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer.

    All 256 bytes are tokens, so that any text can be encoded and comes back unchanged; digits
    are never merged.

    Args:
        texts: What to learn merges from.
        vocab_size: Tokens at most, the 256 bytes and two special tokens included.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
