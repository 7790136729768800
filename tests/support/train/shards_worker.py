"""One process of test_shards: checkpoints that each process writes its shard of, beside a step."""

import errno
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import torch

from rlvr_core.api import RunError
from rlvr_core.losses import GRPO
from rlvr_core.parallel.fsdp import shards
from rlvr_core.record.checkpoints import CheckpointStore
from rlvr_core.step import checkpoint
from rlvr_core.step.objective import LossTerm
from tests.support.train.parallel_worker import groups, main, trainer_of

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
MOVING = {"sync_every": 1, "ema": 0.5}
WAYS = {
    2: {("two", "bfloat16"): {}, ("two", "float32"): {}},
    4: {("four", "bfloat16"): {}, ("hsdp", "float32"): {"shard_size": 2}},
}
"""Checkpoints by name and dtype, by the number of processes that write them."""


def made(folder, ranks, dtype="bfloat16", **more):
    terms = [LossTerm("grpo", GRPO(GRPO.Config(beta=0.2)))]
    return trainer_of(folder, ranks, "fsdp", DTYPES[dtype], terms, reference=MOVING, **more)


def parts(trainer):
    return trainer.model, trainer.optimizer, trainer.reference


def contents(trainer):
    """Weights, moments and reference, whole, as one process has them after gathering."""
    found = checkpoint.collect(*parts(trainer))
    named = {"weights": found.weights, "moments": found.moments, "reference": found.reference}
    return {kind: {k: v.clone() for k, v in one.items()} for kind, one in named.items()}


def same(one, two):
    return all(
        one[kind].keys() == two[kind].keys()
        and all(torch.equal(value, two[kind][name]) for name, value in one[kind].items())
        for kind in one
    )


def write(place, step, snapshot, trainer, ranks, dtype):
    """What a run's thread does: process 0 completes the checkpoint, the others write along."""

    def fill(folder):
        checkpoint.save(
            folder,
            snapshot=snapshot,
            model=trainer.model,
            tokenizer=SimpleNamespace(save_pretrained=lambda folder: None),
            compute_dtype=DTYPES[dtype],
            state={},
        )

    if ranks.main:
        return CheckpointStore(place, keep=9).write(step, fill, known=snapshot.shards.written)
    return snapshot.shards.write(None, DTYPES[dtype])


def gathers(tensor, **_):
    raise AssertionError("a whole tensor was gathered")


def written(folder, ranks, name, dtype, **more):
    """Write a checkpoint beside a step; what it has to hold, and how the run goes on from it."""
    trainer = made(folder, ranks, dtype, **more)
    trainer.update(groups(4), 0, 0)
    due = contents(trainer)
    place = Path(folder) / f"{name}-{dtype}"
    if ranks.main:
        place.mkdir()
    torch.distributed.barrier()
    sharded = type(next(trainer.model.parameters()).data)
    whole, sharded.full_tensor = sharded.full_tensor, gathers
    snapshot = checkpoint.collect(*parts(trainer), ranks, place)
    sharded.full_tensor = whole
    held = sum(one.numel() for part in snapshot.shards._parts.values() for one, _ in part.values())
    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(write, place, 1, snapshot, trainer, ranks, dtype)
        trainer.update(groups(4, seed=1), 1, 1)
        writing.result(120)
    torch.distributed.barrier()
    other = made(folder, ranks, dtype, **more)
    checkpoint.load(place / "step000001", **loaded_into(other))
    back = contents(other)
    other.update(groups(4, seed=1), 1, 1)
    return {
        "due": due,
        "held": held / sum(one.numel() for kind in due.values() for one in kind.values()),
        "back": same(due, back),
        "goes_on": same(contents(trainer), contents(other)),
    }


def loaded_into(trainer):
    model, optimizer, reference = parts(trainer)
    return {"model": model, "optimizer": optimizer, "reference": reference}


def killed(folder, ranks):
    """What process 0 of three says when the last is killed after the first of its files."""
    trainer = made(folder, ranks)
    trainer.update(groups(4), 0, 0)
    place = Path(folder) / "killed"
    place.mkdir(exist_ok=True)
    torch.distributed.barrier()
    for step in (1, 2):
        snapshot = checkpoint.collect(*parts(trainer), ranks, place)
        if (step, ranks.index) == (2, 2):
            shards.file_fingerprint = lambda file: os.kill(os.getpid(), signal.SIGKILL)
        try:
            write(place, step, snapshot, trainer, ranks, "bfloat16")
        except RunError as error:
            return error.complaints[0]
        except RuntimeError:  # process 1, which process 0 tells nothing
            os._exit(0)
        torch.distributed.barrier()
    raise AssertionError("the second checkpoint was completed")


def full(folder, ranks):
    """What each process says when the disk of process 1 is full."""
    trainer = made(folder, ranks)
    place = Path(folder) / "full"
    place.mkdir(exist_ok=True)
    torch.distributed.barrier()
    snapshot = checkpoint.collect(*parts(trainer), ranks, place)
    fingerprint = shards.file_fingerprint

    def no_room(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    if not ranks.main:
        shards.file_fingerprint = no_room
    try:
        write(place, 1, snapshot, trainer, ranks, "bfloat16")
    except RunError as error:
        return error.complaints[0].what, [one.name for one in place.iterdir()]
    finally:
        shards.file_fingerprint = fingerprint
        torch.distributed.barrier()


def unseen(folder, ranks):
    """Whether shards are written where process 1 does not see the run's folder."""
    trainer = made(folder, ranks)
    place = Path(folder) if ranks.main else Path(folder) / "of-another-machine"
    snapshot = checkpoint.collect(*parts(trainer), ranks, place)
    return snapshot.shards is not None, len(snapshot.weights)


def everything(folder, ranks):
    if ranks.world == 3:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others by it
        torch.save(killed(folder, ranks), Path(folder) / "complaint.pt")
        os._exit(0)
    found = {}
    for (name, dtype), more in WAYS.get(ranks.world, {}).items():
        found[name, dtype] = written(folder, ranks, name, dtype, **more)
    if ranks.world == 2:
        found["unseen"] = unseen(folder, ranks)
        found["full"] = full(folder, ranks)
    if ranks.world == 4:  # what two processes wrote, slices of which end within those of four
        for dtype in DTYPES:
            other = made(folder, ranks, dtype)
            checkpoint.load(Path(folder) / f"two-{dtype}" / "step000001", **loaded_into(other))
            found["two", dtype] = contents(other)
    return found


if __name__ == "__main__":
    main(everything, *sys.argv[1:])
