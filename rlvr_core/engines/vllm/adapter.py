"""LoRA adapters in vLLM: beside the base model, one at a time, replaced at each sync."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Adapter
from rlvr_core.lora.adapter import write_adapter

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest


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
            raise ValueError(
                f"vLLM has no place for the adapters of {len(unused)} layers: "
                f"{', '.join(unused[:3])}"
            )
        return new

    def close(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self._place, ignore_errors=True)


def unused_layers(worker: Any, number: int) -> list[str]:
    """Names of an adapter's layers that vLLM's model lacks; vLLM itself does not report them."""
    manager = worker.model_runner.lora_manager._adapter_manager
    return sorted(set(manager.get_adapter(number).loras) - set(manager.modules))
