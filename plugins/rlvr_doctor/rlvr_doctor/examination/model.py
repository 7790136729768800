"""Checks of the model that need no weights: its architecture is built on the meta device."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from rlvr_core.api import Complaint, Finding, RlvrError, one_line
from rlvr_doctor.examination.report import Check, at_first
from rlvr_doctor.examination.subject import Subject
from rlvr_doctor.modelcheck import token_checks
from rlvr_doctor.modelcheck.folder import ModelFolder, Question, folder_of

GIB = 2**30


def _attention(subject: Subject) -> Finding:
    configured = subject.config.model.attention
    try:
        model = subject.skeleton
    except Exception as error:
        # other errors may come from custom model code that needs weights
        certain = isinstance(error, ImportError | ValueError)
        return Finding(
            "model/attention",
            "fail" if certain else "warn",
            f"model.attention: {configured} cannot be used: {one_line(error)}",
            "set model.attention: sdpa, or install what it needs",
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    what = f"{type(model).__name__}, {count:,} parameters, attention {configured}"
    return Finding("model/attention", "ok", what)


def _lora(subject: Subject) -> Finding | None:
    section = subject.config.model.lora
    if section is None or section.target_modules == "all-linear":
        return None
    import torch
    from transformers.pytorch_utils import Conv1D

    linear, head = (torch.nn.Linear, Conv1D), subject.skeleton.get_output_embeddings()
    names = [
        name
        for name, module in subject.skeleton.named_modules()
        if isinstance(module, linear) and module is not head
    ]
    targets = section.target_modules
    none = [t for t in targets if not any(f".{name}".endswith(f".{t}") for name in names)]
    if not none:
        return Finding("model/lora", "ok", f"{at_first(list(targets), 8)} match layers' names")
    leaves = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    close = [some[0] for target in none if (some := get_close_matches(target, leaves, n=1))]
    near = f"did you mean: {', '.join(dict.fromkeys(close))}? " if close else ""
    return Finding(
        "model/lora",
        "fail",
        f"model.lora.target_modules: {', '.join(map(repr, none))} match no linear layer beside "
        "which an adapter can be put",
        f"{near}choose of {', '.join(leaves)}, or all-linear",
    )


def _tokenizer(subject: Subject, check: Question) -> Finding | Iterable[Finding] | None:
    """Check the tokenizer with its model's files, as ``rlvr models check`` does."""
    section, path = subject.config.model, subject.prepared.model_path
    folder = folder_of(path, section.revision)
    if folder is None:
        return None
    return check(ModelFolder(path, folder, section.revision, section.trust_remote_code))


def _disk(subject: Subject) -> Finding:
    """Judge whether checkpoints fit: weights, and two float32 moments of Adam."""
    parameters, lora = list(subject.skeleton.parameters()), subject.config.model.lora
    count = sum(parameter.numel() for parameter in parameters)
    if lora is not None:  # an upper bound over all matrices
        matrices = [parameter.shape for parameter in parameters if parameter.ndim == 2]
        count = sum(lora.rank * (shape[0] + shape[1]) for shape in matrices)
    each = count * (12 if subject.config.model.dtype == "float32" or lora is not None else 14)
    section, steps = subject.limits.checkpoint, subject.limits.train.steps
    written = steps // section.every + 1 if section.every else 1
    kept = min(section.keep, written) + 1 + (section.keep_best is not None)
    root = Path(subject.limits.run.dir).absolute()
    existing = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = (
        f"{kept} checkpoints of {each / GIB:.3g} GiB are {kept * each / GIB:.3g} of "
        f"{free / GIB:.3g} GiB free in {subject.limits.run.dir}"
    )
    if kept * each <= free:
        return Finding("disk/files", "ok", text)
    remedy = "lower checkpoint.keep, raise checkpoint.every, or set run.dir to a larger disk"
    return Finding("disk/files", "fail", text, remedy)


def _split_rows(subject: Subject) -> list[Finding]:
    """Check that settings and model allow ``train.context_parallel``."""
    from rlvr_core.packing.packed import padded_because
    from rlvr_core.run.inputs import row_split

    try:
        if row_split(subject.prepared.resolved.host, subject.limits) is None:
            return []
    except RlvrError as error:
        return _failed("train/context-parallel", error.complaints)
    if why := padded_because(subject.skeleton):
        what = f"the model's rows cannot be split over processes: {why}"
        return [Finding("train/context-parallel", "fail", what, "set train.context_parallel: 1")]
    return []


def _failed(id_: str, faults: Sequence[Complaint]) -> list[Finding]:
    return [Finding(id_, "fail", fault.what, "; ".join(fault.remedy)) for fault in faults]


MODEL: tuple[Check[Subject], ...] = (
    ("model/attention", _attention),
    ("model/lora", _lora),
    ("train/context-parallel", _split_rows),
    ("tokenizer/vocabulary", partial(_tokenizer, check=token_checks.vocabulary)),
    ("tokenizer/special", partial(_tokenizer, check=token_checks.special)),
    ("disk/files", _disk),
)
