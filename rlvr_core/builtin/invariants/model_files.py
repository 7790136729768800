"""What the files of the model say of tokens, read apart from what the run reads for itself."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api.services import ModelSection


class ModelFiles:
    """Tokenizer and end-of-sequence tokens of a model folder; each is read when first asked for.

    Args:
        path: Folder or hub id of the model.
        section: The config's ``model``.
    """

    def __init__(self, path: str, section: ModelSection) -> None:
        self._path = path
        self._revision = section.revision
        self._trust = section.trust_remote_code

    @cached_property
    def tokenizer(self) -> Any:
        """A tokenizer of its own, which nothing in the run has touched."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(
            self._path, revision=self._revision, trust_remote_code=self._trust
        )

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Every end-of-sequence token: of generation config, model config and tokenizer."""
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(
            self._path, revision=self._revision, trust_remote_code=self._trust
        )
        inner = config.get_text_config()
        said = [getattr(one, "eos_token_id", None) for one in (config, inner)]
        return self.turn_end_ids.union(*map(_ids, said))

    @cached_property
    def turn_end_ids(self) -> frozenset[int]:
        """Those of generation config and tokenizer, by which a chat model is told from a base."""
        from transformers import GenerationConfig

        try:
            generation = GenerationConfig.from_pretrained(
                self._path, revision=self._revision or "main"
            )
        except (OSError, ValueError):
            generation = None  # not every model has one
        said = getattr(generation, "eos_token_id", None)
        return frozenset((*_ids(said), *_ids(self.tokenizer.eos_token_id)))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that decoded text does not show."""
        added = self.tokenizer.added_tokens_decoder
        marked = (id_ for id_, token in added.items() if token.special)
        return frozenset((*self.tokenizer.all_special_ids, *marked))

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenize a text without adding special tokens."""
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return tuple(ids)

    def decode(self, ids: Any) -> str:
        """Decode tokens without special ones."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def named(self, id_: int) -> str:
        """Return a token as a message shows it: its number and its text."""
        if not 0 <= id_ < len(self.tokenizer):
            return f"{id_}, which the tokenizer does not have"
        return f"{id_} ({self.tokenizer.decode([id_])!r})"


def _ids(value: Any) -> set[int]:
    """Return the tokens that a file gives as one number, as a list, or not at all."""
    if value is None:
        return set()
    return {int(one) for one in value} if isinstance(value, list | tuple) else {int(value)}
