"""One of several processes of test_context_parallel, which split the tokens of their rows."""

import sys

import torch
from transformers import AutoModelForCausalLM

from rlvr_core.config.model import TrainSection
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_scores
from rlvr_core.step.model import enable_checkpointing
from tests.support.train import lora_ranks
from tests.support.train.parallel_worker import SEVERAL, main, per_token, split_of, steps

STEPS = {
    "ddp": ("ddp", {}),
    "fsdp": ("fsdp", {}),
    "several-ddp": ("ddp", SEVERAL),
    "several-fsdp": ("fsdp", SEVERAL),
    "tokens-ddp": ("ddp", per_token()),
}
"""Several: mini-batches, iterations, a reference that moves, teachers, given answers, and tokens
chosen by entropy."""

PASSES = {
    "float32": ("mixed", torch.float32, False),
    "recomputed": ("mixed", torch.float32, True),
    "bfloat16": ("mixed", torch.bfloat16, False),
    "one-token": ("least", torch.float32, False),
}
LENGTHS = {
    # (prompt, answers): shorter than the chunks are many, longer, and none of a multiple
    "mixed": [(1, [1, 2]), (3, [7, 1, 40]), (33, [2, 65]), (20, [19])],
    "least": [(1, [1])],
}


def batch_of(name):
    draw = torch.Generator().manual_seed(3)

    def ids(n):
        return tuple(torch.randint(3, 60, (n,), generator=draw).tolist())

    rows = []
    for prompt, answers in LENGTHS[name]:
        first = ids(prompt)
        # a row may leave out some of its tokens, and its first one
        masks = [
            tuple(t % 3 != n % 3 or length == 1 for t in range(length))
            for n, length in enumerate(answers)
        ]
        rows += [
            Row(first, ids(length), mask, (0.0,) * length, 0.0)
            for length, mask in zip(answers, masks, strict=True)
        ]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=10_000)
    return batch


def passed(folder, ranks, strategy, split, lengths, dtype, recomputed):
    """Log-probs, entropies and gradients of a sum of them with weights of every size."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    enable_checkpointing(model, "all" if recomputed else "none")
    batch = batch_of(lengths)
    draw = torch.Generator().manual_seed(5)
    weight_BT = torch.randn(batch.mask_BT.shape, generator=draw)
    options = {"temperature": 0.7, "autocast_dtype": None if dtype == torch.float32 else dtype}
    if ranks.world == 1:
        logp_BT, entropy_BT = completion_scores(model, batch, **options)
        (weight_BT * (logp_BT + 0.3 * entropy_BT)).sum().backward()
    else:
        section = TrainSection(steps=1, warmup_steps=0, context_parallel=split)
        parallel = ParallelModel(ranks, strategy, split=split_of(section))
        parallel.add(model, trained=True, **options)
        logp_BT, entropy_BT = parallel.compute(completion_scores, model, batch)
        loss = (weight_BT * (logp_BT + 0.3 * entropy_BT)).sum()
        # one copy of a group's loss counts, and gradients are means over all processes
        copies = split if ranks.index % split == 0 else 0
        (copies * loss).backward()
    grads = {
        name: one.grad.full_tensor() if hasattr(one.grad, "full_tensor") else one.grad
        for name, one in model.named_parameters()
    }
    return {"logp": logp_BT.detach(), "entropy": entropy_BT.detach(), "gradient": grads}


def everything(folder, ranks):
    splits = {1: [1], 2: [2], 4: [2, 4]}[ranks.world]
    found = {}
    for split in splits:
        more = {} if ranks.world == 1 else {"context_parallel": split}
        # of four, each copy is shared by two
        sets = {"shard_size": 2} if ranks.world == 4 else {}
        for name, (strategy, train) in STEPS.items():
            if ranks.world == 4 and name.startswith("several"):
                continue
            sharded = sets if strategy == "fsdp" else {}
            found[name, split] = steps(
                folder, ranks, strategy, torch.float32, **train, **more, **sharded
            )
        for strategy in ("ddp", "fsdp"):
            for name, case in PASSES.items():
                found[name, strategy, split] = passed(folder, ranks, strategy, split, *case)
            follows = {"sync_every": 2, "ema": 0.5}
            found["lora", strategy, split] = lora_ranks.steps(
                str(folder), ranks, strategy, torch.float32, follows, **more
            )
    return found


if __name__ == "__main__":
    main(everything, *sys.argv[1:])
