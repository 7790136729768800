"""LoRA adapters in a vLLM engine: loaded beside the base model, one at a time."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Adapter, ConfigError, EngineContext
from rlvr_core.builtin.lora.adapter import write_adapter

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks for which vLLM 0.32 can make room; an adapter of a smaller rank is padded."""


def check_rank(rank: int | None, engine: str = "vllm") -> None:
    """Refuse an engine for adapters in a run that has none, or has some that are too large.

    Raises:
        ConfigError: If that is so.
    """
    where = "engine.with.lora"
    if rank is None:
        raise ConfigError(
            f"engine {engine} is to take adapters, and there are none",
            where=where,
            remedy="leave it out, or train adapters: model.lora",
        )
    if rank > _RANKS[-1]:
        raise ConfigError(
            f"vLLM takes adapters of rank {_RANKS[-1]} at most, and model.lora.rank is {rank}",
            where=where,
            remedy="set it to merged, or lower the rank",
        )


def room_for(context: EngineContext) -> int:
    """The rank that vLLM is to make room for."""
    rank = context.adapter_rank or 1
    return next(room for room in _RANKS if room >= rank)


class Adapters:
    """The adapters of one engine.

    vLLM reads an adapter from a folder, and its prefix cache tells adapters apart by name and
    folder: each gets new ones.

    Args:
        llm: vLLM's ``LLMEngine``.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._place = Path(tempfile.mkdtemp(prefix="rlvr-adapter-"))
        self._numbers = itertools.count(1)
        self._current: LoRARequest | None = None

    def load(self, adapter: Adapter) -> LoRARequest:
        """Put an adapter in the place of the one before; requests have to name it.

        Raises:
            ValueError: If vLLM left some of its layers out.
            Exception: Whatever vLLM raised.
        """
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)
        folder = self._place / str(number)
        folder.mkdir()
        write_adapter(folder, adapter)
        new = LoRARequest(f"policy-{number}", number, str(folder))
        if self._current is not None:
            self._llm.remove_lora(self._current.lora_int_id)
            shutil.rmtree(self._current.lora_path)
        self._current = new
        if not self._llm.add_lora(new):
            raise ValueError("vLLM did not load the adapter")
        (unused,) = self._llm.collective_rpc(unused_layers, args=(number,))
        if unused:
            raise ValueError(no_place(unused))
        return new

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self._place, ignore_errors=True)


def no_place(layers: Sequence[str]) -> str:
    """What is wrong with an adapter of layers that vLLM's model lacks."""
    return f"vLLM has no place for the adapters of {len(layers)} layers: {', '.join(layers[:3])}"


def unused_layers(worker: Any, number: int) -> list[str]:
    """Layers of an adapter that vLLM's model lacks; it says nothing of them itself."""
    manager = worker.model_runner.lora_manager._adapter_manager
    return sorted(set(manager.get_adapter(number).loras) - set(manager.modules))
