"""Tokenizers that tests make."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


def byte_tokenizer(special, eos, bos=None, *, ends=False):
    """A token a byte, and these; ``bos`` begins each text, and with ``ends`` it gets an end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(special)
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A {eos if ends else ''}".strip(),
            special_tokens=[(bos, vocabulary[bos]), (eos, vocabulary[eos])],
        )
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=eos, bos_token=bos)


def two_word_tokenizer():
    """Its end and the word "a"."""
    inner = Tokenizer(models.WordLevel({"<eos>": 0, "a": 1}, unk_token="<eos>"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")
