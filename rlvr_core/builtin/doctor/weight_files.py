"""Checks the model's files of weights against the architecture that its configuration describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rlvr_core.builtin.doctor.report import Answer, Check, at_first
from rlvr_core.builtin.doctor.subject import Subject

LARGEST = 64 * 2**20
"""Bytes of a tensor up to which all its values are looked at."""
MOST = 2 * 2**30
"""Bytes of all tensors that are looked at."""
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


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
    if cut := _cut_off(subject):
        return cut
    return Answer("ok", f"no tensor of the model is missing in {len(files)} files of weights")


def _cut_off(subject: Subject) -> Answer | None:
    """Check whether the files hold layers that the model of config.json has not."""
    stored = _names(_files(subject.prepared.model_path))
    wanted = dict(subject.skeleton.named_parameters(remove_duplicate=False))
    patterns = {_NUMBER.sub("N", name) for name in wanted if _NUMBER.search(name)}
    # other names, such as those of parts for images, are left out on purpose
    more = [name for name in stored if name not in wanted and _NUMBER.sub("N", name) in patterns]
    if not more:
        return None
    return Answer(
        "fail",
        f"{len(more)} tensors in the files are of layers that config.json leaves out: "
        f"{at_first(more)}",
        "use the config.json that belongs to these weights (num_hidden_layers): the model answers "
        "without these layers",
        weight=184,
    )


def _values(subject: Subject) -> list[Answer]:
    """Check for weights that are no numbers, and matrices that nobody has trained."""
    look = subject.prepared.resolved.host.service("core/odd-tensors")
    found = look(subject.prepared.model_path, LARGEST, MOST)
    answers = []
    if found.infinite:
        answers.append(
            Answer(
                "fail",
                f"{len(found.infinite)} of {found.n} tensors hold NaN or infinite weights: "
                f"{at_first(found.infinite)}",
                "take the model from its source again: this copy is broken",
                weight=185,
            )
        )
    if found.constant:
        answers.append(
            Answer(
                "warn",
                f"{len(found.constant)} of {found.n} tensors are matrices of one number, such as "
                f"zero: {at_first(found.constant)}",
                "take the model from its source again, or compare with it (rlvr models check): "
                "these were perhaps never written",
                weight=183,
            )
        )
    if answers or not found.n:
        return answers
    return [Answer("ok", f"the weights of {found.n} tensors are finite")]


def damage(subject: Subject) -> str:
    """Return what is wrong with the model's files, in a few words; empty if nothing is."""
    answers = [_complete(subject), *_values(subject)]
    return next((one.value for one in answers if one and one.level in ("warn", "fail")), "")


FILES: tuple[Check[Subject], ...] = (
    Check("model/files", "Do the files hold every weight?", _complete),
)
VALUES: tuple[Check[Subject], ...] = (
    Check("model/finite", "Are all weights numbers, and trained?", _values),
)
