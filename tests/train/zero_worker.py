"""One process of test_zero: optimizer steps of a tiny model under DeepSpeed's ZeRO-2."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import parallel_worker
from parallel_worker import SEVERAL, Poisoned, Term, groups, trainer_of

from rlvr_core.builtin.losses.grpo import GRPO
from rlvr_core.parallel import zero
from rlvr_core.step import checkpoint

CASES = {
    "zero2": (torch.float32, {}),
    # what is left of a gradient is of the size of eps, so each weight feels the clipping
    "clipped": (torch.float32, {"grad_clip": 1e-3, "weight_decay": 0.1}),
    "several": (torch.float32, SEVERAL),
    "half": (torch.float16, {}),
}


def held(trainer):
    """A copy of weights and moments."""
    state = checkpoint.collect(trainer.model, trainer.optimizer)
    return [
        {name: t.clone() for name, t in kind.items()} for kind in (state.weights, state.moments)
    ]


def skipped_and_resumed(folder, ranks):
    """A step that is thrown away, and one that two trainers take of the same state."""
    loss = Poisoned(GRPO(GRPO.Config()), length=2)
    first, second = (
        trainer_of(folder, ranks, "zero2", torch.float32, [Term("grpo", loss)]) for _ in range(2)
    )
    first.update(groups(5), 0, 0)
    before = held(first)
    loss.on = True
    (update,) = first.update(groups(5, seed=1), 1, 1).updates
    after = held(first)
    loss.on = False
    weights, moments = before
    with torch.no_grad():
        for name, tensor in checkpoint.weights(second.model).items():
            tensor.copy_(weights[name])
    second.optimizer.load_state_tensors(moments)
    for trainer in (first, second):
        trainer.update(groups(5, seed=2), 2, 1)
    return {
        "applied": update.applied,
        "before": before,
        "after": after,
        "straight": held(first),
        "resumed": held(second),
    }


def overflow(folder, ranks):
    """A scaled gradient that is too large for float32 in the first process's part alone."""
    trainer = trainer_of(folder, ranks, "zero2", torch.float16, [Term("grpo", GRPO(GRPO.Config()))])

    def large(model, batch, **options):
        first, *others = model.parameters()
        return 1e35 * first[0, 0] + sum(0.0 * other.sum() for other in others)

    trainer.optimizer.backward(trainer.spread.compute(large, trainer.model, None))
    return trainer.optimizer.step(0), trainer.optimizer.scaler.get_scale()


def everything(folder, ranks):
    zero._BUCKET = 1000  # several of them, and parameters larger than one
    found = {
        name: parallel_worker.steps(folder, ranks, "zero2", dtype, **train)
        for name, (dtype, train) in CASES.items()
    }
    found["skipped"] = skipped_and_resumed(folder, ranks)
    if ranks.world > 1:
        found["overflow"] = overflow(folder, ranks)
        found["compilable"] = sys.modules["deepspeed"].ops.__compatible_ops__
    return found


if __name__ == "__main__":
    parallel_worker.main(everything, *sys.argv[1:])
