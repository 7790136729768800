"""Checks the model's files of weights against the architecture that its configuration describes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.builtin.doctor.report import Answer, Check, at_first
from rlvr_core.builtin.doctor.subject import Subject

if TYPE_CHECKING:
    import torch

LARGEST = 64 * 2**20
"""Bytes of a tensor up to which all its values are looked at."""
MOST = 2 * 2**30
"""Bytes of all tensors that are looked at."""


def _files(path: str) -> list[Path]:
    folder = Path(path)
    return sorted(folder.glob("*.safetensors")) if folder.is_dir() else []


def _names(files: list[Path]) -> dict[str, list[int]]:
    """Return the shape of each stored tensor, from the headers of the files."""
    found: dict[str, list[int]] = {}
    for file in files:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
        found |= {name: one["shape"] for name, one in header.items() if name != "__metadata__"}
    return found


def _complete(subject: Subject) -> Answer | None:
    """Check whether the files hold every tensor of the model."""
    files = _files(subject.prepared.model_path)
    if not files or any(file.name.startswith("adapter") for file in files):
        return None
    stored, model = _names(files), subject.skeleton
    wanted = dict(model.named_parameters(remove_duplicate=False))
    tied = set(wanted) - set(dict(model.named_parameters()))
    if (
        model.get_output_embeddings() is not None
        and model.config.get_text_config(decoder=True).tie_word_embeddings
    ):
        head = model.get_output_embeddings().weight
        tied |= {name for name, one in wanted.items() if one is head}
        embedding = model.get_input_embeddings().weight
        tied |= {name for name, one in wanted.items() if one.shape == embedding.shape == head.shape}
    if len(set(wanted) & set(stored)) < len(wanted) / 2:
        return None  # stored under other names, which the library translates
    missing = [name for name in wanted if name not in stored and name not in tied]
    sizes = [
        name for name, one in wanted.items() if name in stored and list(one.shape) != stored[name]
    ]
    if missing:
        return Answer(
            "fail",
            f"{len(missing)} tensors of the model are not in its files, and would be random: "
            f"{at_first(missing)}",
            "check that config.json belongs to these weights (tie_word_embeddings, number of "
            "layers), and that all files of the model are there",
            weight=175,
        )
    if sizes:
        return Answer(
            "fail",
            f"{len(sizes)} tensors have another shape in the files than in config.json: "
            f"{at_first(sizes)}",
            "use the config.json that belongs to these weights",
            weight=175,
        )
    return Answer("ok", f"no tensor of the model is missing in {len(files)} files of weights")


def _finite(subject: Subject) -> Answer | None:
    """Check for weights that are NaN or infinite, which a half-precision export may leave."""
    import torch

    files = _files(subject.prepared.model_path)
    bad, n = [], 0
    for name, tensor in _tensors(files):
        n += 1
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
            bad.append(name)
    if not n:
        return None
    if bad:
        return Answer(
            "fail",
            f"{len(bad)} of {n} tensors hold NaN or infinite weights: {at_first(bad)}",
            "take the model from its source again: this copy is broken",
            weight=185,
        )
    return Answer("ok", f"the weights of {n} tensors are finite")


def _tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors up to a size, and up to an amount in all."""
    from safetensors import safe_open

    amount = 0
    for file in files:
        with safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (no mapping)
                part = opened.get_slice(name)
                size = 4 * math.prod(part.get_shape())
                if size <= LARGEST and amount + size <= MOST:
                    amount += size
                    yield name, opened.get_tensor(name)


FILES: tuple[Check[Subject], ...] = (
    Check("model/files", "Do the files hold every weight?", _complete),
)
VALUES: tuple[Check[Subject], ...] = (Check("model/finite", "Are all weights finite?", _finite),)
