"""Checks of a model's weights: complete, finite, with configured dtype and tying."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rlvr_core.api import Finding
from rlvr_doctor.examination.report import at_first
from rlvr_doctor.modelcheck.folder import ModelFolder
from rlvr_doctor.modelcheck.stored import values_of

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_TORN = "take the weights from before the run diverged, or fetch them again"


def files(subject: ModelFolder) -> Iterator[Finding]:
    """Check that every file that transformers would load exists and is complete."""
    weights = subject.weights
    size = sum(tensor.nbytes for tensor in weights.tensors.values())
    kinds = Counter[str]()
    for tensor in weights.tensors.values():
        kinds[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
    types = [kind for kind, _ in kinds.most_common()]
    text = f"{len(weights.tensors)} tensors in {len(weights.files)} files, {size:,} bytes"
    yield Finding("weights/files", "ok", f"{text}, {' and '.join(types)}")
    if weights.unused:
        names = at_first(list(weights.unused))
        yield Finding(
            "weights/unused",
            "note",
            f"{names} lie beside them and are not loaded",
        )


def values(subject: ModelFolder) -> Iterator[Finding]:
    """Check for NaN and infinite weights, and for matrices of one number."""
    if not subject.values:
        yield Finding("weights/values", "note", "not read (--no-values)")
        return
    odd: list[str] = []
    constant: list[str] = []
    numbers = 0
    for name, tensor in subject.weights.tensors.items():
        statistics = values_of(tensor)
        if statistics is None:
            continue
        numbers += tensor.numel()
        if statistics.nan or statistics.infinite:
            odd.append(f"{name} ({statistics.nan:,} NaN, {statistics.infinite:,} infinite)")
        # adapters begin with a zero matrix; a vector of ones is a new norm
        elif (
            statistics.constant
            and len(tensor.shape) > 1
            and tensor.numel() > 1
            and ".lora_B" not in name
        ):
            constant.append(name)
    if odd:
        text = f"{len(odd)} tensors are not finite: {at_first(odd)}"
        yield Finding("weights/values", "fail", text, _TORN)
    else:
        yield Finding("weights/values", "ok", f"{numbers:,} numbers are finite")
    if constant:
        yield Finding(
            "weights/constant",
            "warn",
            f"{len(constant)} matrices are one number throughout: {at_first(constant)}",
            "perhaps they were never written: compare with the original",
        )


def names(subject: ModelFolder) -> Iterator[Finding]:
    """Check that the files have exactly the weights of the architecture, with their shapes."""
    model, info = subject.loaded
    missing = sorted(info["missing_keys"])
    shapes = sorted(_name(key) for key in info["mismatched_keys"])
    more = sorted(info["unexpected_keys"])
    kind = type(model).__name__
    if missing or shapes:
        parts = [f"lack {len(missing)} weights: {at_first(missing)}"] if missing else []
        parts += [f"have {len(shapes)} of another shape: {at_first(shapes)}"] if shapes else []
        yield Finding(
            "weights/names",
            "fail",
            f"for {kind}, the files {' and '.join(parts)}: they would be random",
            "the files and config.json do not belong together; export the model again",
        )
    if more:
        patterns = {_NUMBER.sub("N", name) for name, _ in model.named_parameters()}
        layers = any(_NUMBER.sub("N", name) in patterns for name in more)
        text = f"{len(more)} tensors are no part of {kind}: {at_first(more)}"
        yield Finding(
            "weights/more",
            "warn" if layers else "note",
            text,
            "they are layers: config.json is of a smaller model" if layers else "",
        )
    if not (missing or shapes or more):
        yield Finding("weights/names", "ok", f"they are those of {kind}, in name and shape")


def _name(mismatched: object) -> str:
    return str(mismatched[0] if isinstance(mismatched, tuple) else mismatched)


def adapter(subject: ModelFolder) -> Finding:
    """Report that the folder is a LoRA adapter, not a model."""
    config = subject.json("adapter_config.json", "weights")
    return Finding(
        "adapter/kind",
        "warn",
        f"a LoRA adapter of {config.get('base_model_name_or_path')}, rank {config.get('r')}, and "
        "no model: runs refuse it as model.path",
        "make the model that it stands for: rlvr export MODEL OUT --merge",
    )
