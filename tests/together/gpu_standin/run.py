"""Runs steps of a trainer on the stand-in and prints what they cost, a line of JSON a case.

A process of its own, since the stand-in's library cannot be unloaded; see ``CASE``:

    python -m tests.together.gpu_standin.run '[{"beta": 0.01}, {"device": "cpu"}]'
"""
# ruff: noqa: E402  # the stand-in's library is loaded before torch

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from tests.together.gpu_standin import build

build.load()

import torch

from rlvr_core.api import MicroBatch
from rlvr_core.lora import lora
from rlvr_core.parallel.offload import offload
from rlvr_core.step.step import _bare_rows, _completions
from tests.together.gpu_standin import device as standin
from tests.together.gpu_standin.steps import CASE, groups, models, trainer_of

FEW = {"groups": 2, "n": 2, "prompt": 4, "tokens": 4}
"""What steps before the last one train on, of shapes: they make the optimizer's state alone."""


def put(device: standin.StandIn, case: Mapping[str, Any], made: dict[str, Any]) -> None:
    """Put models where a GPU has them; an offloaded reference mostly stays on the host."""
    for name, model in made.items():
        if name == "reference" and case["offload"]:
            offload(model, standin.DEVICE)
        else:
            device.put_model(model)


def run(case: Mapping[str, Any]) -> dict[str, Any]:
    """Do the steps of a case.

    Returns:
        ``metrics`` of each step; and on the stand-in ``waits``, ``passes`` (calls of whole
        models), ``trained`` (those of them with a backward pass), ``launches``,
        ``flops``, ``wide`` and ``micro_batches`` of the last one, and bytes at rest and at most.
    """
    real = case["size"] == "tiny"
    if not real:  # a fingerprint of the weights is for a checkpoint, and shapes have none
        lora._fingerprint = lambda *_: {}
    made = models(case, "cpu" if real else "meta")
    given = groups(case, made["policy"].config.vocab_size)
    if case["device"] == "cpu":
        trainer = trainer_of(case, made)
        return {"metrics": [trainer.update(given, s, s).metrics for s in range(case["steps"])]}
    standin.pretend()
    with standin.StandIn(shapes_only=not real) as device:
        put(device, case, made)
        trainer = trainer_of(case, made)
        metrics = []
        passes: list[bool] = []
        for name, model in made.items():

            def passed(*_: Any, policy: bool = name == "policy") -> None:
                passes.append(policy and torch.is_grad_enabled())

            model.base_model.register_forward_pre_hook(passed)
        for step in range(case["steps"]):
            device.forget()
            passes.clear()
            few = not real and step < case["steps"] - 1
            rows = groups({**case, **FEW}, made["policy"].config.vocab_size) if few else given
            metrics.append(trainer.update(rows, step, step).metrics)
        figures = {
            "metrics": metrics,
            "waits": [[*key, n] for key, n in device.waits.most_common()],
            "passes": len(passes),
            "trained": sum(passes),
            "launches": sum(device.launches.values()),
            "flops": {str(dtype): n for dtype, n in device.flops.items()},
            "wide": device.wide.most_common(),
            "at_rest": device.live,
            "peak": device.peak,
        }
        rows = [one.batch for one in trainer._pack(_bare_rows(_completions(given)))]
        return figures | {"micro_batches": len(rows), "sizes": [sizes_of(one) for one in rows]}


def sizes_of(batch: MicroBatch) -> dict[str, int]:
    """Tokens of a micro-batch, by the names that ``rlvr plan`` has for them."""
    prompts, fed = batch.prompt_places(), batch.fed_places()
    of_row = batch.prompt_len_S[batch.prompt_of_row_B]
    tokens = int(prompts.sum() + fed.sum())
    rows, width = fed.shape
    width = max(1, width)
    return {
        "tokens": tokens,
        "loss_tokens": int(batch.mask_BT.sum()),
        "keys": tokens + int(of_row.sum()),
        "query_slots": prompts.numel() + rows * width,
        "key_slots": prompts.numel() + rows * (prompts.shape[1] + width),
        "mask": rows * width * (prompts.shape[1] + width),
    }


if __name__ == "__main__":
    for given in json.loads(sys.argv[1]) if sys.argv[1:] else [{}]:
        print(json.dumps(run({**CASE, **given})), flush=True)
