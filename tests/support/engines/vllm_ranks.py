"""Run by test_vllm.py, once per rank: a data-parallel trainer and an engine in one process."""

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from rlvr_core.api import EngineContext
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.engine import VllmEngine
from tests.support import vllm_models as helpers


def main(order, folder):
    rank = int(os.environ.get("RANK", "0"))
    folder = Path(folder) / str(rank)
    tokenizer = helpers.make_tokenizer()
    model = helpers.make_model(tokenizer, tied=True, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    engine = VllmEngine(VllmEngine.Config(kv_cache_mb=64))
    context = EngineContext(str(folder), model, tokenizer, torch.float32, helpers.MAX_LEN, 7)

    if order == "engine-first":
        engine.start(context)
    accelerator = Accelerator(cpu=helpers.DEVICE == "cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    if order == "trainer-first":
        engine.start(context)

    losses = []
    for version in range(1, 4):
        # ranks see different data: only the averaged gradient keeps their weights equal
        ids = torch.arange(10, 60, device=accelerator.device)[None] + 7 * rank
        loss = wrapped(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        engine.load_weights(version, ModuleSource(accelerator.unwrap_model(wrapped)))
        assert helpers.distance(engine, model) < 1e-4
    assert losses[-1] < losses[0]
    total = accelerator.gather(model.model.norm.weight.detach().sum()[None])
    assert torch.allclose(total, total[0].expand_as(total))
    assert len(total) == accelerator.num_processes
    engine.close()
    accelerator.wait_for_everyone()  # the trainer's group outlives the engine
    print(f"rank {rank} of {accelerator.num_processes} agrees", flush=True)
    accelerator.end_training()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
