"""Checkpoints: a model folder anyone can load, and all a run needs to continue exactly.

    model.safetensors, config.json, tokenizer …   loads in transformers and vLLM as it is
    adapter_model.safetensors, …                  in the place of the model, with LoRA
    trainer/optimizer.safetensors                 moments and step counts by parameter name
    trainer/master.safetensors                    float32 weights, where the model folder rounds
    trainer/reference.safetensors                 the reference, where it moves
    trainer/state.json                            step, version, sampler, ledger, offsets, RNG

A sharded policy is written by all processes, each its slices, to folders in the place of these
files: see ``rlvr_core.parallel.fsdp.shards``.
The folder itself (temporary name, checksums, rotation) is ``record.checkpoints``'s business. A
reference that never moves is not saved: it comes from ``model.path``, as does what is below
an adapter.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from rlvr_core.api import MachineError, one_line
from rlvr_core.parallel.model_adapter import adapter_of
from rlvr_core.parallel.sharded import is_sharded, like, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rlvr_core.api import Json
    from rlvr_core.parallel.ranks import Ranks
    from rlvr_core.step.optim import Optimizer
    from rlvr_core.step.reference import Reference

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the training state on the CPU, to be written while training continues.

    Attributes:
        weights: Parameters and buffers by name, whole; with LoRA those of the adapter alone.
        moments: The optimizer's state, whole.
        reference: The reference, where it moves, whole.
        scaler: State of float16's loss scale.
        random: State of torch's random numbers.
        shards: In the place of all these tensors, the slices that this process writes.
    """

    weights: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor]
    reference: dict[str, torch.Tensor]
    scaler: dict[str, Any]
    random: torch.Tensor
    shards: Any = None


def collect(
    model: PreTrainedModel,
    optimizer: Optimizer,
    reference: Reference | None = None,
    ranks: Ranks | None = None,
    place: Path | None = None,
) -> Snapshot:
    """Copy weights, moments and random state. A collective if they are sharded.

    Args:
        model: The policy.
        optimizer: Its optimizer.
        reference: The run's reference, if any.
        ranks: The processes, the first of which writes; None if this one does.
        place: A folder. If all processes see it, each is to write its slices of a sharded policy,
            but for an adapter, which is gathered.
    """
    parts = {
        "master": adapter_of(model).trained_tensors(model),
        "optimizer": optimizer.state_tensors(),
        "reference": reference.named() if reference else {},
    }
    shards = None
    if ranks and place and any(map(is_sharded, parts["master"].values())):
        from rlvr_core.parallel.fsdp.shards import shards_of

        shards = shards_of(model, parts, ranks, place)

    def copied(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        copies = {}
        for name, tensor in tensors.items():
            full = whole(tensor.detach())
            if ranks is None or ranks.main:
                copies[name] = full.to("cpu", copy=True).contiguous()
        return copies

    weights, moments, held_to = ({} if shards else copied(tensors) for tensors in parts.values())
    scaler, random = optimizer.scaler.state_dict(), torch.get_rng_state()
    return Snapshot(weights, moments, held_to, scaler, random, shards)


def save(
    folder: Path,
    *,
    snapshot: Snapshot,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    compute_dtype: torch.dtype,
    state: dict[str, Json],
) -> None:
    """Write everything into an empty folder.

    Args:
        folder: Where; its caller makes it complete or takes it away.
        snapshot: What ``collect`` gave.
        model: The policy, for its configuration alone: its weights may have changed since.
        tokenizer: Saved beside it, so that the folder stands alone.
        compute_dtype: Dtype of the exported weights; below float32 the master goes to trainer/.
            An adapter is float32 in any case.
        state: The run's own state, JSON.
    """
    trainer = folder / "trainer"
    trainer.mkdir()
    if snapshot.shards:
        snapshot.shards.write(folder, compute_dtype)
    else:
        adapter_of(model).save(folder, model, snapshot.weights, compute_dtype)
        save_file(snapshot.moments, trainer / "optimizer.safetensors")
    tokenizer.save_pretrained(folder)
    if snapshot.reference:
        save_file(snapshot.reference, trainer / "reference.safetensors")
    full = {
        "format": FORMAT,
        "scaler": snapshot.scaler,
        "torch_rng": base64.b64encode(bytes(snapshot.random.tolist())).decode(),
        **state,
    }
    (trainer / "state.json").write_text(json.dumps(full, indent=1), encoding="utf-8")


def rehearse(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, compute_dtype: torch.dtype
) -> None:
    """Write all that a checkpoint has beside tensors to a temporary folder, and remove it.

    Raises:
        MachineError: If a library refuses to write it, which no step would change.
    """
    with tempfile.TemporaryDirectory(prefix="rlvr-rehearsal-") as name:
        folder = Path(name)
        (folder / "trainer").mkdir()
        try:
            adapter_of(model).save(folder, model, {}, compute_dtype)
            tokenizer.save_pretrained(folder)
        except Exception as error:
            raise MachineError(
                f"no checkpoint of this model could be written: {one_line(error)}",
                where="model.path",
                remedy="fix the file of the model's folder that holds it",
            ) from error


def load(
    folder: Path,
    *,
    model: PreTrainedModel,
    optimizer: Optimizer,
    reference: Reference | None = None,
) -> dict[str, Any]:
    """Put weights, optimizer, reference and random state back; the inverse of ``save``.

    Returns:
        The run's own state as it was given to ``save``.

    Raises:
        ValueError: If the checkpoint is of another format or another model.
    """
    trainer = folder / "trainer"
    state: dict[str, Any] = json.loads((trainer / "state.json").read_text(encoding="utf-8"))
    if state.pop("format") != FORMAT:
        raise ValueError(f"{folder} was written in another checkpoint format")

    def saved(part: str, ours: Mapping[str, torch.Tensor]) -> Any:
        file = trainer / f"{part}.safetensors"
        if file.is_file():
            return load_file(file)
        from rlvr_core.parallel.fsdp.shards import read_shards

        return read_shards(trainer, part, ours)

    adapter, sharded = adapter_of(model), not (trainer / "optimizer.safetensors").is_file()
    weights, held_to = adapter.trained_tensors(model), reference.named() if reference else {}
    loaded = saved("master", weights) if sharded else adapter.load(folder, model)
    _put_back(loaded, weights, "model", folder)
    _put_back(saved("reference", held_to), held_to, "reference", folder)
    parameters = dict(zip(optimizer.names, optimizer.parameters, strict=True))
    optimizer.load_state_tensors(saved("optimizer", parameters))
    optimizer.scaler.load_state_dict(state.pop("scaler"))
    rng = base64.b64decode(state.pop("torch_rng"))
    torch.set_rng_state(torch.tensor(list(rng), dtype=torch.uint8))
    return state


@torch.no_grad()
def _put_back(
    saved: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], what: str, folder: Path
) -> None:
    if saved.keys() != ours.keys():
        odd = sorted(saved.keys() ^ ours.keys())[:3]
        raise ValueError(f"{folder} holds another {what}: {odd} do not match")
    for name, tensor in ours.items():
        tensor.copy_(like(saved[name], tensor))
