"""A model's class, size, context and memory, computed on the meta device."""

from __future__ import annotations

from collections.abc import Iterator

from rlvr_core.api import Finding
from rlvr_core.step.model import max_positions
from rlvr_core.toolkit import ModelSection
from rlvr_doctor.modelcheck.folder import ModelFolder

TRAINED = 16
"""Bytes per trained parameter: float32 weight, gradient, and two Adam moments."""


def size(subject: ModelFolder) -> Iterator[Finding]:
    """Report its class and size, and the memory of its weights."""
    model, _ = subject.loaded
    config = subject.config.get_text_config()
    count = sum(parameter.numel() for parameter in model.parameters())
    layers = getattr(config, "num_hidden_layers", None)
    shape = f", {layers} layers of {getattr(config, 'hidden_size', '?')}" if layers else ""
    yield Finding(
        "model/architecture",
        "ok",
        f"{type(model).__name__}, {count:,} parameters{shape}",
    )
    yield Finding(
        "model/memory",
        "note",
        f"weights: {_size(2 * count)} in bfloat16, {_size(4 * count)} in float32; "
        f"full training: {_size(TRAINED * count)} and activations (rlvr plan CONFIG counts them)",
    )


def _size(n_bytes: int) -> str:
    """Return a number of bytes in the unit that fits."""
    return f"{n_bytes / 2**30:.3g} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.3g} MiB"


def context(subject: ModelFolder) -> Finding:
    """Report its context length."""
    section = ModelSection(
        path=subject.reference, revision=subject.revision, trust_remote_code=subject.trust
    )
    _ = subject.config
    length = max_positions(str(subject.folder), section)
    text = f"{length:,} tokens, prompt and answer together"
    return Finding("model/context", "ok", text)
