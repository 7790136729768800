"""Checks of the model that need no weights: its architecture is built on the meta device."""

from __future__ import annotations

import os
import shutil
import tempfile
from difflib import get_close_matches
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.builtin.doctor.report import Answer, Check, at_first
from rlvr_core.builtin.doctor.subject import Subject

GIB = 2**30


def _attention(subject: Subject) -> Answer:
    configured = subject.config.model.attention
    try:
        model = subject.skeleton
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        # other errors may come from custom model code that needs weights
        certain = isinstance(error, ImportError | ValueError)
        return Answer(
            "fail" if certain else "warn",
            f"model.attention: {configured} cannot be used: {type(error).__name__}: {first}",
            "set model.attention: sdpa, or install what it needs",
            weight=180,
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    return Answer("ok", f"{type(model).__name__}, {count:,} parameters, attention {configured}")


def _lora(subject: Subject) -> Answer | None:
    section = subject.config.model.lora
    if section is None:
        return None
    import torch
    from transformers.pytorch_utils import Conv1D

    linear, head = (torch.nn.Linear, Conv1D), subject.skeleton.get_output_embeddings()
    names = [
        name
        for name, one in subject.skeleton.named_modules()
        if isinstance(one, linear) and one is not head
    ]
    targets = section.target_modules
    if targets == "all-linear":
        return Answer("ok", f"all-linear: {len(names)} linear layers but the LM head")
    none = [
        target
        for target in targets
        if not any(name == target or name.endswith(f".{target}") for name in names)
    ]
    leaves = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    if none:
        close = [some[0] for one in none if (some := get_close_matches(one, leaves, n=1))]
        near = f"did you mean: {', '.join(dict.fromkeys(close))}? " if close else ""
        return Answer(
            "fail",
            f"model.lora.target_modules: {', '.join(map(repr, none))} match no linear layer beside "
            "which an adapter can be put",
            f"{near}choose of {', '.join(leaves)}, or all-linear",
            weight=180,
        )
    return Answer("ok", f"{at_first(list(targets), 8)} match {len(names)} layers' names")


def _vocabulary(subject: Subject) -> Answer:
    rows = subject.skeleton.get_input_embeddings().num_embeddings
    most = max((max(ids) for _, ids in subject.rendered), default=0)
    value = f"{len(subject.tokenizer)} tokens, {rows} rows of the embedding"
    if most >= rows:
        return Answer(
            "fail",
            f"{value}; a prompt has token {most}",
            "use the tokenizer that belongs to the model, or enlarge the embedding",
        )
    if len(subject.tokenizer) > rows:
        return Answer(
            "warn",
            f"{value}: the last {len(subject.tokenizer) - rows} tokens have no embedding, though "
            "no prompt that was looked at uses them",
            "use the tokenizer that belongs to the model, or enlarge the embedding",
            weight=113,
        )
    return Answer("ok", value)


def free_bytes(folder: str) -> int:
    """Return the free space at a folder, which need not exist yet."""
    root = Path(folder).absolute()
    existing = next(path for path in (root, *root.parents) if path.exists())
    return shutil.disk_usage(existing).free


def kept_checkpoints(subject: Subject) -> int:
    """Return the maximum number of checkpoints on disk at once, including one being written."""
    section, steps = subject.limits.checkpoint, subject.limits.train.steps
    written = steps // section.every + 1 if section.every else 1
    return min(section.keep, written) + 1 + (section.keep_best is not None)


def disk(subject: Subject, each: int, traces: int = 0) -> Answer:
    """Judge whether the run's files fit.

    Args:
        subject: The run.
        each: Bytes of one checkpoint.
        traces: Bytes of the run's other files.
    """
    count = kept_checkpoints(subject)
    needed, free = count * each + traces, free_bytes(subject.limits.run.dir)
    value = (
        f"{count} checkpoints of {each / GIB:.3g} GiB and traces of {traces / GIB:.3g} GiB are "
        f"{needed / GIB:.3g} of {free / GIB:.3g} GiB free in {subject.limits.run.dir}"
    )
    data = {"needed": needed, "free": free}
    if needed > free:
        return Answer(
            "fail",
            value,
            "lower checkpoint.keep, raise checkpoint.every, or set run.dir to a larger disk",
            weight=140,
            data=data,
        )
    return Answer("warn" if needed > 0.8 * free else "ok", value, data=data)


def _trained(subject: Subject) -> int:
    """Return the number of trained parameters; for LoRA, an upper bound over all matrices."""
    parameters = list(subject.skeleton.parameters())
    lora = subject.config.model.lora
    if lora is None:
        return sum(parameter.numel() for parameter in parameters)
    matrices = [parameter.shape for parameter in parameters if parameter.ndim == 2]
    return sum(lora.rank * (shape[0] + shape[1]) for shape in matrices)


def _disk(subject: Subject) -> Answer:
    """Estimate a checkpoint from the architecture: weights, and two float32 moments of Adam."""
    count, lora = _trained(subject), subject.config.model.lora
    weights = 4 if subject.config.model.dtype == "float32" or lora is not None else 6
    return disk(subject, (weights + 8) * count)


def _shared_memory(subject: Subject) -> Answer | None:
    """Judge whether shared memory has room to send weights to an engine in its own process."""
    memory = Path("/dev/shm")
    engine = subject.config.engine
    if not subject.prepared.mode.background or (engine and engine.transport.use != "auto"):
        return None
    needed = 4 * _trained(subject) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    free = shutil.disk_usage(memory).free if memory.is_dir() else 0
    value = f"weights for the engine are up to {needed / GIB:.3g} of {free / GIB:.3g} GiB free"
    if needed <= free:
        return Answer("ok", f"{value} in {memory}")
    return Answer(
        "warn",
        f"{value} in {memory}: they go through files in {tempfile.gettempdir()}, which is slower",
        "enlarge shared memory (docker: --shm-size, or --ipc=host)",
        data={"needed": needed, "free": free},
    )


def _tensor_parallel(subject: Subject) -> list[Answer]:
    """Ask vLLM's engine whether processes and model can be divided as the config says."""
    engine = subject.prepared.engine
    size = engine.with_.get("tensor_parallel_size", 1) if engine.use == "core/vllm" else 1
    if size == 1:
        return []
    faults = subject.prepared.resolved.host.service("core/tensor-parallel")
    found = faults(size, subject.skeleton.config)
    return [Answer("fail", one.what, "; ".join(one.remedy)) for one in found]


def _split_rows(subject: Subject) -> list[Answer]:
    """Ask whether settings and model allow what ``train.context_parallel`` says."""
    service = subject.prepared.resolved.host.service
    if subject.limits.train.context_parallel == 1:
        return []
    try:
        service("core/check-processes")(subject.limits)
    except ConfigError as error:
        return [Answer("fail", one.what, "; ".join(one.remedy)) for one in error.complaints]
    if why := service("core/padded-because")(subject.skeleton):
        what = f"the model's rows cannot be split over processes: {why}"
        return [Answer("fail", what, "set train.context_parallel: 1")]
    return []


def _groups(subject: Subject) -> list[Answer]:
    """Ask whether the processes can be divided as ``train.context_parallel`` says."""
    size = subject.limits.train.context_parallel
    if size == 1:
        return []
    found = subject.prepared.resolved.host.service("core/context-faults")(size)
    return [Answer("fail", one.what, "; ".join(one.remedy)) for one in found]


MODEL: tuple[Check[Subject], ...] = (
    Check("model/attention", "Can the model be built with this attention?", _attention),
    Check("model/lora", "Does every LoRA target match a layer?", _lora),
    Check("train/context-parallel", "Can the model's rows be split?", _split_rows),
    Check("model/vocabulary", "Do tokenizer and model belong together?", _vocabulary),
)
PROCESSES: tuple[Check[Subject], ...] = (
    Check("engine/tensor-parallel", "Can the processes share engines?", _tensor_parallel),
    Check("train/groups", "Can the processes be groups that split rows?", _groups),
)
"""Checks of the processes that train: not for the doctor, which has but one."""
DISK: tuple[Check[Subject], ...] = (
    Check("disk/checkpoints", "Do the checkpoints fit on the disk?", _disk),
    Check("disk/shared-memory", "Is there room to hand weights to the engine?", _shared_memory),
)
