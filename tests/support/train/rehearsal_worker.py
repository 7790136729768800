"""One process of test_rehearsal_ranks: the largest micro-batch is tried by two processes."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch

from rlvr_core.api import LossTraits, MachineError, RlvrError
from rlvr_core.config.model import SamplingSection
from rlvr_core.losses import GRPO
from rlvr_core.parallel.ranks import joined
from rlvr_core.parallel.sharded import whole
from rlvr_core.step.objective import LossTerm
from tests.support.train.parallel_worker import groups, main, trainer_of

GIB = 2**30


@dataclass
class Short:
    """A loss for which one process has no memory: it says so as torch does."""

    inner: GRPO
    on: bool = False
    traits: LossTraits = LossTraits(advantage="group", per_token_advantages=True)  # noqa: RUF009

    def __call__(self, batch, normalizer):
        if self.on:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.\nmore")
        return self.inner(batch, normalizer)


def made(folder, ranks, strategy, **more):
    loss = Short(GRPO(GRPO.Config()))
    terms = [LossTerm("grpo", loss)]
    train = {"prompts_per_step": 9, **more}
    trainer = trainer_of(folder, ranks, strategy, torch.float32, terms, **train)
    sampling = SamplingSection(n=2, max_tokens=8)
    return loss, trainer, SimpleNamespace(train=trainer.train, sampling=sampling)


def steps(folder, ranks, strategy, *, rehearsed):
    """Two steps, a rehearsal before each or none."""
    from rlvr_guards import rehearsal

    _, trainer, config = made(folder, ranks, strategy)
    outcomes, metrics = [], []
    for step in range(2):
        if rehearsed:
            outcomes.append(rehearsal.rehearse(trainer, config, 4))
        metrics.append(trainer.update(groups(5, seed=step), step, step).metrics)
    return {
        "tokens": [one.tokens for one in outcomes],
        "errors": [one.error for one in outcomes],
        "metrics": metrics,
        "weights": {name: whole(p).clone() for name, p in trainer.model.named_parameters()},
        "left": [p.grad is None for p in trainer.optimizer.parameters],
    }


def short(folder, ranks, strategy, shorts, told):
    """Try it before the first rollout, with too little memory in these processes."""
    from rlvr_guards import gpu as guard

    loss, trainer, config = made(folder, ranks, strategy)
    loss.on = ranks.index in shorts
    torch.cuda.mem_get_info = lambda *_: (GIB, 2 * GIB)
    card = guard.GpuGuard(guard.GpuGuard.Config())
    config.data = SimpleNamespace(max_prompt_tokens=4)
    engine = SimpleNamespace(sleep=lambda: None, wake=lambda: told.append("awake"))
    # as ``bind`` leaves it where there is a GPU
    card._on_gpu = True
    card.context = SimpleNamespace(
        config=config,
        trainer=trainer,
        longest_prompt=9,
        engine=engine,
        phase=lambda _: None,
        say=told.append,
    )
    card.run_started(None)


def complaint(error):
    (one,) = error.complaints
    return {"code": error.exit_code, "where": one.where, "said": [one.what, *one.remedy]}


def both(folder, ranks):
    told = []
    try:
        short(folder, ranks, "fsdp", (0, 1), told)
    except MachineError as error:
        return {"told": told, **complaint(error)}
    return {"told": told}


def one_alone(strategy, folder, out):
    """Process 1 has too little memory, process 0 enough; both end as a run's processes do."""
    told, said = [], None
    index = int(os.environ["RANK"])
    try:
        with joined(60.0) as ranks:
            short(folder, ranks, strategy, (1,), told)
    except RlvrError as error:
        said = complaint(error)
    torch.save({"told": told, "said": said}, Path(out) / f"alone{index}.pt")
    os._exit(0)


def everything(folder, ranks):
    found = {
        strategy: {
            way: steps(folder, ranks, strategy, rehearsed=way == "rehearsed")
            for way in ("without", "rehearsed")
        }
        for strategy in ("ddp", "fsdp")
    }
    found["fits"] = []
    short(folder, ranks, "fsdp", (), found["fits"])
    found["both"] = both(folder, ranks)
    return found


if __name__ == "__main__":
    if sys.argv[1] in {"ddp", "fsdp"}:
        one_alone(*sys.argv[1:])
    main(everything, *sys.argv[1:])
