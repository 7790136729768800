"""A model's folder under examination; each part is read once, on first access."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr_core.api import Finding, one_line
from rlvr_doctor.examination.report import at_first
from rlvr_doctor.modelcheck.stored import BrokenPartError, broken, read_file

_WHOLE = ("model.safetensors", "pytorch_model.bin")
ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
ADAPTER_CONFIG = "adapter_config.json"
_TRUST = "read that code; if you trust it, say --trust-remote-code"


@dataclass(frozen=True, slots=True)
class Weights:
    """The files that transformers would load, and the tensors in them.

    Attributes:
        files: The files.
        tensors: The tensors by name.
        unused: Other files of weights, which are not loaded.
    """

    files: tuple[Path, ...]
    tensors: dict[str, Any]
    unused: tuple[str, ...] = ()


@dataclass
class ModelFolder:
    """A model's folder.

    Attributes:
        reference: The name for transformers: the folder or a hub id.
        folder: The folder of its files.
        revision: Revision on the hub.
        trust: Whether code that comes with the model may run.
        values: Whether the numbers of all weights are read.
    """

    reference: str
    folder: Path
    revision: str | None = None
    trust: bool = False
    values: bool = True

    @property
    def is_adapter(self) -> bool:
        """Whether it is a LoRA adapter, not a model."""
        return (self.folder / ADAPTER_CONFIG).is_file() and not (
            self.folder / "config.json"
        ).is_file()

    def json(self, name: str, part: str = "config") -> dict[str, Any]:
        """Read one of its JSON files."""
        try:
            data = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BrokenPartError(
                part, f"there is no {name}", "name a folder that transformers can load"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise BrokenPartError(
                part, f"{name} cannot be read: {one_line(error)}", "fetch it again"
            ) from None
        if not isinstance(data, dict):
            raise BrokenPartError(part, f"{name} is not a JSON object", "fetch it again")
        return data

    @cached_property
    def raw_config(self) -> dict[str, Any]:
        """The raw content of ``config.json``."""
        return self.json("config.json")

    @cached_property
    def weights(self) -> Weights:
        """The weights that transformers would load."""
        for whole in ADAPTER if self.is_adapter else _WHOLE:
            index = self.folder / f"{whole}.index.json"
            if (self.folder / whole).is_file():
                files: tuple[Path, ...] = (self.folder / whole,)
                tensors = read_file(files[0])
                break
            if not self.is_adapter and index.is_file():
                files, tensors = self._shards(index)
                break
        else:
            raise self._no_weights()
        if not tensors:
            raise broken(f"{files[0].name} has no tensors", "fetch it again")
        others = {*self.folder.glob("*.safetensors"), *self.folder.glob("*.bin")} - {*files}
        known = ("training_args.bin", *ADAPTER)
        unused = tuple(sorted(other.name for other in others if other.name not in known))
        return Weights(files, tensors, unused)

    def _shards(self, index: Path) -> tuple[tuple[Path, ...], dict[str, Any]]:
        mapping = self.json(index.name, "weights").get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            raise broken(f"{index.name} has no weight_map", "fetch it again")
        names = sorted({str(name) for name in mapping.values()})
        missing = [name for name in names if not (self.folder / name).is_file()]
        if missing:
            raise broken(
                f"{len(missing)} of {len(names)} shards are missing: {at_first(missing)}",
                "fetch them; all the files that the index names belong to the model",
            )
        shards = {name: read_file(self.folder / name) for name in names}
        lost = [name for name, shard in mapping.items() if name not in shards[shard]]
        if lost:
            raise broken(
                f"{len(lost)} tensors are not in the shard that {index.name} names: "
                f"{at_first(lost)}",
                "index and shards do not belong together: fetch the model again",
            )
        tensors = {name: shards[shard][name] for name, shard in mapping.items()}
        return tuple(self.folder / name for name in names), tensors

    def _no_weights(self) -> BrokenPartError:
        if self.is_adapter:
            return broken(f"there is neither {ADAPTER[0]} nor {ADAPTER[1]}", "fetch the adapter")
        return broken(
            f"there are no weights ({_WHOLE[0]}, or shards with {_WHOLE[0]}.index.json)",
            "fetch the weights, or convert them to safetensors",
        )

    @cached_property
    def config(self) -> Any:
        """The configuration as transformers reads it."""
        from transformers import AutoConfig

        _ = self.raw_config
        try:
            return AutoConfig.from_pretrained(self.reference, **self._options)
        except Exception as error:
            raise BrokenPartError(
                "config", f"transformers cannot read config.json: {one_line(error)}", self._mend
            ) from error

    @cached_property
    def loaded(self) -> tuple[Any, dict[str, Any]]:
        """The model on the meta device, and its loading info, such as missing keys."""
        from transformers import AutoModelForCausalLM

        _ = self.config, self.weights
        auto: Any = AutoModelForCausalLM
        try:
            with quiet():
                model, info = auto.from_pretrained(
                    self.reference,
                    device_map="meta",
                    dtype="auto",
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,
                    **self._options,
                )
        except Exception as error:
            raise BrokenPartError(
                "architecture",
                f"transformers cannot load it as a causal language model: {one_line(error)}",
                self._mend,
            ) from error
        return model, info

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        from transformers import AutoTokenizer

        try:
            with quiet():
                return AutoTokenizer.from_pretrained(self.reference, **self._options)
        except Exception as error:
            raise BrokenPartError(
                "tokenizer",
                f"the tokenizer cannot be loaded: {one_line(error)}",
                "set PYTHONUTF8=1, or give the folder an ASCII name"
                if isinstance(error, UnicodeError)
                else "put the model's own tokenizer files beside its weights",
            ) from error

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "trust_remote_code": self.trust,
            "local_files_only": True,
        }

    @property
    def _mend(self) -> str:
        with contextlib.suppress(BrokenPartError):
            if self.raw_config.get("auto_map") and not self.trust:
                return f"the model brings code of its own: {_TRUST}"
        return "files and config.json do not belong together, or need another transformers"


def folder_of(reference: str, revision: str | None) -> Path | None:
    """Return a model's folder: its own, or that in the hub's cache; None if there is none."""
    folder = Path(reference).expanduser()
    if folder.is_dir():
        return folder
    from huggingface_hub import try_to_load_from_cache

    for name in ("config.json", "adapter_config.json", "tokenizer_config.json"):
        try:
            path = try_to_load_from_cache(reference, name, revision=revision)
        except ValueError:  # not a valid repository name
            return None
        if isinstance(path, str):
            return Path(path).parent
    return None


Question = Callable[[ModelFolder], Finding | Iterable[Finding] | None]
"""A check of a model."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing problems that the report names."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
