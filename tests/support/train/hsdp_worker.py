"""One of four processes of test_hsdp: two copies of the policy, each split over two processes."""

import sys

import torch

from rlvr_core.losses import GRPO
from rlvr_core.step.objective import LossTerm
from tests.support.train.parallel_worker import main, steps, trainer_of

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
    return found


if __name__ == "__main__":
    main(everything, *sys.argv[1:])
