"""One of four processes of test_hsdp: two copies of the policy, each split over two processes."""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from rlvr_core.losses import GRPO
from rlvr_core.step import checkpoint
from rlvr_core.step.objective import LossTerm
from tests.support.train.parallel_worker import groups, main, steps, trainer_of

TERMS = [LossTerm("grpo", GRPO(GRPO.Config()))]


def everything(folder, ranks):
    """Steps as in test_parallel, and what this process holds of a weight."""
    more = {} if ranks.world == 1 else {"shard_size": 2}
    found = {
        "plain": steps(folder, ranks, "fsdp", torch.float32, **more),
        "moving": steps(
            folder, ranks, "fsdp", torch.float32, reference={"sync_every": 1, "ema": 0.5}, **more
        ),
        "clipped": steps(folder, ranks, "fsdp", torch.float32, max_grad_norm=1e-3, **more),
    }
    if ranks.world > 1:
        trainer = trainer_of(folder, ranks, "fsdp", torch.float32, TERMS, **more)
        weight = next(trainer.model.parameters())
        found["mesh"] = tuple(weight.device_mesh.shape)
        found["held"] = weight.to_local().numel() / weight.numel()
        found["resumed"] = resumed(Path(folder), ranks, trainer, more)
    return found


def resumed(folder, ranks, trainer, more):
    """Weights two steps after a checkpoint, of the trainer that wrote it and of one that read."""
    trainer.update(groups(4), 0, 0)
    made = checkpoint.collect(trainer.model, trainer.optimizer, ranks=ranks)
    place = folder / "checkpoint"
    if ranks.main:
        place.mkdir()
        checkpoint.save(
            place,
            snapshot=made,
            model=trainer.model,
            tokenizer=SimpleNamespace(save_pretrained=lambda folder: None),
            compute_dtype=torch.float32,
            state={},
        )
    torch.distributed.barrier()
    other = trainer_of(folder, ranks, "fsdp", torch.float32, TERMS, **more)
    checkpoint.load(place, model=other.model, optimizer=other.optimizer)
    for one in (trainer, other):
        for step in (1, 2):
            one.update(groups(4, seed=step), step, step)
    ends = [checkpoint.collect(one.model, one.optimizer) for one in (trainer, other)]
    return all(
        torch.equal(ends[0].weights[name], ends[1].weights[name]) for name in ends[0].weights
    ) and all(torch.equal(ends[0].moments[key], ends[1].moments[key]) for key in ends[0].moments)


if __name__ == "__main__":
    main(everything, *sys.argv[1:])
