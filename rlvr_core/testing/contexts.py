"""Contexts that tests start engines with."""

from __future__ import annotations

from pathlib import Path

from rlvr_core.api import EngineContext


def tiny_context(folder: Path) -> EngineContext:
    """Return an engine context with a model of random weights, created in the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr_core.terminal.output import quiet_libraries
    from rlvr_core.testing.random_model import save_random_model

    quiet_libraries()
    path = str(save_random_model(folder / "tiny-model"))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path)
    return EngineContext(path, model, tokenizer, torch.float32, max_model_len=64, seed=7)
