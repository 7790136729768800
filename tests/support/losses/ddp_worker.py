"""One rank of test_ddp: its share of the rows, gradients averaged by accelerate's DDP."""

import contextlib
import os
import sys

import torch
from accelerate import Accelerator

from rlvr_core.api import LossBatch, Normalizer
from rlvr_core.plugins.registry import Entry


class Policy(torch.nn.Module):
    """A table of log-probs, so that its gradient is the loss's."""

    def __init__(self, logp_BT):
        super().__init__()
        self.logp_BT = torch.nn.Parameter(logp_BT.clone())

    def forward(self):
        return self.logp_BT * 1


def step(accelerator, loss, data, micro_rows):
    policy = accelerator.prepare(Policy(data["logp_BT"]))
    others = {name: value for name, value in data.items() if name != "logp_BT"}
    mask_BT = data["mask_BT"]
    normalizer = Normalizer(
        rows=int(mask_BT.any(1).sum()),
        tokens=int(mask_BT.sum()),
        max_completion_tokens=mask_BT.shape[1],
        world_size=accelerator.num_processes,
    )
    rows = torch.arange(len(mask_BT))[accelerator.process_index :: accelerator.num_processes]
    total = torch.zeros((), dtype=torch.float64)
    parts = rows.split(micro_rows)
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        with contextlib.nullcontext() if last else accelerator.no_sync(policy):
            chosen = {name: value[part] for name, value in others.items()}
            output = loss(LossBatch(policy()[part], **chosen), normalizer)
            output.loss.backward()
        total += output.loss.detach()
    return {
        "loss": accelerator.reduce(total, reduction="mean"),
        "grad": accelerator.unwrap_model(policy).logp_BT.grad,
    }


def main(saved, out):
    accelerator = Accelerator(cpu=True)
    saved = torch.load(saved, weights_only=True)
    results = {"world": accelerator.num_processes}
    for name, target in saved["targets"].items():
        cls = Entry("loss", name, target, "", "core").load()
        loss = cls(cls.Config(**saved["options"][name]))
        results[name] = step(accelerator, loss, saved["batch"], micro_rows=3)
    if accelerator.is_main_process:
        torch.save(results, out)
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Not the usual way out: now and then torch with gloo aborts while the interpreter is taken
    # down (SIGABRT, "terminate called without an active exception"), after the process group is
    # destroyed and the result written. An error in main() still ends with its traceback.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
