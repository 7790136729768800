"""Checks of a model's weights: complete, finite, with configured dtype and tying."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from rlvr_core.builtin.modelcheck.report import BrokenPartError, Finding, at_first
from rlvr_core.builtin.modelcheck.stored import NAMES, Stored
from rlvr_core.builtin.modelcheck.subject import Subject
from rlvr_core.builtin.modelcheck.values import values_of

_TORN = "take the weights from before the run diverged, or fetch them again"


def files(subject: Subject) -> Iterator[Finding]:
    """Check that every file that transformers would load exists and is complete."""
    found = subject.weights
    size = sum(one.n_bytes for one in found.tensors.values())
    kinds = Counter[str]()
    for one in found.tensors.values():
        kinds[one.dtype] += one.n_bytes
    types = [NAMES.get(kind, kind) for kind, _ in kinds.most_common()]
    text = f"{len(found.tensors)} tensors in {len(found.files)} files, {size:,} bytes"
    data = {"files": len(found.files), "bytes": size, "dtypes": types}
    yield Finding("weights/files", "ok", f"{text}, {' and '.join(types)}", data=data)
    if found.unused:
        names = at_first(list(found.unused))
        yield Finding(
            "weights/unused",
            "warn",
            f"{names} lie beside them and are not loaded",
            "delete them, or make them what is loaded: transformers prefers model.safetensors",
        )


def dtype(subject: Subject) -> Finding | None:
    """Check that the files have the dtype of config.json."""
    declared = subject.raw_config.get("dtype", subject.raw_config.get("torch_dtype"))
    kinds = {one.dtype for one in subject.weights.tensors.values() if one.dtype in NAMES}
    names = sorted(NAMES[kind] for kind in kinds)
    if declared is None or not names or str(declared).removeprefix("torch.") in names:
        return None
    text = f"config.json says {declared}, the files have {' and '.join(names)}"
    return Finding("weights/dtype", "note", f"{text}; runs take model.dtype")


def values(subject: Subject) -> Iterator[Finding]:
    """Check for NaN and infinite weights, and for matrices of one number."""
    if not subject.values:
        yield Finding("weights/values", "skip", "not read (--no-values)")
        return
    odd: list[str] = []
    zero: list[str] = []
    constant: list[str] = []
    numbers = 0
    for name, one in subject.weights.tensors.items():
        found = values_of(one)
        if found is None:
            continue
        numbers += one.numel
        if found.nan or found.infinite:
            odd.append(f"{name} ({found.nan:,} NaN, {found.infinite:,} infinite)")
        elif found.zero and len(one.shape) > 1 and ".lora_B" not in name:
            zero.append(name)
        elif found.constant and len(one.shape) > 1 and one.numel > 1:
            constant.append(name)
    if odd:
        text = f"{len(odd)} tensors are not finite: {at_first(odd)}"
        yield Finding("weights/values", "fail", text, _TORN)
    else:
        yield Finding("weights/values", "ok", f"{numbers:,} numbers are finite")
    if zero:
        yield Finding(
            "weights/zero",
            "warn",
            f"{len(zero)} matrices are zero throughout: {at_first(zero)}",
            "they were perhaps never written: compare with the original",
        )
    if constant:
        yield Finding(
            "weights/constant",
            "warn",
            f"{len(constant)} matrices are one number throughout: {at_first(constant)}",
            "they were perhaps never written: compare with the original",
        )


def tie(subject: Subject) -> Finding | None:
    """Check that input and output embedding are tied as in config.json."""
    model, info = subject.loaded
    config = subject.config.get_text_config()
    tied = bool(getattr(config, "tie_word_embeddings", False))
    entry = _stored(subject, model, model.get_input_embeddings())
    head = _stored(subject, model, model.get_output_embeddings())
    declaration = f"config.json says tie_word_embeddings: {str(tied).lower()}"
    if head is None:
        return None if not tied or info["missing_keys"] else Finding(
            "weights/tied", "ok", f"{declaration}, and there is no LM head of its own"
        )  # fmt: skip
    if entry is None or not subject.values:
        return None
    same = _equal(entry, head)
    if tied and not same:
        return Finding(
            "weights/tied",
            "fail",
            f"{declaration}, but {head.name} differs from {entry.name}: one of the two would be "
            f"lost",
            "set tie_word_embeddings as it was when the model was trained",
        )
    if not tied and same and entry.name != head.name:
        text = f"{declaration}, but {head.name} equals {entry.name}"
        return Finding(
            "weights/tied",
            "warn",
            f"{text}: training would let them part",
            "set tie_word_embeddings: true if the model was trained so",
        )
    return Finding("weights/tied", "ok", f"{declaration}, as the files have it")


def names(subject: Subject) -> Iterator[Finding]:
    """Check that the files have exactly the weights of the architecture, with their shapes."""
    model, info = subject.loaded
    missing = sorted(info["missing_keys"])
    shapes = sorted(_name(one) for one in info["mismatched_keys"])
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
        yield Finding(
            "weights/more",
            "warn",
            f"{len(more)} tensors are no part of {kind}: {at_first(more)}",
            "if they are layers, config.json is of a smaller model; parts for images are left out",
        )
    if not (missing or shapes or more):
        yield Finding("weights/names", "ok", f"they are those of {kind}, in name and shape")


def _name(mismatched: object) -> str:
    return str(mismatched[0] if isinstance(mismatched, tuple) else mismatched)


def _stored(subject: Subject, model: object, module: object) -> Stored | None:
    """Return the stored weight of an embedding; None if the files lack it."""
    name = next((n for n, one in model.named_modules() if one is module), None)  # type: ignore[attr-defined]
    if module is None or name is None:
        return None
    prefix = str(getattr(model, "base_model_prefix", ""))
    tensors = subject.weights.tensors
    for one in (f"{name}.weight", f"{name}.weight".removeprefix(f"{prefix}.")):
        if one in tensors:
            return tensors[one]
    return None


def _equal(one: Stored, other: Stored) -> bool:
    if one.shape != other.shape:
        return False
    import torch

    def read(stored: Stored) -> torch.Tensor:
        if stored.tensor is not None:
            tensor: torch.Tensor = stored.tensor
            return tensor
        from safetensors import safe_open

        with safe_open(stored.file, framework="pt") as opened:
            return opened.get_tensor(stored.name)  # type: ignore[no-any-return]

    first, second = read(one), read(other)
    if first.dtype != second.dtype:
        first, second = first.float(), second.float()
    return torch.equal(first.nan_to_num(), second.nan_to_num())


def adapter(subject: Subject) -> Iterator[Finding]:
    """Check that a LoRA adapter is complete, and its base model available."""
    config = subject.json("adapter_config.json", "weights")
    base, rank = config.get("base_model_name_or_path"), config.get("r")
    yield Finding(
        "adapter/kind",
        "warn",
        f"a LoRA adapter of {base}, rank {rank}, and no model: runs refuse it as model.path",
        "make the model that it stands for: rlvr export MODEL OUT --merge",
        {"base": base, "rank": rank},
    )
    tensors = subject.weights.tensors
    halves = {name: one for name, one in tensors.items() if ".lora_A." in name}
    alone = [
        name
        for name, one in halves.items()
        if (other := tensors.get(name.replace(".lora_A.", ".lora_B."))) is None
        or (len(one.shape) == len(other.shape) == 2 and one.shape[0] != other.shape[1])
    ]
    if not halves or alone:
        text = "there are no LoRA matrices" if not halves else f"no lora_B fits {at_first(alone)}"
        yield Finding("adapter/matrices", "fail", text, "write the adapter again")
    else:
        yield Finding("adapter/matrices", "ok", f"{len(halves)} pairs of matrices")
    yield _base(str(base or ""))


def _base(base: str) -> Finding:
    from rlvr_core.builtin.modelcheck.place import folder_of

    place = None
    with contextlib.suppress(BrokenPartError, ValueError):
        place = folder_of(base, None) if base else None
    if place is None:
        return Finding(
            "adapter/base",
            "fail",
            f"its base '{base}' is not on this machine",
            f"fetch it (hf download {base}), or mend base_model_name_or_path",
        )
    return Finding("adapter/base", "ok", f"its base is {place}; check it too")
