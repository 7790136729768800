"""What the files of the model say, read apart from what the run reads for itself.

That is its tokens, and the weights and the function that a run begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import model_state
from rlvr_core.builtin.invariants.check import Invariant, Trainer
from rlvr_core.builtin.invariants.fingerprints import is_sharded

if TYPE_CHECKING:
    from torch import Tensor, nn

    from rlvr_core.api import RunStarted
    from rlvr_core.api.services import LoraSection, ModelSection

ROWS = 64
"""Rows of a tensor that are compared with the file, evenly spread, where there is much to read."""

WHOLE = 1 << 28
"""Bytes of weights up to which all rows are."""


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
    def _config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(
            self._path, revision=self._revision, trust_remote_code=self._trust
        )

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Every end-of-sequence token: of generation config, model config and tokenizer."""
        config = self._config
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

    def are_of(self, ids: Sequence[int], text: str) -> bool:
        """Whether a text that a model was given is that of these tokens."""
        made = (self.tokenizer(text, add_special_tokens=add) for add in (False, True))
        if list(ids) in [one["input_ids"] for one in made]:
            return True
        plain = self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        shown = "".join(text.split())
        return bool(shown) and "".join(str(plain).split()).endswith(shown)

    def named(self, id_: int) -> str:
        """Return a token as a message shows it: its number and its text."""
        if not 0 <= id_ < len(self.tokenizer):
            return f"{id_}, which the tokenizer does not have"
        return f"{id_} ({self.tokenizer.decode([id_])!r})"

    @torch.no_grad()
    def other_weights(self, model: nn.Module) -> list[str]:
        """Return the names of a model's tensors that are not what its files have by that name.

        Files of a hub id are not looked for, and a tensor of another shape is not compared. The
        second matrices of a new adapter, which no file has, must be 0: it changes nothing yet.
        """
        from safetensors import safe_open

        files = sorted(Path(self._path).glob("*.safetensors"))
        wrong = [
            name
            for name, one in model.named_parameters()
            if ".lora_B." in name and bool(one.count_nonzero())
        ]
        stride = 1 if sum(one.stat().st_size for one in files) <= WHOLE else 0
        own = {name.replace(".base_layer.", "."): one for name, one in model.named_parameters()}
        # some files have more digits than their config says, and are loaded as it says
        stated = self._config.dtype or torch.float32
        for file in files:
            with safe_open(file, framework="pt") as stored:
                for name in own.keys() & set(stored.keys()):
                    rows, mine = stored.get_slice(name), own[name]
                    alike = mine.ndim and list(mine.shape) == rows.get_shape()
                    if not alike or not mine.is_floating_point():
                        continue
                    chosen = slice(None, None, stride or max(1, len(mine) // ROWS))
                    forms = (rows[chosen].to(mine), rows[chosen].to(stated).to(mine))
                    if not any(torch.equal(form, mine[chosen]) for form in forms):
                        wrong.append(name)
        return sorted(wrong)

    def other_shape(self, model: Any, lora: LoraSection | None) -> str:
        """Return how a model is put together otherwise than its files and the config say."""
        ends = (model.get_input_embeddings(), model.get_output_embeddings())
        tied = bool(self._config.get_text_config().tie_word_embeddings)
        if tied and None not in ends and _base(ends[0]).weight is not _base(ends[1]).weight:
            return (
                "its config ties the LM head to the embedding (tie_word_embeddings), and they are "
                "two tensors"
            )
        if lora is None:
            return ""
        targets, layers = lora.target_modules, dict(_linear(model))
        layers = {name: one for name, one in layers.items() if one is not ends[1]}
        due = set(layers)
        if targets != "all-linear":
            due = {name for name in layers for one in targets if f".{name}".endswith(f".{one}")}
        wrong = sorted(name for name in due if not hasattr(layers[name], "lora_A"))
        more = sorted(name for name in set(layers) - due if hasattr(layers[name], "lora_A"))
        if wrong or more:
            return (
                f"model.lora.target_modules is {targets}: {len(wrong)} of {len(due)} layers lack "
                f"their LoRA adapter, and {len(more)} others have one, such as {[*wrong, *more][0]}"
            )
        return _other_adapter(model, lora)

    def other_state(self, model: nn.Module) -> list[str]:
        """Return what a model computes with beside weights and its config does not say.

        The config's model is made without memory for its numbers, and rotations for themselves.
        """
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            make: Any = AutoModelForCausalLM.from_config
            due = make(self._config, trust_remote_code=self._trust)
        mine, named = dict(model_state(model)), dict(model_state(due))
        modules = dict(model.named_modules())
        for name in [name for name, one in named.items() if one.is_meta]:
            owner, _, leaf = name.rpartition(".")
            made = _made_again(modules.get(owner))
            named.pop(name)
            if made is not None:
                named[name] = made.get_buffer(leaf)
        return sorted(
            name
            for name in mine.keys() & named.keys()
            if mine[name].shape == named[name].shape and not _close(mine[name], named[name])
        )


class Begun(Invariant):
    """A run begins with the model that it was given.

    Args:
        files: The model's files.
        trainer: The policy's trainer.
        lora: The config's adapter; None where all weights are trained.
    """

    id, phase = "weights", "at the start"

    def __init__(
        self, files: ModelFiles, trainer: Trainer, lora: LoraSection | None = None
    ) -> None:
        self._files, self._trainer, self._lora = files, trainer, lora

    def run_started(self, event: RunStarted) -> None:
        """Compare the model with its files; raises ``RunError``."""
        model = self._trainer.model
        if any(map(is_sharded, model.parameters())):
            return
        if what := self._files.other_shape(model, self._lora):
            raise self.fault(
                event.step,
                f"the policy is not put together as its files and the config say: {what}",
                "something changed the model when it was loaded: look at what ties, copies or "
                "adapts its layers",
                switch="guards.resume: false turns it off",
            )
        if event.resumed:
            return
        weights, state = self._files.other_weights(model), self._files.other_state(model)
        if weights or state:
            raise self.fault(
                event.step,
                f"the policy that was loaded is not the model in its files: "
                f"{len(weights) + len(state)} tensors or numbers differ, such as "
                f"{(weights + state)[0]} (band: none)",
                "something changed the model when it was loaded: look at what casts, folds, "
                "resizes or patches it",
                switch="guards.resume: false turns it off",
            )


def _base(layer: Any) -> Any:
    """Return a layer without the adapter around it."""
    return getattr(layer, "base_layer", layer)


def _other_adapter(model: nn.Module, lora: LoraSection) -> str:
    """Return what of the adapter is trained beside two matrices of its rank for each layer."""
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    more = sorted(name for name in trained if not re.search(r"\.lora_[AB]\.\w+\.weight$", name))
    if more:
        return (
            f"model.lora trains two matrices of each layer that it adapts, and {len(more)} other "
            f"tensors are trained too, such as {more[0]}"
        )
    for name, one in trained.items():
        if one.ndim != 2 or one.shape[0 if ".lora_A." in name else 1] != lora.rank:
            return f"model.lora.rank is {lora.rank}, and {name} has the shape {list(one.shape)}"
    return ""


def _linear(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the linear layers, adapted or not, and none that an adapter is made of."""
    for name, module in model.named_modules():
        inner = ".lora_" in name or name.endswith(".base_layer")
        if not inner and type(_base(module)).__name__ in ("Linear", "Conv1D"):
            yield name, module


def _made_again(layer: Any) -> Any:
    """Return a layer made anew from its config; None where it is not made from that alone."""
    if layer is None or not hasattr(layer, "config") or any(True for _ in layer.parameters()):
        return None
    try:
        return type(layer)(layer.config)
    except TypeError:
        return None


def _close(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.allclose(one.cpu(), other.cpu(), rtol=1e-6, atol=0)


def _ids(value: Any) -> set[int]:
    """Return the tokens that a file gives as one number, as a list, or not at all."""
    if value is None:
        return set()
    return {int(one) for one in value} if isinstance(value, list | tuple) else {int(value)}
