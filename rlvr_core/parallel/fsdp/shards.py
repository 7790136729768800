"""Checkpoints of a sharded policy: each process writes its own shard, and none gathers the whole.

    trainer/master/00001-of-00004.safetensors      weights in float32: the slices of one process
    trainer/optimizer/00001-of-00004.safetensors   moments
    trainer/reference/00001-of-00004.safetensors   the reference, where it moves
    model-00001-of-00004.safetensors, …            whole tensors, as transformers and vLLM load them

Slices are in the layout of torch.distributed.checkpoint (its ``HuggingFaceStorageWriter``), whose
reader reads them here, resharded where the processes are others. Its writer is not used: it turns a
shard into one string, which is a second copy in memory; its default files are pickles; and it has
no rounding, so that the model folder, made here of the slices on the disk, would be float32.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from rlvr_core.api import RunError
from rlvr_core.parallel.model_adapter import adapter_of, export_config
from rlvr_core.record.checkpoints import file_fingerprint
from rlvr_core.terminal.output import print_line

if TYPE_CHECKING:
    from rlvr_core.parallel.ranks import Ranks

_LAYOUT, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
"""Keys under which torch.distributed.checkpoint finds a slice's place in its tensor."""

MASTER = "master"

Fingerprints = dict[str, dict[str, Any]]
"""Size and SHA-256 of files by their names in the checkpoint."""


def shards_of(
    model: Any, parts: Mapping[str, Mapping[str, Tensor]], ranks: Ranks, place: Path
) -> Shards | None:
    """Return this process's part of a checkpoint. A collective.

    Args:
        model: The policy.
        parts: Tensors by name, by their folder in ``trainer/``; the weights are ``master``.
        ranks: The processes.
        place: A folder beside the checkpoint.

    Returns:
        The slices, copied to the CPU; None if process 0 is to write everything: an adapter, which
        is small, or what not all processes would find again.
    """
    if adapter_of(model).keeps_base:
        return None
    blind = [rank for rank, sees in enumerate(ranks.gather(place.is_dir())) if not sees]
    if blind:
        if ranks.main:
            _say_once(
                f"process {blind[0]} does not see '{place}': process 0 gathers checkpoints and "
                "writes them alone; run.dir in a folder that all machines share avoids it"
            )
        return None
    return Shards(model, parts, ranks, _group(ranks))


@cache
def _say_once(text: str) -> None:
    print_line(text, stderr=True)


@cache
def _group(ranks: Ranks) -> Any:
    """A process group for the threads that write: there nothing waits for a step, nor a step."""
    import torch.distributed as dist

    # whoever waits for a slow disk has limits of its own
    return dist.new_group(backend="gloo", timeout=timedelta(days=1))


class Shards:
    """The slices that one process writes, copied to the CPU.

    Making it is a collective only for a tensor that is split otherwise than FSDP2 does. Of several
    copies of the policy (HSDP) the first is written.

    Args:
        model: The policy, for its configuration alone.
        parts: See ``shards_of``.
        ranks: The processes.
        group: A process group of them that nothing else uses meanwhile.

    Attributes:
        written: The fingerprints of what all processes wrote, once they have.
    """

    def __init__(
        self, model: Any, parts: Mapping[str, Mapping[str, Tensor]], ranks: Ranks, group: Any
    ) -> None:
        self._model, self._ranks, self._group = model, ranks, group
        self.written: Fingerprints = {}
        self._weights = {name: tensor.shape for name, tensor in parts[MASTER].items()}
        mesh = next(
            tensor for tensor in parts[MASTER].values() if isinstance(tensor, DTensor)
        ).device_mesh
        *copy, self._place = mesh.get_coordinate() or ()
        self._count = int(mesh.shape[-1])
        self._writes = not any(copy)
        self._parts: dict[str, dict[str, tuple[Tensor, list[int]]]] = {}
        for part, tensors in parts.items():
            mine = {name: self._slice(tensor.detach()) for name, tensor in tensors.items()}
            self._parts[part] = {name: piece for name, piece in mine.items() if piece is not None}

    def _slice(self, tensor: Tensor) -> tuple[Tensor, list[int]] | None:
        """Return the part of a tensor that this process writes, and its place; else None."""
        offsets = [0] * tensor.ndim
        mine = self._writes and self._place == 0
        if isinstance(tensor, DTensor):
            *others, last = tensor.placements
            if isinstance(last, Shard) and all(placement.is_replicate() for placement in others):
                each = -(-tensor.shape[last.dim] // self._count)
                offsets[last.dim] = min(self._place * each, tensor.shape[last.dim])
                tensor = tensor.to_local()
                mine = self._writes and tensor.numel() > 0
            else:
                tensor = tensor.full_tensor()
        return (tensor.to("cpu", copy=True).contiguous(), offsets) if mine else None

    def write(self, folder: Path | None, dtype: torch.dtype) -> None:
        """Write into the checkpoint's folder, and give up the slices. All processes call this.

        Args:
            folder: The folder, in process 0; it tells the others.
            dtype: What the weights of the model folder are rounded to.

        Raises:
            RunError: If any of them could not; in process 0 what it could not.
        """
        try:
            self._write(folder, dtype)
        except Exception as error:
            if self._ranks.main:
                raise
            raise RunError(f"the checkpoint could not be written: {error}") from error

    def _write(self, folder: Path | None, dtype: torch.dtype) -> None:
        place: Path | None = self._gather(folder)[0]
        assert place is not None, "process 0 has a folder"
        written = self._together(lambda: self._write_slices(place))
        # from here on the slices of all processes are on the disk
        masters = sorted(name for name in written if f"/{MASTER}/" in name)
        exported = self._together(lambda: self._export(place, masters, dtype))
        if dtype == torch.float32:  # the model folder has the same weights
            written = {name: seal for name, seal in written.items() if name not in masters}
        if self._ranks.main:
            if dtype == torch.float32:
                shutil.rmtree(place / "trainer" / MASTER)
            self._write_index(place, dtype)
            export_config(place, self._model, dtype)
        self.written |= written | exported

    def _gather(self, mine: Any) -> list[Any]:
        import torch.distributed as dist

        gathered: list[Any] = [None] * self._ranks.world
        try:
            dist.all_gather_object(gathered, mine, group=self._group)
        except RuntimeError as error:  # the connection is closed
            raise RuntimeError("another process ended before its shard was written") from error
        return gathered

    def _together(self, act: Callable[[], Fingerprints]) -> Fingerprints:
        """Gather the results of all processes; a failure of one is a failure of all."""
        mine: Fingerprints | Exception
        try:
            mine = act()
        except OSError as error:
            mine = error
        except Exception as error:
            mine = RuntimeError(f"process {self._ranks.index}: {type(error).__name__}: {error}")
        prints: Fingerprints = {}
        for answer in self._gather(mine):
            if isinstance(answer, Exception):
                raise answer
            prints |= answer
        return prints

    def _write_slices(self, folder: Path) -> Fingerprints:
        prints = {}
        file = f"{self._place + 1:05}-of-{self._count:05}.safetensors"
        while self._parts:
            part, slices = self._parts.popitem()
            if slices:
                name = f"trainer/{part}/{file}"
                (folder / name).parent.mkdir(exist_ok=True)
                offsets = {key: {_OFFSETS: places} for key, (_, places) in slices.items()}
                metadata = {"format": "pt", "DCP_VERSION": "1.0", _LAYOUT: json.dumps(offsets)}
                save_file(
                    {key: piece for key, (piece, _) in slices.items()}, folder / name, metadata
                )
                prints[name] = file_fingerprint(folder / name)
        return prints

    def _export(self, folder: Path, masters: list[str], dtype: torch.dtype) -> Fingerprints:
        """Write this process's share of the model folder, of the slices that all have written."""
        files = list(self._model_files().items())
        if not self._writes or self._place >= len(files):
            return {}
        target, names = files[self._place]
        tensors: dict[str, Tensor] = {}
        with contextlib.ExitStack() as stack:
            opened = []
            for master in masters:
                slices = stack.enter_context(safe_open(folder / master, framework="pt"))
                opened.append((slices, json.loads(slices.metadata()[_LAYOUT])))
            for name in names:
                tensors[name] = self._whole(name, opened, dtype)
        save_file(tensors, folder / target, {"format": "pt"})
        return {target: file_fingerprint(folder / target)}

    def _whole(self, name: str, opened: list[tuple[Any, Any]], dtype: torch.dtype) -> Tensor:
        """A weight of its slices in several files, rounded."""
        pieces = [
            (file.get_tensor(name), places[name]) for file, places in opened if name in places
        ]
        shape = self._weights[name]
        if sum(piece.numel() for piece, _ in pieces) != math.prod(shape):
            raise ValueError(f"the slices of {name} in trainer/{MASTER}/ are not all of it")
        kind = next((piece.dtype for piece, _ in pieces if not piece.is_floating_point()), dtype)
        whole = torch.empty(shape, dtype=kind)
        for piece, place in pieces:
            starts = zip(place[_OFFSETS], piece.shape, strict=True)
            whole[tuple(slice(start, start + n) for start, n in starts)] = piece
        return whole

    def _model_files(self) -> dict[str, list[str]]:
        """The names of the tensors by file: as many files as writers, of about the same size."""
        total = sum(map(math.prod, self._weights.values()))
        files: list[list[str]] = [[] for _ in range(self._count)]
        before = 0
        for name, shape in self._weights.items():
            size = math.prod(shape)
            middle = (2 * before + size) * self._count // (2 * total)
            files[min(middle, self._count - 1)].append(name)
            before += size
        files = [names for names in files if names]
        return {
            f"model-{place:05}-of-{len(files):05}.safetensors": names
            for place, names in enumerate(files, 1)
        }

    def _write_index(self, folder: Path, dtype: torch.dtype) -> None:
        files = self._model_files()
        size = sum(map(math.prod, self._weights.values())) * dtype.itemsize
        index = {
            "metadata": {"total_size": size},
            "weight_map": {name: file for file, names in files.items() for name in names},
        }
        text = json.dumps(index, indent=1) + "\n"
        (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def read_shards(trainer: Path, part: str, models: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read what ``Shards`` wrote, whoever reads it.

    Each process reads its own slices alone, also where they are cut otherwise in the files.

    Args:
        trainer: The checkpoint's folder ``trainer/``.
        part: Which of the folders in it, which may be absent; ``master`` is then the model folder.
        models: What is read, by name, and is filled in place. A state of it, ``name|key``, becomes
            a new tensor: sharded as it is, if of the same shape.

    Returns:
        All tensors of the files.

    Raises:
        ValueError: If one has another shape than its model.
    """
    folder = trainer / part
    if part == MASTER and not folder.is_dir():
        folder = trainer.parent
    files = [*map(_contents, sorted(folder.glob("*.safetensors")))]
    shapes: dict[str, list[int]] = {}
    dtypes: dict[str, torch.dtype] = {}
    for file in files:
        for name, (ends, dtype) in file.items():
            shapes[name] = [*map(max, shapes.get(name, ends), ends)]
            dtypes[name] = dtype
    tensors: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        model = models.get(name)
        if model is None:
            owner = models.get(name.rpartition("|")[0])
            same = owner is not None and list(owner.shape) == shape
            kind = dtypes[name]
            tensors[name] = (
                torch.empty_like(owner, dtype=kind, requires_grad=False)  # type: ignore[arg-type]
                if same
                else torch.empty(shape, dtype=kind)
            )
        elif list(model.shape) != shape:
            raise ValueError(f"{folder}: {name} is {shape} there, and {list(model.shape)} here")
        else:
            tensors[name] = model.detach()
    if tensors:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        from torch.distributed.checkpoint.state_dict_loader import load

        with warnings.catch_warnings():
            # each process reads for itself: no process group is needed
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return tensors


def _contents(file: Path) -> dict[str, tuple[list[int], torch.dtype]]:
    """Return the ends of the slices in a file, and their dtypes, by name."""
    with safe_open(file, framework="pt") as slices:
        offsets = json.loads((slices.metadata() or {}).get(_LAYOUT, "{}"))
        contents = {}
        for name in slices.keys():  # noqa: SIM118
            piece = slices.get_slice(name)
            shape = piece.get_shape()
            starts = offsets[name][_OFFSETS] if name in offsets else [0] * len(shape)
            ends = [start + n for start, n in zip(starts, shape, strict=True)]
            # an empty slice has the dtype, and reads nothing
            kind = (piece[:0] if shape else slices.get_tensor(name)).dtype
            contents[name] = (ends, kind)
    return contents
